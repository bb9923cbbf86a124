"""docs/results/elastic-real.md: the simulated fleet beside the real one, on the same requests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.fleet.counts import Counts, apart_s, replica_s
from benchmarks.fleet.deployed import Real
from benchmarks.fleet.trial import (
    DOWNSCALE_DELAY_S,
    LEAST,
    MOST,
    PHASES,
    PROFILE,
    SCALING,
    SLA,
    SLOTS,
    WORKLOAD,
    Starts,
    Trial,
)
from benchmarks.live.client_view import NOISE
from benchmarks.report.document import PAGES, markdown_table
from benchmarks.report.rows import Row, Section, exactly, shown
from serve_app.haproxy import ENVIRONMENT
from simulator.fleet.outcome import Outcome
from simulator.replay.plots import figure, save
from simulator.workloads.lengths import Floats

WITHIN = 0.10
PLOT = "elastic-real.png"
WINDOW_S = 10.0  # of the plot's rates and shares
SHIFTS_S = (-3.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
HARD_STOP_S = float(ENVIRONMENT["RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"])
CUT = (
    "late by more than a minute when they were cut: Ray starts HAProxy anew when replicas come and"
    f" ends the one before it {HARD_STOP_S:g} s later, with what is still under way there"
)


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One of the two runs, in seconds since the first request could come.

    Args:
        target, running: replicas wanted; those that take requests.
        paid_s: replica-seconds of those that start, run or drain.
        inside: of each request, whether it was inside the SLA.
    """

    target: Counts
    running: Counts
    paid_s: float
    inside: NDArray[np.bool_]

    @property
    def attainment(self) -> float:
        return float(self.inside.mean())


def real_side(real: Real, trial: Trial) -> Side:
    """As the client and Ray Serve's status had it."""
    ttft_s = np.array([np.inf if one.ttft_s is None else one.ttft_s for one in real.served])
    itl_s = np.array([one.itl_s for one in real.served])
    whole = np.array([one.whole for one in real.served], dtype=np.bool_)
    sla = trial.sla
    assert sla.ttft_ms is not None and sla.itl_s is not None
    inside = whole & (ttft_s <= sla.ttft_ms / 1000) & (itl_s <= sla.itl_s * (1 + NOISE))
    paid_s = replica_s(real.paid, trial.seconds)
    return Side(real.target, real.running, paid_s, inside)


def simulated_side(outcome: Outcome, starts: Starts, trial: Trial) -> Side:
    """The same of the fleet in virtual time, whose clock begins ``starts.idle_s`` earlier."""

    def counts(numbers: NDArray[np.int64]) -> Counts:
        found = Counts.of_ticks(LEAST, numbers, outcome.tick_s)
        return Counts(found.at_s - starts.idle_s, found.number)

    # Before the first request there is one replica, ready all the time.
    paid_s = outcome.replica_s - LEAST * starts.idle_s
    return Side(counts(outcome.targets), counts(outcome.ready), paid_s, outcome.inside)


def real_page(real: Real, trial: Trial) -> Section:
    """The figures with their targets, and the tables they were made from."""
    starts = real.starts()
    sides = real_side(real, trial), simulated_side(trial.simulated(starts), starts, trial)
    draw(sides, trial, PAGES / PLOT)
    return Section(
        "Elastic, real",
        "the simulated fleet beside the real one",
        _text(real, starts, trial),
        rows(*sides, starts, trial.seconds),
        (_phases(sides, trial), _changes(sides, trial.seconds), _spread(sides[0], starts, trial)),
        PAGES / PLOT,
        max_tokens=None,
    )


def rows(real: Side, simulated: Side, starts: Starts, seconds: float) -> tuple[Row, ...]:
    """Each figure of the real run beside the simulated one."""
    least, most = 1 - WITHIN, 1 + WITHIN
    running = replica_s(real.running, seconds), replica_s(simulated.running, seconds)
    target = replica_s(simulated.target, seconds)
    known: list[tuple[str, str, float, float | None, float | None]] = [
        ("running", "replica-seconds that took requests, over the simulated",
         running[0] / running[1], least, most),
        ("apart", "replicas that take requests: mean difference over their simulated mean",
         apart_s(real.running, simulated.running, seconds) / running[1], None, WITHIN),
        ("target_apart", "replicas wanted: mean difference over their simulated mean",
         apart_s(real.target, simulated.target, seconds) / target, None, WITHIN),
        ("paid", "replica-seconds from the start of each to its end, over the simulated",
         real.paid_s / simulated.paid_s, least, most),
        ("inside", "share of requests inside the SLA, over the simulated",
         real.attainment / simulated.attainment, least, most),
    ]  # fmt: skip
    found = [
        Row(f"elastic_real_{name}", what, "", exactly(float(value)), at_least=low, at_most=high)
        for name, what, value, low, high in known
    ]
    start = Row("elastic_real_start", "a start, mean of this run's", "s", exactly(starts.later_s))
    return (*found, start)


def _text(real: Real, starts: Starts, trial: Trial) -> str:
    phases = ", then ".join(f"{per_s:g}/s for {seconds:g} s" for seconds, per_s in PHASES)
    scaling = ", ".join(f"`{key}: {value:g}`" for key, value in SCALING.items() if key != "start_s")
    waited = "?" if real.waited_frac is None else f"{real.waited_frac:.1%}"
    failed = [one for one in real.served if not one.whole]
    cut = sum(one.total_s > HARD_STOP_S for one in failed)
    late_s = max(one.late_s for one in real.served)
    return (
        f"Emulated replicas of {SLOTS} slots over HTTP: HAProxy, LLMRouter, engines, Governor,"
        " batch controller and Ray Serve's autoscaling with `CapacityPolicy` are real, steps of"
        f" `{PROFILE}` are slept {trial.time_scale:g} times slower; {LEAST} to {MOST} replicas."
        f" {len(real.served)} requests of `{WORKLOAD}` (seed {trial.seed}), Poisson, {phases}."
        f" SLA {trial.sla.ttft_ms:g} ms to the first token and {trial.sla.itl_ms:g} ms between"
        f" tokens on average ({SLA.ttft_ms:g} and {SLA.itl_ms:g} in the profile's time), at the"
        f" client with {NOISE:.0%} more between tokens. The past that the policy looks at is as"
        f" short as the trace: {scaling}, `downscale_delay_s: {DOWNSCALE_DELAY_S:g}`; all else as"
        " shipped, on both sides.\n\n"
        "The simulation is that of `brimful fleet`, on the same requests, with the same"
        " autoscaling configuration, a decision a second. Of the real run it is told how long"
        f" starts took, and nothing else: the first {starts.first_s:.0f} s (asked for before the"
        f" policy first looked, which takes {starts.assumed_s:.0f} s until it has seen another"
        f" one), later ones {starts.later_s:.0f} s on average,"
        " from Ray Serve's target to a running replica, and that the policy had been at work for"
        f" {starts.idle_s:.0f} s by then. The mean was settled on before the first run: three"
        " engines that start at once on these cores take turns, and each start for itself would"
        f" be a fit. The client waited for a core {waited} of the time and sent no request more"
        f" than {late_s * 1000:.0f} ms late; other programs took {real.others_cores:.2f} cores;"
        f" {len(failed)} requests were not served whole"
        f"{f', {cut} of them {CUT}' if cut else ''}."
    )


def _phases(sides: Sequence[Side], trial: Trial) -> str:
    arrival_s = trial.requests().arrival_s
    begin_s, lines = 0.0, []
    for (_, per_s), end_s in zip(PHASES, trial.ends_s, strict=True):
        here = (arrival_s >= begin_s) & (arrival_s < end_s)
        shares = (f"{side.inside[here].mean():.1%}" for side in sides)
        means = (
            shown((replica_s(s.running, end_s) - replica_s(s.running, begin_s)) / (end_s - begin_s))
            for s in sides
        )
        lines.append((f"{begin_s:.0f} to {end_s:.0f} s, {per_s:g}/s", *shares, *means))
        begin_s = end_s
    shares = (f"{side.attainment:.1%}" for side in sides)
    means = (shown(replica_s(side.running, end_s) / end_s) for side in sides)
    lines.append(("all", *shares, *means))
    head = ("", "inside, real", "simulated", "mean replicas, real", "simulated")
    return markdown_table(head, lines)


def _changes(sides: Sequence[Side], until_s: float) -> str:
    lines = []
    for name, side in zip(("real", "simulated"), sides, strict=True):
        for what, counts in (("wanted", side.target), ("running", side.running)):
            changes = "; ".join(map(str, counts.changes(until_s)))
            lines.append((f"{what}, {name}", changes or "no change"))
    return "When the number of replicas changed:\n\n" + markdown_table(("", "changes"), lines)


def _spread(real: Side, starts: Starts, trial: Trial) -> str:
    """How far the simulation is from itself, and from the real run, as its clock begins."""
    lines = []
    for shift_s in SHIFTS_S:
        shifted = replace(starts, idle_s=starts.idle_s + shift_s)
        side = simulated_side(trial.simulated(shifted), shifted, trial)
        mean_s = replica_s(side.running, trial.seconds)
        off = apart_s(real.running, side.running, trial.seconds) / mean_s
        changes = "; ".join(map(str, side.target.changes(trial.seconds)))
        over = real.attainment / side.attainment
        lines.append((f"{shift_s:+g} s", shown(off), shown(over), changes))
    return (
        "The simulation with a policy that had been at work for some seconds more or less before"
        " the first request. In a life of minutes the policy chooses among bases of its forecast"
        " that cost nearly the same, and seconds decide which; that is the simulation's own"
        " spread:\n\n"
    ) + markdown_table(("", "replicas apart", "inside, real over it", "wanted"), lines)


def draw(sides: Sequence[Side], trial: Trial, path: Path) -> None:
    """Requests, replicas and attainment over time, of both.

    Raises:
        ConfigError: matplotlib is not installed, or the file cannot be written.
    """
    drawn, (demand, replicas, attained) = figure(3, path)
    arrival_s = trial.requests().arrival_s
    edges: Floats = np.arange(0.0, trial.seconds + WINDOW_S, WINDOW_S, dtype=np.float64)
    came, _ = np.histogram(arrival_s, edges)
    demand.step(edges[:-1], came / WINDOW_S, "grey", where="post", linewidth=0.9)
    for name, colour, side in zip(("real", "simulated"), ("C0", "C1"), sides, strict=True):
        for what, counts, line in (("running", side.running, "-"), ("wanted", side.target, ":")):
            times = np.concatenate([[0.0], counts.at_s[counts.at_s > 0], [trial.seconds]])
            times = times[times <= trial.seconds]
            replicas.step(
                times, counts.at(times), colour + line, where="post", linewidth=1.1,
                label=f"{what}, {name}",
            )  # fmt: skip
        good, _ = np.histogram(arrival_s[side.inside], edges)
        share = np.divide(good, came, out=np.full(len(came), np.nan), where=came > 0)
        label = f"{name}: {side.attainment:.1%}"
        attained.plot(edges[:-1] + WINDOW_S / 2, share * 100, colour, linewidth=1.1, label=label)
    for axis, label in (
        (demand, "requests/s"),
        (replicas, "replicas"),
        (attained, "inside the SLA, %"),
    ):
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        axis.set_ylim(bottom=0)
    attained.set_xlabel("time, s")
    for axis in (replicas, attained):
        axis.legend(fontsize="small", ncols=2)
    save(drawn, path)
