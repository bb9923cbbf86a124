"""What rules of ``auto_model`` cost and bring on a day of short simple and long hard requests.

``python -m benchmarks.fleet.auto_model`` prints the table of docs/auto-model.md. Each model is a
fleet of its own in virtual time, scaled by the policy of this project; the rules are the ingress'
own (``serve_app.auto_model``).
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from serve_app.auto_model import AutoModel, RequestFacts, Rule, choose
from simulator.fleet.command import quiet
from simulator.fleet.days import find_days
from simulator.fleet.policies import parse_policy
from simulator.fleet.simulate import Ground, simulate
from simulator.fleet.traffic import Requests
from simulator.workloads.lengths import Floats

SMALL, BIG = "small", "big"
PROFILES = {SMALL: "h100-llama-8b-vllm", BIG: "h100-Llama-2-70b-hf-tp4"}
CARDS = {SMALL: 1, BIG: 4}  # of one replica, and so its price
BEGIN = {SMALL: 1, BIG: 4}  # replicas
BOUNDS = {"min_replicas": 1, "max_replicas": 30}
SLA = Sla(itl_ms=100, ttft_ms=2000)
PEAK_PER_S, FASTER = 12.0, 4.0  # the day in six hours
# Of hard requests from a tenth to half over the day; tokens in and out, means of lognormals.
HARD = (0.1, 0.5)
LENGTHS = {False: (300, 120), True: (2500, 400)}
CV, LONGEST = 0.9, (12_000, 2_000)
TOOLS = {False: 0.05, True: 0.6}  # share that offers tools
ESTIMATE_CV = 0.15  # of the ingress' count of a prompt's tokens
RULES: dict[str, tuple[str, tuple[Rule, ...]]] = {
    "all to the big one": (BIG, ()),
    "`prompt_tokens: 1000`": (SMALL, (Rule(model=BIG, prompt_tokens=1000),)),
    "`prompt_tokens: 2000`": (SMALL, (Rule(model=BIG, prompt_tokens=2000),)),
    "`tools: true`": (SMALL, (Rule(model=BIG, tools=True),)),
    "`prompt_tokens: 1000`, `tools: true`": (
        SMALL,
        (Rule(model=BIG, prompt_tokens=1000), Rule(model=BIG, tools=True)),
    ),
    "all to the small one": (SMALL, ()),
}


class Asked(NamedTuple):
    """A day of requests, and what rules and the table know of each."""

    requests: Requests
    hard: np.ndarray
    facts: list[RequestFacts]
    seconds: float


def asked(seed: int) -> Asked:
    """The day's requests."""
    rng = np.random.default_rng(seed)
    (day,) = find_days(["day-1"], "azure-2023-conversation", 1.0)
    rates = replace(day.rates, step_s=day.rates.step_s / FASTER).times(PEAK_PER_S)
    at_s, seconds = rates.arrivals_s(rng), rates.seconds
    low, high = HARD
    share = low + (high - low) * (1 - np.cos(2 * np.pi * at_s / (seconds / 2))) / 2
    hard = rng.random(len(at_s)) < share
    tokens = [_lengths(rng, hard, column) for column in (0, 1)]
    tools = rng.random(len(at_s)) < np.where(hard, TOOLS[True], TOOLS[False])
    guessed = tokens[0] * rng.normal(1.0, ESTIMATE_CV, len(at_s)).clip(0.3)
    facts = [
        RequestFacts(int(guess), bool(offers)) for guess, offers in zip(guessed, tools, strict=True)
    ]
    return Asked(Requests(at_s, tokens[0], tokens[1]), hard, facts, seconds)


def _lengths(rng: np.random.Generator, hard: np.ndarray, column: int) -> np.ndarray:
    mean = np.where(hard, LENGTHS[True][column], LENGTHS[False][column])
    sigma = np.sqrt(np.log(1 + CV**2))
    drawn = mean * rng.lognormal(-(sigma**2) / 2, sigma, len(hard))
    return np.asarray(drawn.clip(2, LONGEST[column]).astype(np.int64))


def row(told: str, of: Asked, seed: int) -> tuple[list[str], float]:
    """One rule's line without its cost beside the first one, and that cost in card-hours."""
    default, rules = RULES[told]
    auto = AutoModel(default=default, rules=rules)
    to_big = np.array([choose(auto, facts) == BIG for facts in of.facts])
    ttft_s, met = np.full(len(to_big), np.inf), np.zeros(len(to_big), dtype=bool)
    cost = {SMALL: 0.0, BIG: 0.0}
    for model, taken in ((SMALL, ~to_big), (BIG, to_big)):
        if not taken.any():
            continue
        ground = Ground(load_profile(PROFILES[model]), SLA, tick_s=10.0, seed=seed)
        policy = parse_policy("brimful", ground, BOUNDS)
        outcome = simulate(
            Requests(*(column[taken] for column in of.requests)),
            policy.autoscaling,
            ground,
            seconds=of.seconds,
            replicas=BEGIN[model],
            reads=policy.reads,
        )
        cost[model] = outcome.replica_hours * CARDS[model]
        ttft_s[taken] = outcome.first_s - outcome.requests.arrival_s
        met[taken] = outcome.inside
    cells = [
        told,
        f"{to_big.mean():.0%}",
        f"{(~to_big[of.hard]).mean():.0%}",
        f"{cost[SMALL]:.0f} + {cost[BIG]:.0f}",
        _spread(ttft_s[~of.hard]),
        _spread(ttft_s[of.hard]),
        f"{met.mean():.1%}",
    ]
    return cells, cost[SMALL] + cost[BIG]


def _spread(ttft_s: Floats) -> str:
    p50, p99 = np.quantile(np.nan_to_num(ttft_s, nan=np.inf), (0.5, 0.99))
    return f"{p50:.2f}, {p99:.2f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    seed: int = parser.parse_args(argv).seed
    quiet()
    of, first = asked(seed), 0.0
    print("| rules | to the big one | hard ones at the small | card-hours, small + big | cost"
          " | TTFT of simple ones p50, p99 s | of hard ones | in SLA |")  # fmt: skip
    print("| --- |" + " ---: |" * 7)
    for told in RULES:
        cells, cost = row(told, of, seed)
        first = first or cost
        cells.insert(4, f"{cost / first:.2f}")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
