"""Which controller serves a replica: the one of its release and wire format.

Another release may decide differently, so it has its own controller.
"""

from collections.abc import Mapping
from typing import Any

from controller.errors import ReportError

RELEASE = "0.2.0"  # as in pyproject.toml; a source tree shipped by Ray has no package metadata
# Incremented with each change of reports, batching blocks or limits on the wire, or of a policy's
# state.
WIRE = 4
VERSION = f"{RELEASE}+{WIRE}"


def check_version(report: Mapping[str, Any]) -> None:
    """Refuse a report, in its wire form, of another version.

    Raises:
        ReportError: naming both versions.
    """
    if (theirs := report.get("version")) != VERSION:
        raise ReportError(f"report.version: {theirs!r} is not allowed: only {VERSION!r}")
