"""The page in one piece: markup, style and scripts, of the files in ``static``.

One answer is all that a browser fetches before it asks for data, wherever the application is
mounted; and it runs nothing else: each part is named by its digest in the page's policy.
"""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files

STYLES = ("uPlot.min.css", "console.css")
SCRIPTS = ("uPlot.iife.min.js", "draw.js", "console.js")  # in the order in which they run


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
        static = files(__package__) / "static"

        def read(name: str) -> str:
            return (static / name).read_text(encoding="utf-8")

        styles, scripts = [read(name) for name in STYLES], [read(name) for name in SCRIPTS]
        html = read("index.html")
        html = html.replace(*_placed("style", styles)).replace(*_placed("script", scripts))
        policy = "; ".join(
            [
                "default-src 'none'",
                "connect-src 'self'",
                "img-src data:",
                f"style-src {_digests(styles)}",
                f"script-src {_digests(scripts)}",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            ]
        )
        return cls(html, policy)


def _placed(kind: str, texts: list[str]) -> tuple[str, str]:
    """Where these parts go, and what goes there."""
    return f"<!-- {kind}s -->", "\n".join(f"<{kind}>{text}</{kind}>" for text in texts)


def _digests(texts: list[str]) -> str:
    hashes = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in hashes)
