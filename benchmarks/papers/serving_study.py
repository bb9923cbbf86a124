"""The serving study: 200 requests at batch 16, and what each technique of a server saves."""

from collections.abc import Mapping

import numpy as np

from benchmarks.papers.cases import Case, Result
from benchmarks.report.document import markdown_table
from simulator.virtual.plan import Speculation
from simulator.workloads.requests import Request

N, BATCH, PROMPT, SHARED = 200, 16, 512, 448
ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
DRAFTS = 5
CONTIGUOUS = 1024  # a slot of a server that reserves: the longest answer, 1,000, in whole blocks


def requests() -> tuple[Request, ...]:
    """Prompts of 512 tokens, outputs uniform from 20 to 1,000, all at once."""
    outputs = np.random.default_rng(101).integers(20, 1001, N).tolist()
    return tuple(Request(0.0, PROMPT, output, max_tokens=1000) for output in outputs)


def cases() -> list[Case]:
    """Every replay of this part."""
    served, spec = requests(), f"static:max_num_seqs={BATCH}"
    found = [
        Case(("s", "continuous"), spec, requests=served),
        Case(("s", "request-level"), f"request-level:max_num_seqs={BATCH}", requests=served),
        Case(("s", "reserved"), "reserved", requests=served, kv_tokens=BATCH * 1536),
        Case(("s", "paged"), "adaptive", requests=served, kv_tokens=BATCH * 1536),
        Case(
            ("s", "prefix"),
            f"{spec},enable_prefix_caching=true",
            requests=served,
            shared_prefix=SHARED,
        ),
    ]
    found += [
        Case(
            ("s", f"drafts {acceptance}"),
            spec,
            requests=served,
            speculation=Speculation(tokens=DRAFTS, acceptance=acceptance),
        )
        for acceptance in ACCEPTANCES
    ]
    return found


def text(results: Mapping[tuple[str, ...], Result]) -> str:
    """The page in docs/results."""
    base = results[("s", "continuous")]
    names = ["continuous", "request-level", "reserved", "paged", "prefix"]
    names += [f"drafts {acceptance}" for acceptance in ACCEPTANCES]
    rows = []
    for name in names:
        found = results[("s", name)]
        summary = found.summary
        tokens = sum(r.output_tokens for r in requests())
        rows.append(
            [
                name,
                f"{tokens / summary.steps:.2f}",
                f"{summary.output_tokens_per_s:,.0f}",
                f"{summary.output_tokens_per_s / base.summary.output_tokens_per_s:.2f}x",
                f"{np.median(found.latency_s):.1f}",
                f"{summary.mean_running:.1f}",
                f"{found.prefill_tokens:,}",
            ]
        )
    head = (
        "way",
        "tokens per step",
        "tokens/s",
        "of continuous",
        "median latency, s",
        "mean running",
        "prompt tokens computed",
    )
    outputs = [r.output_tokens for r in requests()]
    waste = 1 - sum(outputs) / _padded(outputs)
    held = PROMPT + np.array(outputs)
    paged = 1 - held.sum() / (np.ceil(held / 16) * 16).sum()
    reserved = 1 - held.sum() / (N * (PROMPT + CONTIGUOUS))
    saved = 1 - results[("s", "prefix")].prefill_tokens / base.prefill_tokens
    return (
        "# The serving study\n\n"
        f"{N} requests of {PROMPT} tokens, outputs uniform from 20 to 1,000, batch {BATCH}, all at"
        " once, profile paper-fig3. `reserved` and `paged` have memory for 16 slots of 1,536"
        " tokens and no cap on the batch.\n\n" + markdown_table(head, rows) + "\n\n"
        f"- Padding: {waste:.0%} of the decode slots of request-level batches compute nothing.\n"
        f"- Memory at a request's end: in blocks of 16 tokens {paged:.1%} is empty, in slots"
        f" reserved for the longest answer {reserved:.0%}.\n"
        f"- A shared prefix of {SHARED} tokens saves {saved:.0%} of the prompt tokens.\n"
        f"- Drafts: {DRAFTS} a step, through vLLM's own path for speculative tokens; a draft is"
        " verified at the price of a prompt token (0.12 ms). With acceptance a, a step"
        " generates"
        " (1 - a^6) / (1 - a) tokens per request on average, but for each answer's last step."
    )


def _padded(outputs: list[int]) -> int:
    batches = [outputs[k : k + BATCH] for k in range(0, len(outputs), BATCH)]
    return sum(len(batch) * max(batch) for batch in batches)
