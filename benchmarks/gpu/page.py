"""docs/results/gpu.md: what ``python -m benchmarks.gpu`` has found on a card.

    python -m benchmarks.gpu.page OUT [--profile FILE:NAME]

Each row is replayed on the card's own profile, or another of it, with arrivals of its own. Where
OUT has a ``stack.json`` of ``benchmarks.gpu.stack``, what clients of the whole stack saw is there
as well.
"""

import argparse
import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.gpu.figures import Figures, figures_of
from benchmarks.gpu.kept import read
from benchmarks.gpu.tuning import WORKLOADS, label_of
from benchmarks.live.served import Served
from benchmarks.report.document import PAGES, markdown_table, write_page
from benchmarks.report.rows import shown
from controller.config import Sla
from replicas.profiles.profile import StepProfile
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.virtual.plan import EngineOptions, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_traffic

KEY = re.compile(r"(?P<row>.+_(?P<itl>[\d.]+)ms_[\d.]+)_(?P<policy>[a-z]+-?\d*)_(?P<number>\d+)")
SKIP_FRAC = 0.25  # of a run's arrivals, which fill the engine
SEED = 7
HEAD = ("row", "policy", "late %", "p99 ITL ms", "TTFT p50 ms", "TTFT p99 ms", "tokens/s", "J s")


@dataclass(frozen=True, slots=True)
class Arm:
    """A policy on a row: its runs on the card, with ``seconds`` of arrivals each."""

    row: str
    policy: str
    itl_ms: float
    rate_per_s: float
    seconds: float
    runs: tuple[Figures, ...]


def arms(out: Path) -> list[Arm]:
    """Those of the rates that were fixed beforehand."""
    found: dict[tuple[str, str], Arm] = {}
    for key, (rate_per_s, served, _) in read(out).items():
        if (match := KEY.fullmatch(key)) is None:
            continue
        row, policy, itl_ms = match["row"], match["policy"], float(match["itl"])
        seconds = float(served.arrival_s.max())
        with suppress(ValueError):  # cut off: the log of the run says so
            figures = figures_of(served, itl_ms / 1000, 99.0, SKIP_FRAC * seconds, seconds)
            before = found.get((row, policy), Arm(row, policy, itl_ms, rate_per_s, seconds, ()))
            found[row, policy] = replace(before, runs=(*before.runs, figures))
    return list(found.values())


def replayed(arm: Arm, profile: StepProfile) -> Figures:
    """The same policy at the same rate on the card's profile, with the code of now."""
    workload = next(one for one in WORKLOADS if arm.row.startswith(label_of(one)))
    tokens = int(arm.policy.partition("-")[2] or profile.max_num_batched_tokens)
    options = EngineOptions(
        max_num_seqs=min(profile.max_num_seqs, tokens),
        max_num_batched_tokens=tokens,
        async_scheduling=True,
    )
    spec = arm.policy if arm.policy == "adaptive" else "static"
    sla = Sla(itl_ms=arm.itl_ms)
    seconds = 2 * arm.seconds  # of which the first half is there to learn from
    drawn = draw_traffic(load_workload(workload), math.ceil(arm.rate_per_s * seconds), None, SEED)
    requests = drawn.at(arm.rate_per_s)
    trace = replay(requests, parse_policy(spec, sla, options), Ground(profile))
    arrival_s = np.array([o.request.arrival_s for o in trace.outcomes])
    served = Served(
        arrival_s,
        np.array([o.first_token_s for o in trace.outcomes], dtype=float),
        np.array([o.finished_s for o in trace.outcomes], dtype=float),
        np.array([o.tokens for o in trace.outcomes]),
        trace.gaps.length_s,
        trace.gaps.end_s,
        trace.gaps.request,
        trace.end_s,
    )
    skip_s = (1 + SKIP_FRAC) * arm.seconds
    return figures_of(served, arm.itl_ms / 1000, 99.0, skip_s, seconds)


def write(out: Path, folder: Path = PAGES, spec: str | None = None) -> None:
    """The page and its picture."""
    profile = load_profile(spec or str(out / "card.json"))
    card = load_profile(str(out / "card.json"))
    lines = []
    found = [one for one in arms(out) if one.policy != "paper"]
    for arm in tqdm(found, desc="replays"):
        lines += [_line(arm.row, f"{arm.policy}, card", arm.runs)]
        lines += [_line("", "replay", (replayed(arm, profile),))]
    rows = [
        [f"`{row['id']}`", f"{shown(row['value'])} {row['unit']}", str(row["target"] or "")]
        for row in json.loads((out / "rows.json").read_text())
        if KEY.match(row["id"]) is None and "_warm_" not in row["id"]
    ]
    plot(out, folder / "gpu.png")
    parts = [
        "# On a card",
        f"{card.source}; `python -m benchmarks.gpu`, page by `benchmarks.gpu.page`. Of the"
        f" arrivals of each run ({max((one.seconds for one in found), default=0):.0f} s) the first"
        " quarter does not count; where there are several runs, their mean. Replays are on the"
        f" profile `{profile.name}`, with the code of the page's commit, after as long a"
        " time to learn from.",
        markdown_table(HEAD, lines),
        "![Steps on the card](gpu.png)",
        markdown_table(("figure", "value", "target"), rows),
        *_stack(out / "stack.json"),
    ]
    write_page("gpu", "\n\n".join(parts), folder)


STACK = re.compile(r"stack_(?P<run>.+)_(?P<rate>[\d.]+)_(?P<figure>\D+[a-z0-9_]*)")
STACK_HEAD = {
    "late": "late %",
    "itl_p50": "ITL p50 ms",
    "itl_p99": "p99",
    "ttft_p50": "TTFT p50 ms",
    "ttft_p99": "p99",
    "tokens_per_s": "tokens/s",
    "tokens_per_chunk": "tokens per chunk",
    "failed": "failed",
    "client_late_p99": "client late, p99 ms",
}


def _stack(path: Path) -> list[str]:
    """What clients saw of the whole stack, run by run."""
    if not path.exists():
        return []
    runs: dict[tuple[str, str], dict[str, str]] = {}
    for row in json.loads(path.read_text()):
        if match := STACK.fullmatch(row["id"]):
            figures = runs.setdefault((match["rate"], match["run"]), {})
            figures[match["figure"]] = shown(row["value"])
    lines = [
        [rate, run, *(figures.get(one, "") for one in STACK_HEAD)]
        for (rate, run), figures in runs.items()
    ]
    return [
        "The whole stack (`python -m benchmarks.gpu.stack`: `serve deploy`, HAProxy, one replica),"
        " by HTTP; each run in the order it was made:",
        markdown_table(("requests/s", "run", *STACK_HEAD.values()), lines),
    ]


def _line(row: str, policy: str, runs: Sequence[Figures]) -> list[str]:
    def mean(values: Sequence[float]) -> str:
        return shown(float(np.mean(values)))

    return [
        f"`{row}`" if row else "",
        policy,
        mean([100 * one.late_frac for one in runs]),
        mean([one.itl_ms[1] for one in runs]),
        mean([1000 * one.ttft_s[1] for one in runs]),
        mean([1000 * one.ttft_s[2] for one in runs]),
        mean([one.tokens_per_s for one in runs]),
        mean([one.j for one in runs]),
    ]


def plot(out: Path, path: Path) -> None:
    """Steps of decodes by their number and context; steps with prompts, and launches, by chunk."""
    import matplotlib.figure  # not before it is asked for: it takes half a second

    cells, alone = json.loads((out / "steps.json").read_text())
    figure = matplotlib.figure.Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    decodes = np.array([c for c in cells if not c[2]])
    order = np.argsort(decodes[:, 0])
    shade = left.scatter(
        decodes[order, 0],
        1000 * decodes[order, 4],
        c=decodes[order, 1] / decodes[order, 0],
        cmap="viridis",
    )
    figure.colorbar(shade, ax=left, label="KV tokens each")
    left.set(xlabel="decodes", ylabel="step, ms", title="Steps of decodes alone")
    for beside in sorted({c[0] for c in cells if c[2]}):
        mixed = np.array([c for c in cells if c[0] == beside and c[2]])
        ordered = mixed[np.argsort(mixed[:, 2])]
        right.plot(ordered[:, 2], 1000 * ordered[:, 4], ".-", label=f"in a row, beside {beside}")
    lone = np.array(alone).reshape(-1, len(cells[0]))
    right.plot(lone[:, 2], 1000 * lone[:, 4], "kx--", label="one alone, few decodes")
    right.set(xlabel="prompt tokens in the step", xscale="log", yscale="log", ylabel="step, ms")
    right.set_title("Steps with prompt tokens")
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--profile", help="for the replays, instead of OUT's card.json")
    args = parser.parse_args()
    write(args.out, spec=args.profile)


if __name__ == "__main__":
    main()
