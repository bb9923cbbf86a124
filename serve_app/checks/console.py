"""Check the console's application: who may see it."""

from collections.abc import Sequence
from typing import Any

from replicas.door.settings import Security
from serve_app.checks.findings import Findings, Target
from serve_app.checks.security import check_security
from serve_app.config import SECURITY
from serve_app.console.arguments import keys_of, says_who

CONSOLE = "serve_app.console:build"
OPEN = "the console, which shows the fleet to whoever reaches it"
GUARDED = "the console, which shows the fleet to whoever has a key"


def check_console(
    application: dict[str, Any],
    where: str,
    others: Sequence[Any],
    target: Target,
    findings: Findings,
) -> str:
    """Report what is wrong with its arguments.

    Args:
        others: the applications of the same file.

    Returns:
        What it is, in a few words.
    """
    args = application.get("args") or {}
    keys = None
    with findings.collecting():
        keys = keys_of(args, f"{where}.args")
    if keys is not None:
        place = f"{where}.args.{SECURITY}"
        check_security(Security(keys=keys), [], place, target, findings)
        return GUARDED
    asking = [str(one.get("name", "default")) for one in others if _asks_for_keys(one)]
    if asking and not says_who(args):
        findings.add(
            [
                f"{where}.args.{SECURITY}.keys: required key is missing: application {asking[0]!r}"
                " asks for keys, and the console would show its models and load to whoever comes;"
                " name the keys here too (null: everybody may see it)"
            ]
        )
    return OPEN


def _asks_for_keys(application: Any) -> bool:
    args = application.get("args") if isinstance(application, dict) else None
    block = args.get(SECURITY) if isinstance(args, dict) else None
    return isinstance(block, dict) and bool(block.get("keys"))
