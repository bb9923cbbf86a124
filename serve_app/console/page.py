"""The page in one piece: markup, style and scripts, of the files in ``static``.

A browser fetches one answer before it asks for data, wherever the application is mounted. It runs
nothing else: the page's policy names each part by its digest.
"""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files

STYLES = ("uPlot.min.css", "console.css")
# In the order in which they run.
SCRIPTS = ("uPlot.iife.min.js", "draw.js", "timeline.js", "console.js")


@dataclass(frozen=True, slots=True)
class Page:
    """Args:
    policy: the Content-Security-Policy that goes with it.
    """

    html: str
    policy: str

    @classmethod
    def shipped(cls) -> "Page":
        """The page of this package."""
        styles, scripts = [_read(name) for name in STYLES], [_read(name) for name in SCRIPTS]
        html = _read("index.html")
        html = html.replace(*_placed("style", styles)).replace(*_placed("script", scripts))
        more = ("connect-src 'self'", f"script-src {_digests(scripts)}", "form-action 'none'")
        return cls(html, _policy(styles, *more))


def _read(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _policy(styles: list[str], *more: str) -> str:
    known = ["default-src 'none'", "img-src data:", f"style-src {_digests(styles)}"]
    return "; ".join([*known, *more, "base-uri 'none'", "frame-ancestors 'none'"])


def _placed(kind: str, texts: list[str]) -> tuple[str, str]:
    """The places of these parts, and what goes there."""
    return f"<!-- {kind}s -->", "\n".join(f"<{kind}>{text}</{kind}>" for text in texts)


def _digests(texts: list[str]) -> str:
    hashes = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
