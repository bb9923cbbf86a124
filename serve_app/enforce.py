"""``brimful enforce``: control switched off or on in a running cluster; nothing is restarted.

The switch goes to the batch controllers of all versions that run, since a redeployment may be under
way; replicas take it over with their next report, which then says so.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from controller.errors import BrimfulError
from controller.records import from_wire
from controller.switch import Switch
from serve_app.options import add_address, add_group
from serve_app.snapshot import connect as join_cluster
from serve_app.snapshot import first_line, listed

WAIT_S = 10.0
POLL_S = 0.2
ANSWER_S = 5.0
REFUSED_S = 10.0  # a replica reports every second at least: one refused before that is gone
SETTLED_S = 5.0  # until then a controller that has just started may lack a replica's report

ABOUT = (
    "Switch control off or on while replicas run: no replica is restarted, no request is lost."
    " off: every replica runs at vLLM's own limits and in vLLM's own order; limits are still"
    " computed, reported and shown. on: as the configuration says (batching.enforce). The"
    " switch survives a restart of the controller and holds for later replicas too. The"
    " command waits until the replicas have confirmed it."
)
STATUS = (
    "Exit status: 0 every replica confirmed it; 1 some did not in time, and are named; 2 no such"
    " group, or a controller did not answer in time."
)

Key = tuple[str, str]  # a replica: its group and its name
Call = Callable[..., Any]
"""A controller: a method's name and arguments for its answer, or a ``BrimfulError``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = ABOUT, STATUS
    parser.add_argument(
        "state", choices=("off", "on"), help="whether limits are applied from now on"
    )
    add_group(
        parser,
        "only this group, by its name in `brimful status` (default: all groups, later ones"
        " too); of a switch for one group and a switch for all, the newer one holds",
    )
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    replicas = switch(connect(args.address), enforce=args.state == "on", group=args.group)
    where = "all groups, later ones too" if args.group is None else args.group
    print(f"Control is {args.state} for {where}.", *lines(replicas), sep="\n")
    return 1 if any(replicas.values()) else 0


def connect(address: str) -> list[Call]:
    """The batch controllers of the cluster at this Ray address, one for each version.

    Raises:
        BrimfulError: no cluster is there, or no controller in it.
    """
    from controller.fleet.actor import running_controllers

    join_cluster(address)
    try:
        handles = running_controllers()
    except (OSError, RuntimeError, ValueError) as error:  # the cluster's store is away
        raise BrimfulError(f"nothing was switched: {first_line(error)}") from None
    if not handles:
        raise BrimfulError("nothing was switched: no batch controller runs in this cluster")
    return [_caller(version, handle) for version, handle in handles.items()]


def _caller(version: str, handle: Any) -> Call:
    import ray
    from ray.exceptions import RayError

    def call(method: str, *args: Any) -> Any:
        try:
            return ray.get(getattr(handle, method).remote(*args), timeout=ANSWER_S)
        except (AttributeError, RayError) as error:
            why = first_line(getattr(error, "cause", None) or error)
            raise BrimfulError(
                f"the batch controller {version} does not answer ({why}); run the command again"
            ) from None

    return call


def switch(
    controllers: list[Call],
    *,
    enforce: bool,
    group: str | None,
    wait_s: float = WAIT_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[Key, str]:
    """Switch control in every controller; return when all replicas confirmed, or after ``wait_s``.

    Returns:
        The replicas that it is for; "": it goes by this switch or a newer one; else why not.

    Raises:
        BrimfulError: a controller does not answer, or none knows the group.
    """
    if group is not None:
        _check_group([call("switches") for call in controllers], group)
    made = [from_wire(Switch, call("switch", enforce, group)) for call in controllers]
    until_s = clock() + wait_s
    seen: dict[Key, str] = {}
    while True:
        settled, seen = True, dict.fromkeys(seen, "it reports no more")
        for call, one in zip(controllers, made, strict=True):
            known = call("switches")
            settled = settled and known["up_s"] >= SETTLED_S
            seen |= _replicas(known, one)
        if clock() >= until_s or (settled and not any(seen.values())):
            return dict(sorted(seen.items()))
        sleep(POLL_S)


def lines(replicas: Mapping[Key, str]) -> Iterator[str]:
    """How many of each group confirmed the switch, and who did not."""
    if not replicas:
        yield "No replica is there now."
    count = Counter(group for group, _ in replicas)
    late = {key: why for key, why in replicas.items() if why}
    missing = Counter(group for group, _ in late)
    for group, n in count.items():
        yield f"  {group}: {n - missing[group]} of {n} replicas confirmed"
    if late:
        yield "Not confirmed; each takes the switch over as soon as it reaches the controller:"
    for (group, replica), why in late.items():
        yield f"  {replica} of {group}: {why}"


def _replicas(known: Mapping[str, Any], made: Switch) -> dict[Key, str]:
    """The replicas that the switch is for: "", or why it does not hold there.

    Raises:
        BrimfulError: the controller started anew before a replica had the switch.
    """
    scopes = (None, made.group)
    if not any(s["epoch_ms"] >= made.epoch_ms for s in known["switches"] if s["group"] in scopes):
        raise BrimfulError("the batch controller has started anew; run the command again")
    found: dict[Key, str] = {}
    for one in known["replicas"]:
        said = f"last report {one['age_s']:.1f} s ago"
        found[one["group"], one["replica"]] = "" if one["epoch_ms"] >= made.epoch_ms else said
    for one in known.get("refused", ()):  # controllers of old versions name none
        if one["refused_s_ago"] <= REFUSED_S:
            said = f"its report is refused, it decides by itself: {one['reason']}"
            found[one["group"], one["replica"]] = said
    return {key: why for key, why in found.items() if made.group in (None, key[0])}


def _check_group(known: list[dict[str, Any]], group: str) -> None:
    parts = (one.get(key, ()) for one in known for key in ("replicas", "switches", "refused"))
    groups = {one["group"] for part in parts for one in part} - {None}
    if group not in groups:
        raise BrimfulError(f"--group: {group!r} does not exist; {listed('groups', groups)}")
