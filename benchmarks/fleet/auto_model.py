"""What rules of ``auto_model`` cost and bring: short simple requests, and long hard ones.

``python -m benchmarks.fleet.auto_model`` prints the table of docs/auto-model.md. The rules are the
ingress' own (``serve_app.auto_model``). Each model is a fleet of its own, in virtual time: what one
of its replicas carries of the requests that it gets is searched, and a day of a real service is
provided for by that, step by step.
"""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from serve_app.auto_model import AutoModel, RequestFacts, Rule, choose
from simulator.fleet import fluid
from simulator.fleet.days import find_days
from simulator.fleet.outcome import SHARE, inside_sla
from simulator.fleet.simulate import Ground
from simulator.fleet.state import make_fleet, occupy
from simulator.fleet.traffic import Requests
from simulator.workloads.lengths import Floats

SMALL, BIG = "small", "big"
PROFILES = {SMALL: "h100-llama-8b-vllm", BIG: "h100-Llama-2-70b-hf-tp4"}
CARDS = {SMALL: 1, BIG: 4}  # of one replica, and so its price
SLA = Sla(itl_ms=100, ttft_ms=2000)
PEAK_PER_S, POOL = 30.0, 20_000
TRIAL_REPLICAS, TRIAL_S, HALVINGS, LOADED = 4, 900.0, 6, 0.8
# Share of hard requests; tokens in and out, means of lognormals.
HARD, LENGTHS = 0.3, {False: (300, 120), True: (2500, 400)}
CV, LONGEST = 0.9, (8_000, 2_000)
TOOLS = {False: 0.05, True: 0.6}  # share that offers tools
ESTIMATE_CV = 0.15  # of the ingress' count of a prompt's tokens
RULES: dict[str, tuple[str, tuple[Rule, ...]]] = {
    "none, all to the big one": (BIG, ()),
    "`prompt_tokens: 500`": (SMALL, (Rule(model=BIG, prompt_tokens=500),)),
    "`prompt_tokens: 1000`": (SMALL, (Rule(model=BIG, prompt_tokens=1000),)),
    "`prompt_tokens: 2000`": (SMALL, (Rule(model=BIG, prompt_tokens=2000),)),
    "`tools: true`": (SMALL, (Rule(model=BIG, tools=True),)),
    "`prompt_tokens: 1000`, else `tools: true`": (
        SMALL,
        (Rule(model=BIG, prompt_tokens=1000), Rule(model=BIG, tools=True)),
    ),
    "none, all to the small one": (SMALL, ()),
}


class Asked(NamedTuple):
    """Requests without their arrivals: tokens, whether they are hard, and what rules look at."""

    tokens: tuple[np.ndarray, np.ndarray]
    hard: np.ndarray
    facts: list[RequestFacts]


def asked(rng: np.random.Generator) -> Asked:
    """A pool of them."""
    hard = rng.random(POOL) < HARD
    inputs, outputs = _lengths(rng, hard, 0), _lengths(rng, hard, 1)
    tools = rng.random(POOL) < np.where(hard, TOOLS[True], TOOLS[False])
    guessed = inputs * rng.normal(1.0, ESTIMATE_CV, POOL).clip(0.3)
    facts = [RequestFacts(int(n), bool(offers)) for n, offers in zip(guessed, tools, strict=True)]
    return Asked((inputs, outputs), hard, facts)


def _lengths(rng: np.random.Generator, hard: np.ndarray, column: int) -> np.ndarray:
    mean = np.where(hard, LENGTHS[True][column], LENGTHS[False][column])
    sigma = np.sqrt(np.log(1 + CV**2))
    drawn = mean * rng.lognormal(-(sigma**2) / 2, sigma, len(hard))
    return np.asarray(drawn.clip(2, LONGEST[column]).astype(np.int64))


class Served(NamedTuple):
    """Which of the pool were asked for, their times to first token, and the share in the SLA."""

    taken: np.ndarray
    ttft_s: Floats
    share: float


def served(of: Asked, numbers: np.ndarray, model: str, rate_per_s: float, seed: int) -> Served:
    """Some of the pool on a few replicas of a model, by a Poisson process."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(rate_per_s * TRIAL_REPLICAS * TRIAL_S)
    taken = rng.choice(numbers, n)
    requests = Requests(
        np.sort(rng.uniform(0, TRIAL_S, n)), of.tokens[0][taken], of.tokens[1][taken]
    )
    ground = Ground(load_profile(PROFILES[model]), SLA, seed=seed)
    engine = ground.engine(requests)
    fleet = make_fleet(requests, TRIAL_REPLICAS, engine, seed)
    for slot in range(TRIAL_REPLICAS):
        occupy(fleet, slot, 0.0)
    fluid.run_until(fleet, engine, 2 * TRIAL_S)
    met = inside_sla(requests.arrival_s, fleet.first_s, fleet.end_s, requests.output, SLA)
    return Served(taken, fleet.first_s - requests.arrival_s, float(met.mean()))


def carried_per_s(of: Asked, numbers: np.ndarray, model: str, seed: int) -> float:
    """Requests/s of one replica with ``SHARE`` of them inside the SLA."""
    low, high = 0.0, 0.5
    while served(of, numbers, model, high, seed).share >= SHARE:
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        inside = served(of, numbers, model, middle, seed).share >= SHARE
        low, high = (middle, high) if inside else (low, middle)
    return low


def row(told: str, of: Asked, seed: int) -> tuple[list[str], float]:
    """One rule's line without its cost beside the first one, and that cost in card-hours."""
    default, rules = RULES[told]
    auto = AutoModel(default=default, rules=rules)
    to_big = np.array([choose(auto, facts) == BIG for facts in of.facts])
    (day,) = find_days(["day-1"], "azure-2023-conversation", 1.0)
    per_s = np.array(day.rates.rate_per_s) * PEAK_PER_S
    hours = dict.fromkeys(CARDS, 0.0)
    ttft_s: dict[bool, list[Floats]] = {False: [], True: []}
    for model, numbers in (
        (SMALL, np.flatnonzero(~to_big)),
        (BIG, np.flatnonzero(to_big)),
    ):
        if not len(numbers):
            continue
        capacity = carried_per_s(of, numbers, model, seed)
        replicas = np.ceil(per_s * len(numbers) / POOL / (LOADED * capacity)).clip(1)
        hours[model] = float(replicas.mean()) * 24 * CARDS[model]
        usual = served(of, numbers, model, LOADED * capacity, seed + 1)
        # A trial has as many of each model, whatever its share: weigh it by that.
        n = int(len(numbers) / POOL * 10_000)
        drawn = np.random.default_rng(seed).choice(len(usual.taken), n)
        for hard, into in ttft_s.items():
            into.append(usual.ttft_s[drawn][of.hard[usual.taken[drawn]] == hard])
    cells = [told, f"{to_big.mean():.0%}", f"{(~to_big[of.hard]).mean():.0%}"]
    cells.append(f"{hours[SMALL]:.0f} + {hours[BIG]:.0f}")
    cells += [_spread(np.concatenate(ttft_s[hard])) for hard in (False, True)]
    return cells, sum(hours.values())


def _spread(ttft_s: Floats) -> str:
    p50, p99 = np.quantile(np.nan_to_num(ttft_s, nan=np.inf), (0.5, 0.99))
    return f"{p50:.2f}, {p99:.2f}"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    seed: int = parser.parse_args(argv).seed
    of, first = asked(np.random.default_rng(seed)), 0.0
    print(
        "| rules | to the big one | hard ones at the small | card-hours, small + big | cost"
        " | TTFT p50, p99 s: simple | hard |\n| --- |" + " ---: |" * 6
    )
    for told in RULES:
        cells, cost = row(told, of, seed)
        first = first or cost
        cells.insert(4, f"{cost / first:.2f}")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
