"""Which controller serves a replica: that of its release and of its form of the wire.

Another release may decide differently, so it starts a controller of its own.
"""

from collections.abc import Mapping
from typing import Any

from controller.errors import ReportError

RELEASE = "0.2.0"  # as in pyproject.toml; a source tree shipped by Ray has no package metadata
# One more with each change of what a report, its batching block or limits look like on the wire, or
# of what a policy remembers.
WIRE = 2
VERSION = f"{RELEASE}+{WIRE}"


def check_version(report: Mapping[str, Any]) -> None:
    """Refuse a report, in its wire form, of another version.

    Raises:
        ReportError: naming both versions.
    """
    if (theirs := report.get("version")) != VERSION:
        raise ReportError(f"report.version: {theirs!r} is not allowed: only {VERSION!r}")
