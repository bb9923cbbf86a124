"""Which code this is: replicas and controller work together only where it is the same.

``VERSION`` is the package's version and, as its local part, a digest of the source of
``controller``, where both the records on the wire and all that is done with them stand.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.errors import ReportError

RELEASE = "0.2.0"  # as in pyproject.toml; a source tree shipped by Ray has no package metadata


def digest(folder: Path) -> str:
    """Eight hex digits that change with any module in or below ``folder``."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        whole.update(f"{path.relative_to(folder).as_posix()}\0".encode())
        whole.update(path.read_bytes())
        whole.update(b"\0")
    return whole.hexdigest()[:8]


VERSION = f"{RELEASE}+{digest(Path(__file__).parent)}"


def check_version(report: Mapping[str, Any]) -> None:
    """Refuse a report, in its wire form, that other code than this one made.

    Raises:
        ReportError: naming both versions.
    """
    if (theirs := report.get("version")) != VERSION:
        raise ReportError(f"report.version: {theirs!r} is not allowed: only {VERSION!r}")
