"""What the starts came to: rows with targets, tables."""

from collections.abc import Sequence

from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, exactly, shown
from benchmarks.startup.measure import REPLICAS, Start
from benchmarks.startup.processes import PER_REPLICA, replica_mb

# Of the 106 s that the demo's deployment took with a worker process beside each engine: half of it
# the first time, a third from warm caches.
FIRST_S, SECOND_S = 53.0, 35.0
MEMORY_RATIO = 2 / 3
MEMORY_MB = 1388 * MEMORY_RATIO  # what a replica held then: replica, EngineCore, worker


def section(starts: Sequence[Start]) -> Section:
    """All starts side by side."""
    rows = [*_time_rows(starts), *_memory_rows(starts)]
    tables = [_phases(starts), _replica(starts), _cpu(starts), _memory(starts)]
    if more := [one for one in starts if one.added]:
        rows.append(_added_row(more[-1]))
        tables.append(_added(more[-1]))
    return Section(
        "startup",
        "from `serve deploy` to the first token, and what a replica holds in memory",
        "What `make demo` deploys: two vLLM engines of the tiny model on this machine's cores, each"
        " start on a Ray cluster of its own that is up before. *cold*: bytecode as `make install`"
        " leaves it, files dropped from memory as after a reboot; *warm*: once more right after it;"
        " *no bytecode*: as an installer leaves it that compiles nothing, files dropped. `mp` puts"
        " the model into a worker process beside EngineCore, as Ray Serve LLM starts it on CPU."
        " Memory is USS: what the system would get back if the process ended; MB are MiB.",
        tuple(rows),
        tuple(tables),
        max_tokens=None,
    )


def _name(one: Start) -> str:
    return one.state if one.executor == "in_process" else f"{one.state}, {one.executor}"


def _time_rows(starts: Sequence[Start]) -> list[Row]:
    limits = {"cold": FIRST_S, "warm": SECOND_S}
    return [
        Row(
            f"startup_{_id(one)}_s",
            f"`serve deploy` to first token, {_name(one)}",
            "s",
            exactly(one.total_s),
            at_most=limits.get(_name(one)),
        )
        for one in starts
    ]


def _memory_rows(starts: Sequence[Start]) -> list[Row]:
    by_executor = {one.executor: replica_mb(one.processes, REPLICAS) for one in starts}
    rows = [
        Row(
            f"replica_{executor}_mb",
            f"memory of a replica, {executor}",
            "MB",
            exactly(mb),
            at_most=MEMORY_MB if executor == "in_process" else None,
        )
        for executor, mb in by_executor.items()
    ]
    if {"in_process", "mp"} <= by_executor.keys():
        ratio = exactly(by_executor["in_process"] / by_executor["mp"])
        what = "memory of a replica over that with a worker process"
        rows.append(Row("replica_memory_ratio", what, "ratio", ratio, at_most=MEMORY_RATIO))
    return rows


def _added_row(one: Start) -> Row:
    what = "a replica more in a running fleet: Serve's decision to first token"
    return Row("added_replica_s", what, "s", exactly(sum(one.added.values())))


def _id(one: Start) -> str:
    return _name(one).replace(", ", "_").replace(" ", "_")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _phases(starts: Sequence[Start]) -> str:
    names = list(dict.fromkeys(phase for one in starts for phase in one.phases))
    lines = [("Ray (before it)", *(_seconds(one.ray_s) for one in starts))]
    lines += [(name, *(_seconds(one.phases.get(name)) for one in starts)) for name in names]
    lines.append(("**deploy to first token**", *(_seconds(one.total_s) for one in starts)))
    return markdown_table(("phase, s", *map(_name, starts)), lines)


def _replica(starts: Sequence[Start]) -> str:
    names = list(dict.fromkeys(phase for one in starts for phase in one.replica))
    lines = [(name, *(_seconds(one.replica.get(name)) for one in starts)) for name in names]
    return markdown_table(("of it in the slowest replica, s", *map(_name, starts)), lines)


def _cpu(starts: Sequence[Start]) -> str:
    kinds = list(dict.fromkeys(p.kind for one in starts for p in one.processes))

    def spent(one: Start, kind: str) -> float:
        return sum(p.cpu_s for p in one.processes if p.kind == kind)

    lines = [(kind, *(_seconds(spent(one, kind)) for one in starts)) for kind in kinds]
    total = [sum(p.cpu_s for p in one.processes) for one in starts]
    lines.append(("**all that are left**", *map(_seconds, total)))
    return markdown_table(("CPU, s", *map(_name, starts)), lines)


def _memory(starts: Sequence[Start]) -> str:
    kinds = list(dict.fromkeys(p.kind for one in starts for p in one.processes))

    def held(one: Start, kind: str) -> str:
        each = [p for p in one.processes if p.kind == kind]
        if not each:
            return ""
        uss, pss = sum(p.uss_mb for p in each), sum(p.pss_mb for p in each)
        number = len(each) if kind in PER_REPLICA else 1
        return f"{uss / number:.0f} / {pss / number:.0f}"

    lines = [(kind, *(held(one, kind) for one in starts)) for kind in kinds]
    mb = [f"{replica_mb(one.processes, REPLICAS):.0f}" for one in starts]
    lines.append(("**one replica's (USS)**", *mb))
    everything = [shown(sum(p.pss_mb for p in one.processes)) for one in starts]
    lines.append(("**all of the cluster (PSS)**", *everything))
    return markdown_table(("USS / PSS, MB; of a replica's: each", *map(_name, starts)), lines)


def _added(one: Start) -> str:
    lines = [(phase, _seconds(seconds)) for phase, seconds in one.added.items()]
    lines.append(("**decision to first token**", _seconds(sum(one.added.values()))))
    return markdown_table(("a replica more beside two that are idle", "s"), lines)
