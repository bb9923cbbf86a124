"""The continuous-batching study: five ways to batch, four spreads of lengths."""

from collections.abc import Mapping
from statistics import median

import numpy as np

from benchmarks.papers.cases import Case, Result
from benchmarks.report.document import PAGES, markdown_table
from simulator.replay.plots import figure, save
from simulator.workloads.requests import Request

CUTS = (32, 128, 512, 1536)
MEAN, PROMPT, N = 128, 512, 1000
# The study ran a 13B model on an A100 of 40 GB, where some 14k tokens of KV memory are left.
PROFILE, KV_TOKENS = "a100-Llama-2-7b-hf-tp1", 14_000
WAYS = (
    ("sequential", "sequential"),
    ("request-level static", "request-level:max_num_seqs=32"),
    ("continuous, reserved", "reserved"),
    ("continuous, paged", "static"),
    ("dynamic (`paper`, live)", "paper:memory=live"),
    ("dynamic (`adaptive`)", "adaptive"),
)
RATES = (1.0, 4.0)
CDF_CUT = 512


def requests(cut: int, rate: float | None, n: int) -> tuple[Request, ...]:
    """Prompts of 512 tokens, outputs exponential with mean 128, cut; Poisson or all at once."""
    rng = np.random.default_rng(101)
    outputs = np.clip(np.ceil(rng.exponential(MEAN, n)), 1, cut).astype(int).tolist()
    arrivals = np.cumsum(rng.exponential(1 / rate, n)).tolist() if rate else [0.0] * n
    return tuple(
        Request(at, PROMPT, output, max_tokens=cut)
        for at, output in zip(arrivals, outputs, strict=True)
    )


def cases() -> list[Case]:
    """Every replay of this part."""
    found = [
        Case(
            ("b", str(cut), spec),
            spec,
            requests=requests(cut, None, N),
            profile=PROFILE,
            kv_tokens=KV_TOKENS,
        )
        for cut in CUTS
        for _, spec in WAYS
    ]
    found += [
        Case(
            ("cdf", str(rate), spec),
            spec,
            requests=requests(CDF_CUT, rate, 400),
            profile=PROFILE,
            kv_tokens=KV_TOKENS,
        )
        for rate in RATES
        for _, spec in WAYS[1:]
    ]
    return found


def text(results: Mapping[tuple[str, ...], Result]) -> str:
    """The page in docs/results; draws the latency CDFs."""
    rows = []
    for title, spec in WAYS:
        cells = [title]
        for cut in CUTS:
            rate = results[("b", str(cut), spec)].summary.output_tokens_per_s
            base = results[("b", str(cut), WAYS[1][1])].summary.output_tokens_per_s
            cells.append(f"{rate:,.0f} ({rate / base:.1f}x)")
        rows.append(cells)
    head = ("way to batch", *(f"outputs up to {cut}" for cut in CUTS))
    return (
        "# The continuous-batching study\n\n"
        f"{N} requests of {PROMPT} tokens at once, outputs exponential with mean {MEAN}, cut;"
        f" tokens/s and multiples of request-level static batching. Profile {PROFILE} with"
        f" {KV_TOKENS:,} tokens of KV memory.\n\n" + markdown_table(head, rows) + "\n\n"
        "The wider the outputs spread, the more of a request-level batch is padding, and the less"
        " fits when memory is reserved for the longest answer. The study's largest multiples come"
        " from comparing with implementations that are slower for other reasons too; here every"
        " way runs on the same step times, so only batching and memory differ.\n\n" + _cdf(results)
    )


def _cdf(results: Mapping[tuple[str, ...], Result]) -> str:
    drawn, axes = figure(len(RATES), PAGES / "latency_cdf.png")
    rows = []
    for axis, rate in zip(axes, RATES, strict=True):
        for title, spec in WAYS[1:]:
            latency_s = sorted(results[("cdf", str(rate), spec)].latency_s)
            share = np.arange(1, len(latency_s) + 1) / len(latency_s)
            axis.plot(latency_s, share, label=title.replace("`", ""))
            rows.append(
                [
                    f"{rate:g}/s, {title}",
                    f"{median(latency_s):.2f}",
                    f"{np.percentile(latency_s, 99):.2f}",
                ]
            )
        axis.set_title(f"{rate:g} requests/s", fontsize="medium")
        axis.set_ylabel("share of requests")
        axis.set_xscale("log")
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize="small")
    axes[-1].set_xlabel("request latency, s")
    save(drawn, PAGES / "latency_cdf.png")
    return (
        f"Latency of 400 requests, outputs up to {CDF_CUT}:\n\n"
        "![latency distributions](latency_cdf.png)\n\n"
        + markdown_table(("rate, way", "p50, s", "p99, s"), rows)
    )
