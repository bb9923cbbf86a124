"""``brimful enforce``: control switched off or on in a running cluster; nothing is restarted.

The switch goes to the batch controllers of all versions that run, since a redeployment may be under
way; replicas take it over with their next report, which then says so.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from controller.errors import BrimfulError
from controller.records import from_wire
from controller.switch import Switch
from serve_app.flag_number import number
from serve_app.options import add_address, add_group, add_json
from serve_app.outcome import Outcome, Refused, Replica, lines_of
from serve_app.snapshot import connect as join_cluster
from serve_app.snapshot import first_line

WAIT_S = 10.0
POLL_S = 0.2
ANSWER_S = 5.0
REFUSED_S = 10.0  # a replica reports every second at least: one refused before that is gone
SETTLED_S = 5.0  # until then a controller that has just started may lack a replica's report

ABOUT = (
    "Switch control off or on while everything runs: nothing is restarted, no request is lost."
    " off: every replica runs at vLLM's own limits and in vLLM's own order; what control would do"
    " is computed, reported and shown all the same. on: as the configuration says"
    " (batching.enforce). The switch holds over a restart of the controller and for replicas that"
    " come later. Waits until the replicas have confirmed it."
)
STATUS = (
    "Exit status: 0 every replica confirmed it; 1 some did not in time, and are named; 2 no such"
    " group, or no controller answered in time."
)

Call = Callable[..., Any]
"""A controller: a method's name and arguments for its answer, or an ``UnansweredError``."""


class UnansweredError(BrimfulError):
    """A controller did not answer; the message is why. It may act on the call all the same."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = ABOUT, STATUS
    parser.add_argument("state", choices=("off", "on"), help="what control is to be from now on")
    add_group(
        parser,
        "of this group alone, by its name in `brimful status`; else of all groups, those that come"
        " later too. Of a switch for a group and one for all, the newer one holds",
    )
    parser.add_argument(
        "--wait",
        type=number("a finite number from 0", 0),
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long replicas have time to confirm (default: {WAIT_S:g})",
    )
    add_json(parser)
    add_address(parser)


def run(args: argparse.Namespace) -> int:
    on = args.state == "on"
    outcome = switch(connect(args.address), enforce=on, group=args.group, wait_s=args.wait)
    if args.json:
        print(json.dumps({**asdict(outcome), "confirmed": outcome.confirmed}))
    else:
        print("\n".join(lines_of(outcome, args.wait)))
    return 0 if outcome.confirmed else 1


def connect(address: str) -> dict[str, Call]:
    """The batch controllers of the cluster at this Ray address, by version.

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
    return {version: _caller(handle) for version, handle in handles.items()}


def _caller(handle: Any) -> Call:
    import ray
    from ray.exceptions import RayError

    def call(method: str, *args: Any) -> Any:
        try:
            return ray.get(getattr(handle, method).remote(*args), timeout=ANSWER_S)
        except AttributeError:
            raise UnansweredError("it is of a version that cannot be switched") from None
        except RayError as error:
            raise UnansweredError(first_line(getattr(error, "cause", None) or error)) from None

    return call


def switch(
    controllers: Mapping[str, Call],
    *,
    enforce: bool,
    group: str | None,
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Switch control in every controller; return when all replicas confirmed, or after ``wait_s``.

    Raises:
        BrimfulError: no controller answers, or none knows the group.
    """
    _check_group(controllers, group)
    until_s = clock() + wait_s
    made: dict[str, Switch] = {}
    seen: dict[tuple[str, str], Replica] = {}
    refused: dict[str, tuple[Refused, ...]] = {}  # by version
    while True:
        unanswered: dict[str, str] = {}
        settled = True
        seen = {key: replace(replica, confirmed=False) for key, replica in seen.items()}
        for version, call in controllers.items():
            try:
                known = _made_known(call, version, made, enforce=enforce, group=group)
            except UnansweredError as error:
                unanswered[version] = str(error)
                continue
            settled = settled and known["up_s"] >= SETTLED_S
            seen |= {(r.group, r.replica): r for r in _replicas(known, made[version])}
            refused[version] = tuple(_refused(known, group))
        untaken = tuple(one for some in refused.values() for one in some)
        for one in untaken:  # it may have been taken before
            seen.pop((one.group, one.replica), None)
        replicas = tuple(seen[key] for key in sorted(seen))
        outcome = Outcome(enforce, group, replicas, unanswered, untaken)
        if outcome.confirmed and settled:
            return outcome
        if clock() >= until_s:
            if not made:
                raise BrimfulError(_nobody_answers(unanswered))
            return outcome
        sleep(POLL_S)


def _made_known(
    call: Call, version: str, made: dict[str, Switch], *, enforce: bool, group: str | None
) -> dict[str, Any]:
    """The controller's state, in which the switch is known.

    One that died before any replica had it does not know it any more; it is switched again.
    """
    for _ in range(2):
        if version not in made:
            made[version] = from_wire(Switch, call("switch", enforce, group))
        known: dict[str, Any] = call("switches")
        scopes = (None,) if group is None else (None, group)
        epochs_ms = (one["epoch_ms"] for one in known["switches"] if one["group"] in scopes)
        if max(epochs_ms, default=0) >= made[version].epoch_ms:
            return known
        del made[version]
    raise UnansweredError("it does not keep the switch")


def _replicas(known: dict[str, Any], made: Switch) -> Iterator[Replica]:
    """Those that the switch is for."""
    for one in known["replicas"]:
        if made.group in (None, one["group"]):
            yield Replica(
                group=one["group"],
                replica=one["replica"],
                confirmed=one["epoch_ms"] >= made.epoch_ms,
                enforced=one["enforced"],
                configured=one["configured"],
                reported_s_ago=round(one["age_s"], 1),
            )


def _refused(known: dict[str, Any], group: str | None) -> Iterator[Refused]:
    """Those whose last report was refused a moment ago; controllers of old versions name none."""
    for one in known.get("refused", ()):
        if group in (None, one["group"]) and one["refused_s_ago"] <= REFUSED_S:
            yield Refused(one["group"], one["replica"], one["reason"])


def _check_group(controllers: Mapping[str, Call], group: str | None) -> None:
    if group is None:
        return
    groups: set[str] = set()
    unanswered: dict[str, str] = {}
    for version, call in controllers.items():
        try:
            known = call("switches")
        except UnansweredError as error:
            unanswered[version] = str(error)
            continue
        listed = (*known["replicas"], *known["switches"], *known.get("refused", ()))
        groups |= {one["group"] for one in listed} - {None}
    if group in groups:
        return
    if len(unanswered) == len(controllers):
        raise BrimfulError(_nobody_answers(unanswered))
    there = f"the groups are: {', '.join(sorted(groups))}" if groups else "no replica is there"
    raise BrimfulError(f"--group: {group!r} does not exist; {there}")


def _nobody_answers(unanswered: Mapping[str, str]) -> str:
    why = "; ".join(f"{version}: {why}" for version, why in unanswered.items())
    return f"no batch controller answers ({why}); `brimful status` shows whether one switched later"
