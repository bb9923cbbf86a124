"""``--sweep``: static settings on a grid, the control arm at its best."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from controller.config import Sla
from simulator.replay.measure import Summary
from simulator.virtual.plan import EngineOptions, Plan, parse_policy

CAPS = (32, 64, 128, 256, 512, 1024)
CHUNKS = (128, 256, 512, 1024, 2048, 4096, 8192)


def sweep_plans(
    caps: Sequence[int], chunks: Sequence[int], sla: Sla, engine: EngineOptions
) -> Iterator[Plan]:
    """Every cap with every chunk; a chunk below the cap is left out, as vLLM refuses it."""
    for cap in caps:
        for chunk in chunks:
            if chunk >= cap:
                spec = f"static:max_num_seqs={cap},max_num_batched_tokens={chunk}"
                yield replace(parse_policy(spec, sla, engine), swept=True)


def best(summaries: Sequence[Summary]) -> Summary:
    """The best of these: by capacity, else by goodput, else by tokens/s, whichever was measured."""
    return max(summaries, key=merit)


def merit(summary: Summary) -> tuple[float, float]:
    """What a setting is judged by; tokens/s decide between equals."""
    rate = summary.output_tokens_per_s
    if summary.capacity_per_s is not None:
        return summary.capacity_per_s, rate
    return (rate if summary.goodput_per_s is None else summary.goodput_per_s), rate
