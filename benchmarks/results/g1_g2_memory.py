"""G1 and G2: offline tokens/s and preemptions where KV memory is what is short.

``benchmarks.contests.offline`` says how. A case in whose draws nothing is random is run once.
"""

from collections.abc import Sequence

from benchmarks.contests.offline import (
    AMPLE,
    CASES,
    PILOT_REQUESTS,
    PROFILE,
    Case,
    Found,
    Task,
    offline,
    seeds_of,
)
from benchmarks.report.bootstrap import geometric_mean, mean
from benchmarks.report.document import markdown_table
from benchmarks.report.rows import Row, Section, shown
from benchmarks.report.seeds import PILOT_SEED
from benchmarks.report.workers import Bench

CAPS = (64, 96, 128, 160, 192)  # vLLM's default, 256, runs with every seed
POLICIES = {
    "adaptive": "adaptive",
    "clairvoyant": "clairvoyant",
    "careful clairvoyant": "clairvoyant-never-preempts",
    "default": "static",
    "watermark": "static:watermark=0.05",
    "algorithm_1": "paper:l0=buffer",
    "live": "paper:memory=live",
}
# None of them has a setting to tune. Of the two that know every length neither is best everywhere.
BEST_OF = ("default", "watermark", "live", "clairvoyant", "careful clairvoyant")
AT_LEAST = 0.995  # of the best of these
SERVERS = ("default", "watermark", "live")  # what knows no more than a server does


def static(cap: int) -> str:
    """vLLM with this cap and nothing else changed."""
    return f"static:max_num_seqs={cap}"


def run(bench: Bench) -> Section:
    """Both parts: they read the same replays."""
    cases = CASES[:1] if bench.small else CASES
    counts = [min(case.requests, 60) if bench.small else case.requests for case in cases]
    sweep = tuple(map(static, CAPS))
    pilots = bench.map(
        offline,
        [
            Task(case, PILOT_SEED, sweep, min(n, PILOT_REQUESTS))
            for case, n in zip(cases, counts, strict=True)
        ],
        "G1 sweep",
    )
    best = [max(sweep, key=lambda spec: pilot[spec][0]) for pilot in pilots]
    tasks = [
        [Task(case, seed, (*POLICIES.values(), kept), n) for seed in seeds_of(case, n, bench.seeds)]
        for case, n, kept in zip(cases, counts, best, strict=True)
    ]
    done = iter(bench.map(offline, [one for of_case in tasks for one in of_case], "G1 replays"))
    by_case = [[next(done) for _ in of_case] for of_case in tasks]
    for found, kept in ((f, k) for fs, k in zip(by_case, best, strict=True) for f in fs):
        found["best static"] = max(found[s] for s in (kept, "static"))
        found["best"] = max(found[POLICIES[name]] for name in BEST_OF)
        found["servers"] = max(found[POLICIES[name]] for name in SERVERS)
    rows = (*_throughput_rows(cases, by_case), *_preemption_rows(cases, by_case))
    return Section(
        "G1",
        "offline throughput and preemptions where KV memory is tight (G1, G2)",
        f"Profile `{PROFILE}`, no SLA, all requests at t = 0, seeds"
        f" {', '.join(map(str, bench.seeds))}; where nothing in the requests is random, one run."
        " Figures are output tokens/s of `adaptive` over those of another policy on the same"
        " requests; over several seeds (and workloads) the geometric mean. Over the best: of"
        " vLLM's default, a watermark of 0.05, the live rule and two that know every output length,"
        " whichever is best on the draw; over the best server: of the first three. Best static"
        " (first six workloads): of max_num_seqs"
        f" {', '.join(map(str, CAPS))} the best on seed {PILOT_SEED} with {PILOT_REQUESTS}"
        " requests, or 256, the default, whichever is better on the seed. The clairvoyant"
        " preempts where that pays, by `adaptive`'s price; the careful one never does."
        " Clients allow more tokens than the answer has (the table"
        " says by which rule), but for the case named exact. Preemptions are for"
        " information: none of them is avoided at any price.",
        rows,
        (_cases(cases, counts), _table(cases, by_case, best)),
    )


def _ratios(found: list[Found], other: str) -> list[float]:
    return [f["adaptive"][0] / f[other][0] for f in found]


def _throughput_rows(cases: tuple[Case, ...], by_case: list[list[Found]]) -> list[Row]:
    rows = []
    for case, found in zip(cases, by_case, strict=True):
        ratio = geometric_mean([_ratios(found, "best")])
        what = f"over the best of the five, {case.name}"
        rows.append(Row(f"g1_best_{case.name}", what, "ratio", ratio, at_least=AT_LEAST))
        servers = geometric_mean([_ratios(found, "servers")])
        what = f"over the best server, {case.name}"
        rows.append(Row(f"g1_servers_{case.name}", what, "ratio", servers))
    ample = [found for case, found in zip(cases, by_case, strict=True) if case in AMPLE]
    for name, other, target in (
        ("best_static", "best static", 1.03),
        ("default", POLICIES["default"], 1.08),
    ):
        ratios = [_ratios(found, other) for found in ample]
        what = f"over {name.replace('_', ' ')}, the first six workloads"
        rows.append(Row(f"g1_{name}", what, "ratio", geometric_mean(ratios), at_least=target))
    return rows


def _preemption_rows(cases: tuple[Case, ...], by_case: list[list[Found]]) -> list[Row]:
    rows = []
    for case, found in zip(cases, by_case, strict=True):
        what = f"preemptions per request, {case.name}"
        own = mean([f["adaptive"][1] for f in found])
        rows.append(Row(f"g2_preemptions_{case.name}", what, "", own))
    return rows


def _cases(cases: tuple[Case, ...], counts: Sequence[int]) -> str:
    lines = [
        (
            c.name,
            ", ".join(f"`{w}`" for w in c.workloads),
            str(n),
            str(c.kv_tokens),
            str(c.max_tokens),
        )
        for c, n in zip(cases, counts, strict=True)
    ]
    head = "case", "requests like", "how many", "KV tokens", "`max_tokens`"
    return markdown_table(head, lines)


def _table(cases: tuple[Case, ...], by_case: list[list[Found]], best: list[str]) -> str:
    lines = []
    for case, found, kept in zip(cases, by_case, best, strict=True):
        for spec in (*POLICIES.values(), kept):
            rate, preemptions = (mean([f[spec][k] for f in found]).value for k in (0, 1))
            over = geometric_mean([_ratios(found, spec)]).value
            lines.append((case.name, f"`{spec}`", shown(rate), shown(over), shown(preemptions)))
    head = "case", "policy", "output tokens/s", "`adaptive` over it", "preemptions per request"
    return markdown_table(head, lines)
