"""R3-fleet: three classes in a fleet of three engines, gathered by the router.

What R3 leaves out: engines of a fleet help each other, as the router knows each request's class.
"""

from collections.abc import Sequence

from benchmarks.contests import fleets
from benchmarks.contests.classes import GROUNDS, OURS
from benchmarks.contests.fleets import ENGINES, EVEN, GATHERED, SEPARATE, FleetTask
from benchmarks.report.bootstrap import geometric_mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench
from benchmarks.rivals.r3_classes import OVER_FLEETS, OVER_QOSERVE, SETTINGS, tuned_on
from benchmarks.rivals.settings import Settings

Arm = tuple[str, str]  # how requests are routed, and the policy


def run(bench: Bench, names: Sequence[str], settings: Settings) -> Section:
    """QoServe as R3 tunes it, then the capacity of each arm on every seed.

    Args:
        names: of the grounds; none: all of them.
        settings: of earlier searches, where nothing is to be searched.
    """
    grounds = [g for g in GROUNDS if not names or g in names]
    grounds = grounds[:1] if bench.small and not names else grounds
    tuned = tuned_on(bench, grounds, settings)
    arms: dict[str, list[Arm]] = {
        g: [
            (GATHERED, OURS),
            (EVEN, OURS),
            (SEPARATE, OURS),
            (EVEN, tuned[g]),
            (GATHERED, tuned[g]),
        ]
        for g in grounds
    }
    tasks = [
        FleetTask(g, seed, bench.small, spec, routed)
        for g in grounds
        for routed, spec in arms[g]
        for seed in bench.seeds
    ]
    made = bench.map(fleets.measure, tasks, "R3-fleet", fleets.is_ours)
    of = dict(zip(tasks, made, strict=True))

    def per_s(g: str, arm: Arm) -> list[float]:
        routed, spec = arm
        return [of[FleetTask(g, seed, bench.small, spec, routed)] for seed in bench.seeds]

    def row(name: str, what: str, place: int, least: float | None) -> Row:
        ratios = [
            [a / b for a, b in zip(per_s(g, arms[g][0]), per_s(g, arms[g][place]), strict=True)]
            for g in grounds
        ]
        return Row(f"r3_fleet_{name}", what, "ratio", geometric_mean(ratios), at_least=least)

    rows = (
        row("separate", "gathered, over an engine for each class", 2, OVER_FLEETS),
        row("qoserve_even", "gathered, over QoServe evenly spread", 3, None),
        row("even", "gathered, over the same without", 1, None),
        # The router is ours: a rival behind it has all that its own scheduler can win.
        row("qoserve_gathered", "over QoServe gathered by the same router", 4, OVER_QOSERVE),
    )
    lines = [
        (g, routed, f"`{spec}`", ", ".join(map(shown, per_s(g, (routed, spec)))))
        for g in grounds
        for routed, spec in arms[g]
    ]
    head = ("workload", "requests are routed", "policy", "requests/s of an engine, by seed")
    return Section(
        "R3-fleet",
        "three classes in a fleet of three engines",
        _text(bench),
        rows,
        (markdown_table(head, lines),),
    )


def _text(bench: Bench) -> str:
    return (
        f"The classes, workloads and criteria of R3 on a fleet of {ENGINES} engines, whose requests"
        " come as one stream with equal shares of the classes; figures are of one of its engines."
        " `gathered`: the production router with `gather_classes`, which sends gold to the first"
        " engine and the others to the last, as far as nobody waits long for it; its figures of"
        " the engines are half a second old at most, and a quarter more on their way. `even`: the"
        " same router without it, where most room is. `separate`: an engine for each class, on the"
        " same stream. QoServe is spread evenly by the same router, and gathered by it, with the"
        f" setting of {len(SETTINGS)} that is the best on one engine on the draw of seed"
        f" {PILOT_SEED}, as in R3: what gathering wins is the router's, whatever schedules in the"
        " engines. No `batching.sla` is set, so that no cap is published but the engine's own."
        f" Seeds {', '.join(map(str, bench.seeds))}."
    )
