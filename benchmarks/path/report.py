"""The figures of ``make bench-path``: ratios paired by round, and the tables behind them."""

from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.path.client import Seen
from benchmarks.path.measure import MAX_TOKENS, Found, Measured
from benchmarks.path.stacks import (
    ADAPTIVE,
    BARE,
    ENGINE,
    IN_PROCESS,
    RAY_DIRECT,
    STACKS,
    STATIC,
)
from benchmarks.report.document import markdown_table
from benchmarks.report.interval import geometric_mean, mean, median_of
from benchmarks.report.rows import Row, Section, shown

STREAMS, TTFT_STREAMS = 64, 32
# id, above, below, the target.
RATIOS = (
    ("adaptive_over_bare_64", ADAPTIVE, BARE, 1.0),
    ("static_over_bare_64", STATIC, BARE, 1.0),
    ("adaptive_over_bare_in_process_64", ADAPTIVE, IN_PROCESS, 0.95),
    ("static_over_bare_in_process_64", STATIC, IN_PROCESS, 0.95),
    ("adaptive_over_ray_direct_64", ADAPTIVE, RAY_DIRECT, 1.1),
    ("static_over_ray_direct_64", STATIC, RAY_DIRECT, 1.1),
    ("adaptive_over_static_64", ADAPTIVE, STATIC, 0.99),
    ("ray_direct_over_bare_64", RAY_DIRECT, BARE, None),
)
TTFT_MS = 10.0


class Loads:
    """What was measured, by server and streams."""

    def __init__(self, loads: Sequence[Measured]) -> None:
        self._loads = loads

    def of(self, stack: str, streams: int) -> list[Measured]:
        """One a round."""
        return [one for one in self._loads if (one.stack, one.streams) == (stack, streams)]

    def pairs(self, above: str, below: str, streams: int) -> list[tuple[Measured, Measured]]:
        """The loads of both in the same round."""
        first, second = (
            {one.round: one for one in self.of(stack, streams)} for stack in (above, below)
        )
        return [(one, second[turn]) for turn, one in first.items() if turn in second]


def section(found: Found, streams: Sequence[int], rounds: int) -> Section:
    """Rows for what was measured of them, and tables."""
    loads = Loads(found.loads)
    rows = [*_ratios(loads), *_latencies(loads)]
    if client := [one.seen.waited_frac for one in found.loads if one.streams == STREAMS]:
        rows.append(
            Row(
                "client_waited_frac_64",
                "share of the time in which the client waited for a core",
                "",
                mean(client),
            )
        )
    measured = {one.stack for one in found.loads}
    names = [stack.name for stack in STACKS if stack.name in measured]
    return Section(
        "path",
        "the cost of the serving path versus bare vLLM",
        _text(streams, rounds),
        tuple(rows),
        (
            _what_each_is(names),
            _client_table(loads, names, streams),
            _cpu_table(loads, names, streams),
            *(f"Broken off: {line}" for line in found.failed),
        ),
        max_tokens=None,
    )


def _ratios(loads: Loads) -> list[Row]:
    rows = []
    for id_, above, below, target in RATIOS:
        if pairs := loads.pairs(above, below, STREAMS):
            ratios = [a.seen.tokens_per_s / b.seen.tokens_per_s for a, b in pairs]
            what = f"tokens/s of {above} over {below}, {STREAMS} streams"
            rows.append(Row(id_, what, "ratio", geometric_mean([ratios]), target))
    return rows


def _latencies(loads: Loads) -> list[Row]:
    rows = []
    for other, target in ((BARE, TTFT_MS), (IN_PROCESS, None)):
        if pairs := loads.pairs(ADAPTIVE, other, TTFT_STREAMS):
            more = [a.seen.ttft_ms[0] - b.seen.ttft_ms[0] for a, b in pairs]
            id_ = f"adaptive_ttft_over_{other.replace('-', '_')}_{TTFT_STREAMS}_ms"
            what = f"median TTFT of adaptive less that of {other}, {TTFT_STREAMS} streams"
            rows.append(Row(id_, what, "ms", median_of(more), at_most=target))
    return rows


def _text(streams: Sequence[int], rounds: int) -> str:
    counts = ", ".join(map(str, streams))
    options = ", ".join(f"{key}={value}" for key, value in ENGINE.items())
    return (
        f"{rounds} rounds of {counts} streams at a time, each of {MAX_TOKENS} tokens after a prompt"
        " of about as many; the servers take turns, in alternating order. A server that waits for"
        " its turn is stopped (SIGSTOP), so each has the machine for itself, with one client"
        " process. All in one session, at niceness 0. Ours has the settings for few cores (decision"
        f" 17), Ray's own its defaults. The tiny model on one thread: `{options}`. Figures are"
        " medians over rounds, ratios of tokens/s geometric means of the rounds' ratios."
    )


def _what_each_is(names: Sequence[str]) -> str:
    rows = [(stack.name, stack.what) for stack in STACKS if stack.name in names]
    return markdown_table(("server", "what it is"), rows)


CLIENT: tuple[tuple[str, Callable[[Seen], float]], ...] = (
    ("tokens/s", lambda seen: seen.tokens_per_s),
    ("TTFT p50, ms", lambda seen: seen.ttft_ms[0]),
    ("TTFT p99, ms", lambda seen: seen.ttft_ms[1]),
    ("ITL p50, ms", lambda seen: seen.itl_ms[0]),
    ("ITL p99, ms", lambda seen: seen.itl_ms[1]),
    ("chunks per token", lambda seen: seen.events / seen.tokens),
    ("client waited, of the time", lambda seen: seen.waited_frac),
    ("client's cores", lambda seen: seen.cpu_s / seen.seconds),
)


def _client_table(loads: Loads, names: Sequence[str], streams: Sequence[int]) -> str:
    lines = []
    for count in streams:
        for name in names:
            if not (found := loads.of(name, count)):
                continue  # the run was broken off before
            figures = [median(figure(one.seen) for one in found) for _, figure in CLIENT]
            lines.append((f"{count}, {name}", *map(shown, figures)))
    return markdown_table(("streams, server", *(name for name, _ in CLIENT)), lines)


def _cpu_table(loads: Loads, names: Sequence[str], streams: Sequence[int]) -> str:
    """CPU seconds per 1,000 tokens of all processes of a server."""
    lines = []
    for name in names:
        spent = [[1000 * m.cpu_s / m.seen.tokens for m in loads.of(name, n)] for n in streams]
        lines.append((name, *(f"{median(of):.3f}" if of else "" for of in spent)))
    head = ("CPU s per 1,000 tokens", *(f"{n} streams" for n in streams))
    return markdown_table(head, lines)
