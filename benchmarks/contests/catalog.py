"""Every contest of ``make results``, by part and name."""

from dataclasses import replace

from benchmarks.contests.disturbances import DISTURBED, STREAMS, workload_of
from benchmarks.contests.scenarios import (
    AZURE,
    H100,
    H100_MS,
    PAPER,
    PAPER_MS,
    Capacity,
    Classes,
    Contest,
    Disturbance,
    Offline,
    Shifting,
)
from replicas.profiles.profile_file import load_profile, named_profiles
from simulator.workloads.requests import length_stats
from simulator.workloads.traffic import draw_traffic

A100 = "a100-Llama-2-7b-hf-tp1"
CAPACITY = (
    Capacity("257-447", PAPER, "exponential:257,447"),
    Capacity("257-62", PAPER, "exponential:257,62"),
    Capacity("azure", PAPER, AZURE),
    # On measured tables the SLA is 1.85 times the step of one request.
    Capacity("h100-70b", H100, "exponential:257,62", H100_MS, 120.0),
    Capacity(
        "a100-7b", A100, AZURE, round(1.85e3 * load_profile(A100).step_s(1, 500, 0, 0), 1), 120.0
    ),
    Capacity("long-prompts", PAPER, "long-prompts:257,447"),
    # Answers that stop in their middle let an engine take more than the fluid limit for a while.
    Capacity("reasoning", PAPER, "reasoning:257,3000,1.3", top=1.5),
)
OFFLINE = (
    Offline("fixed-128-128", 30_000, ("fixed:128,128",)),
    Offline("fixed-191-382", 60_000, ("fixed:191,382",)),
    Offline("exponential-191-382", 60_000, ("exponential:191,382",)),
    Offline("azure-conversation", 100_000, (AZURE,)),
    Offline("heavy-tail", 50_000, ("lognormal:256,256,1.8",)),
    Offline("shifting", 60_000, ("fixed:128,64", "exponential:191,382", "fixed:256,512", AZURE)),
    Offline("fixed-64-300-6k", 6_000, ("fixed:64,300",), 300, 4096),
    Offline("fixed-191-382-40k", 40_000, ("fixed:191,382",), 400),
    Offline("fixed-128-128-20k", 20_000, ("fixed:128,128",), 400),
    Offline("fixed-191-382-exact", 60_000, ("fixed:191,382",), max_tokens="exact"),
    Offline("reasoning", 150_000, ("reasoning:257,3000,1.3",), 500),
)
CLASSES = (
    Classes("257-62", PAPER, "exponential:257,62"),
    Classes("257-447", PAPER, "exponential:257,447"),
    Classes("h100-70b", H100, "exponential:257,62"),
)
LOADS = (
    Disturbance("257-62@4", PAPER, "fixed:257,62", PAPER_MS, rate_per_s=4.0),
    Disturbance("257-62@7", PAPER, "fixed:257,62", PAPER_MS, rate_per_s=7.0),
    Disturbance("azure@0.45", PAPER, AZURE, PAPER_MS, of_limit=0.45),
    Disturbance("azure@0.75", PAPER, AZURE, PAPER_MS, of_limit=0.75),
    Disturbance("h100@0.45", H100, "exponential:257,62", H100_MS, of_limit=0.45),
    Disturbance("h100@0.75", H100, "exponential:257,62", H100_MS, of_limit=0.75),
)


def recorded() -> tuple[Disturbance, ...]:
    """Recorded profiles, whose steps bring their own disturbances.

    D is three steps of eight decodes, to two digits.
    """
    mean_held = length_stats(draw_traffic(workload_of(STREAMS), 4000, 1.0, 0).requests).mean_held
    found = []
    for name, file in named_profiles().items():
        if name in file.recordings:
            step_ms = load_profile(name).step_s(8, 8 * mean_held, 0, 0) * 1000
            itl_ms = float(f"{3 * step_ms:.2g}")
            found += [
                Disturbance(f"{name}@{x:g} nothing", name, STREAMS, itl_ms, of_limit=x)
                for x in (0.45, 0.75)
            ]
    return tuple(found)


def disturbances() -> tuple[Disturbance, ...]:
    """Every load under every disturbance, and the recorded profiles."""
    loads = (
        replace(load, name=f"{load.name} {one.name}", disturbed=one)
        for load in LOADS
        for one in DISTURBED
    )
    return (*loads, *recorded())


def scenarios() -> dict[str, tuple[Contest, ...]]:
    """All of them, by part."""
    return {
        "capacity": CAPACITY,
        "shifting": (Shifting("phases"),),
        "offline": OFFLINE,
        "classes": CLASSES,
        "disturbed": disturbances(),
    }
