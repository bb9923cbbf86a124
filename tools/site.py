"""Hooks of mkdocs for ``make site``: pages outside docs, and links that leave it.

README.md becomes the first page. A link from a page to a file that is not a page (a manifest, a
module) must lead to a file of the repository; the site shows that file's path, because the site may
be published without the repository.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# Files at the top that are pages: their name in the repository -> on the site.
PAGES = {
    name: "index.md" if name == "README.md" else name
    for name in (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CODE_OF_CONDUCT.md",
    )
}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<to>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
IMAGE = re.compile(r"!\[(?P<text>[^\]]*)\]\((?P<to>[^)\s#]*)\)")

log = get_plugin_logger(__name__)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand at the top of the repository."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links between pages by their place on the site; others as the path of a file."""
    place = page.file.src_uri
    of = {site: name for name, site in PAGES.items()}.get(place, f"docs/{place}")
    return "\n".join(_lines(markdown, PurePosixPath(of), PurePosixPath(place)))


def _lines(markdown: str, of: PurePosixPath, place: PurePosixPath) -> list[str]:
    done, fenced = [], False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if not fenced:
            line = LINK.sub(lambda link: _link(link, of, place), line)
            line = IMAGE.sub(lambda link: _link(link, of, place), line)
        done.append(line)
    return done


def _link(link: re.Match[str], of: PurePosixPath, place: PurePosixPath) -> str:
    to = link["to"]
    if not to or "://" in to or to.startswith("mailto:"):
        return link[0]
    target = (ROOT / of.parent / to).resolve()
    if not target.exists():
        log.warning(f"{of}: {to} is no file of the repository")
        return link[0]
    path = target.relative_to(ROOT)
    if str(path) in PAGES:
        page = PurePosixPath(PAGES[str(path)])
    elif path.is_relative_to("docs") and path.is_file():
        page = PurePosixPath(path.relative_to("docs"))
    else:
        return f"{link['text']} (`{path}`)" if link["text"] != f"`{path}`" else link["text"]
    up = "../" * len(place.parent.parts)
    return link[0].replace(f"]({to}", f"]({up}{page}")
