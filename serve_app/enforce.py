"""``brimful enforce``: control switched off or on in a running cluster; nothing is restarted.

The switch goes to the batch controllers of all versions that run, since a redeployment may be under
way; replicas take it over with their next report, which then says so.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from controller.errors import BrimfulError
from controller.records import from_wire
from controller.switch import Switch
from serve_app.options import add_address, add_group
from serve_app.snapshot import connect as join_cluster
from serve_app.snapshot import first_line

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
    "Exit status: 0 if every replica confirmed the switch; 1 if some did not in time (they are"
    " named); 2 if the group does not exist or no controller answered in time."
)

Key = tuple[str, str]  # a replica: its group and its name
Call = Callable[..., Any]
"""A controller: a method's name and arguments for its answer, or an ``UnansweredError``."""


class UnansweredError(BrimfulError):
    """A controller did not answer; the message is why. It may act on the call all the same."""


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
    outcome = switch(connect(args.address), enforce=args.state == "on", group=args.group)
    where = "all groups, later ones too" if args.group is None else args.group
    print(f"Control is {args.state} for {where}.", *outcome.lines(), sep="\n")
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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a switch.

    Args:
        replicas: by replica that it is for: "": it uses this switch or a newer one; else why not.
        unanswered: controllers that were not reached, by version, and why.
    """

    replicas: Mapping[Key, str]
    unanswered: Mapping[str, str]

    @property
    def confirmed(self) -> bool:
        """Whether all replicas of all controllers use it."""
        return not (self.unanswered or any(self.replicas.values()))

    def lines(self) -> Iterator[str]:
        """How many of each group confirmed it, and which did not."""
        if not self.replicas:
            yield "No replica is there now."
        count = Counter(group for group, _ in self.replicas)
        late = {key: why for key, why in self.replicas.items() if why}
        missing = Counter(group for group, _ in late)
        for group, n in sorted(count.items()):
            yield f"  {group}: {n - missing[group]} of {n} replicas confirmed"
        if late:
            yield "Not confirmed; each takes the switch over as soon as it reaches the controller:"
        for (group, replica), why in late.items():
            yield f"  {replica} of {group}: {why}"
        for version, why in self.unanswered.items():
            yield f"Not reached: the batch controller {version} and its replicas ({why})."
        if self.unanswered:
            yield "Run the command again."


def switch(
    controllers: Mapping[str, Call],
    *,
    enforce: bool,
    group: str | None,
    wait_s: float = WAIT_S,
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
    seen: dict[Key, str] = {}
    while True:
        unanswered: dict[str, str] = {}
        settled = True
        seen = dict.fromkeys(seen, "it reports no more")
        for version, call in controllers.items():
            try:
                known = _made_known(call, version, made, enforce=enforce, group=group)
            except UnansweredError as error:
                unanswered[version] = str(error)
                continue
            settled = settled and known["up_s"] >= SETTLED_S
            seen |= _replicas(known, made[version])
        outcome = Outcome({key: seen[key] for key in sorted(seen)}, unanswered)
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

    A controller that died before any replica had the switch has lost it, and is switched again.
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


def _replicas(known: dict[str, Any], made: Switch) -> dict[Key, str]:
    """The replicas that the switch is for: "", or why it does not hold there."""
    found: dict[Key, str] = {}
    for one in known["replicas"]:
        said = f"last report {one['age_s']:.1f} s ago"
        found[one["group"], one["replica"]] = "" if one["epoch_ms"] >= made.epoch_ms else said
    for one in known.get("refused", ()):  # controllers of old versions name none
        if one["refused_s_ago"] <= REFUSED_S:
            said = f"its report is refused, it decides by itself: {one['reason']}"
            found[one["group"], one["replica"]] = said
    return {key: why for key, why in found.items() if made.group in (None, key[0])}


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
