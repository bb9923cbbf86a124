"""The whole stack over HTTP, on an emulated accelerator, beside the replay of the same requests.

HAProxy, router, two replicas, engines, the patched scheduler and the controller are real; steps
take the time of a profile, ``SCALE`` times slower, so that this machine's cores keep up. What is
compared is what a client sees, brought back to the profile's time.
"""

import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
import yaml
from ray.exceptions import RayError
from tqdm import tqdm

from benchmarks.contests.race import highest
from benchmarks.live.client_view import DELAY_S, NOISE, Seen, of_answers, of_trace, together
from benchmarks.live.emulated import emulated_application
from benchmarks.report.bootstrap import Estimate
from benchmarks.report.document import ROOT, markdown_table
from benchmarks.report.rows import Row, Section, exactly, shown
from benchmarks.report.workers import Bench
from benchmarks.results.g4_phases import LOAD, PROFILE, SLA, WORKLOADS, phase
from controller.fleet.actor import find_controller
from replicas.profile_file import load_profile
from serve_app.demo.client import Answer, Ask, send
from serve_app.demo.cluster import LocalCluster, local_cluster
from serve_app.demo.tiny_model import VOCAB
from simulator.replay.engine import Ground, replay
from simulator.replay.fluid import fluid_limit_per_s
from simulator.virtual.plan import engine_of, parse_policy
from simulator.workloads.catalog import load_workload
from simulator.workloads.requests import Request, length_stats
from simulator.workloads.traffic import draw_phases, draw_traffic

SCALE = 4.0
REPLICAS = 2
POLICIES = ("adaptive", "static")
WORKLOAD = "exponential:257,62"
RUN_S, PHASE_S = 60.0, 25.0  # of the profile's time
NEAR = 0.15  # what the stack and the replay may differ by
PORT = 8123
MAX_MODEL_LEN = 17_000  # the longest of the Azure trace
DEPLOY_TIMEOUT_S = 600


def replayed(task: tuple[str, tuple[Request, ...]]) -> Seen:
    """The requests on two replicas in turn, each on its own, at the stack's rate of exchanges."""
    spec, requests = task
    profile = load_profile(PROFILE)
    # An exchange is not slowed by the emulation, so it is as much more frequent there.
    spec = f"{spec}:exchange_hz=4" if spec == "adaptive" else spec
    plan = parse_policy(spec, SLA, engine_of(profile))
    parts = [requests[k::REPLICAS] for k in range(REPLICAS)]
    return together([of_trace(replay(part, plan, Ground(profile))) for part in parts])


def steady(rate_per_s: float, run_s: float, seed: int) -> tuple[Request, ...]:
    """Requests for all replicas; the rate is one replica's."""
    n = max(round(rate_per_s * REPLICAS * run_s), 20)
    traffic = draw_traffic(load_workload(WORKLOAD), n, None, seed)
    return traffic.at(rate_per_s * REPLICAS)


def capacity(task: tuple[str, float, int]) -> float:
    """A replica's capacity in the replay, by what a client sees; requests/s."""
    spec, run_s, seed = task
    profile = load_profile(PROFILE)
    stats = length_stats(draw_traffic(load_workload(WORKLOAD), 5000, None, seed).requests)
    limit = fluid_limit_per_s(profile, stats, SLA.itl_s)

    def holds(rate_per_s: float) -> bool:
        return replayed((spec, steady(rate_per_s, run_s, seed))).holds(SLA)

    return highest(holds, 0.93 * limit, limit / 16, 1.2 * limit)


def phases(phase_s: float, seed: int) -> tuple[Request, ...]:
    """G4's phases, for all replicas."""
    profile = load_profile(PROFILE)
    drawn = [phase(name, profile, LOAD * REPLICAS, phase_s) for name in WORKLOADS]
    return draw_phases(drawn, None, seed)


class Stack:
    """The cluster with an application per policy."""

    def __init__(self, cluster: LocalCluster, policies: Sequence[str]) -> None:
        self._cluster, self._policies = cluster, policies
        self._random = random.Random(0)

    def deploy(self, directory: Path) -> None:
        """Returns when the controller has a report of every replica."""
        config = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "127.0.0.1", "port": PORT},
            "applications": [_application(policy) for policy in self._policies],
        }
        path = directory / "serve.yaml"
        path.write_text(yaml.safe_dump(config))
        self._cluster.deploy(path)
        self._cluster.wait_running(DEPLOY_TIMEOUT_S, lambda state: print(state, file=sys.stderr))
        until_s = time.monotonic() + DEPLOY_TIMEOUT_S
        while _heard() < REPLICAS * len(self._policies):
            if time.monotonic() > until_s:
                raise RuntimeError("the controller got no report of some replica")
            time.sleep(1)

    def serve(self, policy: str, requests: Sequence[Request], what: str) -> Seen:
        """Send the requests as they come; what the client saw."""
        asks = [self._ask(r) for r in requests]
        url = f"http://127.0.0.1:{PORT}/{policy}/v1"
        warm = [Ask(self._ask(r).prompt, 4) for r in requests[:4]]
        with tqdm(total=len(asks), desc=what, file=sys.stderr) as bar:

            def one_done(answer: Answer) -> None:
                bar.update()

            asyncio.run(send(url, policy, warm))
            answers = asyncio.run(send(url, policy, asks, done=one_done))
        bad = [a.error or f"{a.status} {a.text[:200]}" for a in answers if not a.whole]
        if bad:
            raise RuntimeError(f"{len(bad)} of {len(asks)} requests were not served: {bad[0]}")
        return of_answers(asks, answers, SCALE)

    def _ask(self, request: Request) -> Ask:
        prompt = [self._random.randrange(3, VOCAB) for _ in range(request.input_tokens)]
        room = MAX_MODEL_LEN - request.input_tokens  # a server refuses to be asked for more
        allowed = min(request.max_tokens or room, room)
        return Ask(prompt, allowed, request.arrival_s * SCALE, request.output_tokens)


def _heard() -> int:
    with contextlib.suppress(RayError, ValueError):
        groups = ray.get(find_controller().snapshot.remote(), timeout=30)["groups"]
        return sum(len(group["replicas"]) for group in groups.values())
    return 0


def _application(policy: str) -> dict[str, Any]:
    engine = engine_of(load_profile(PROFILE))
    app = emulated_application(
        policy,
        engine={
            "max_num_seqs": engine.max_num_seqs,
            "max_num_batched_tokens": engine.max_num_batched_tokens,
            "max_model_len": MAX_MODEL_LEN,
        },
        deployment={"num_replicas": REPLICAS, "ray_actor_options": {"num_cpus": 0.25}},
        emulate={"profile": PROFILE, "time_scale": SCALE},
        env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"},
        batching={"policy": policy, "sla": {"itl_ms": SLA.itl_ms, "ttft_ms": SLA.ttft_ms}},
    )
    return {**app, "route_prefix": f"/{policy}"}


@contextlib.contextmanager
def stack(policies: Sequence[str] = POLICIES) -> Iterator[Stack]:
    """The deployed stack for a ``with`` block."""
    with tempfile.TemporaryDirectory() as directory, local_cluster(directory=ROOT) as cluster:
        ray.init(address=cluster.gcs_address, log_to_driver=False, logging_level="ERROR")
        try:
            deployed = Stack(cluster, policies)
            deployed.deploy(Path(directory))
            yield deployed
        finally:
            ray.shutdown()


def run(bench: Bench) -> Section:
    """One draw; nothing else should run on this machine."""
    run_s, phase_s = (8.0, 3.0) if bench.small else (RUN_S, PHASE_S)
    seed = bench.seeds[0]
    per_s = bench.map(capacity, [("adaptive", run_s, seed)], "HTTP replay")[0]
    below, above = (steady(per_s * (1 + side * NEAR), run_s, seed) for side in (-1, 1))
    shifting = phases(phase_s, seed)
    cases = [
        ("below", "adaptive", below),
        ("below", "static", below),
        ("above", "adaptive", above),
        ("phases", "adaptive", shifting),
        ("phases", "static", shifting),
    ]
    expected = bench.map(replayed, [(policy, asked) for _, policy, asked in cases], "HTTP replay")
    with stack() as deployed:
        found = [deployed.serve(p, asked, f"HTTP {name}, {p}") for name, p, asked in cases]
    by_case = {(n, p): (f, e) for (n, p, _), f, e in zip(cases, found, expected, strict=True)}
    return _section(per_s, run_s, phase_s, by_case)


Pairs = dict[tuple[str, str], tuple[Seen, Seen]]  # case and policy: the stack's, the replay's


def _section(per_s: float, run_s: float, phase_s: float, pairs: Pairs) -> Section:
    def ratio(id_: str, what: str, stack_: float, replay_: float) -> Row:
        value = exactly(stack_ / replay_) if replay_ else Estimate(np.nan, np.nan, np.nan)
        return Row(id_, f"{what}, stack over replay", "ratio", value, 1 - NEAR, 1 + NEAR)

    rows = []
    for policy in POLICIES:
        seen, expected = (one.later_half() for one in pairs["below", policy])
        what = f"p99 ITL of {policy} at {1 - NEAR:g} of the replay's capacity"
        rows.append(ratio(f"http_itl_{policy}", what, seen.p99_itl_ms, expected.p99_itl_ms))
    verdicts = [pairs[case, "adaptive"][0].holds(SLA) for case in ("below", "above")]
    rows.append(
        Row(
            "http_capacity_g3",
            f"the stack holds at {1 - NEAR:g} of the replay's capacity and not at {1 + NEAR:g}",
            "",
            exactly(float(verdicts == [True, False])),
            at_least=1,
        )
    )
    shares = {p: [one.inside(SLA) for one in pairs["phases", p]] for p in POLICIES}
    for policy, (seen_share, expected_share) in shares.items():
        what = f"G4's share inside, {policy}"
        rows.append(ratio(f"http_inside_{policy}", what, seen_share, expected_share))
    gains = [shares["adaptive"][k] / max(shares["static"][k], 1e-3) for k in (0, 1)]
    rows.append(ratio("http_g4", "G4's adaptive over default", *gains))
    lines = []
    for (case, policy), both in pairs.items():
        for where, one in zip(("stack", "replay"), both, strict=True):
            late = one.later_half()
            figures = late.p99_itl_ms, late.median_ttft_s, one.inside(SLA)
            lines.append((f"{case}, `{policy}`, {where}", *map(shown, figures)))
    return Section(
        "HTTP",
        "the stack over HTTP on an emulated accelerator confirms G3 and G4",
        f"{REPLICAS} replicas behind HAProxy and the router, steps of `{PROFILE}` slept {SCALE:g}"
        " times slower, a streaming client; the replay has the same requests, dealt to two engines"
        f" in turn. Below and above: `{WORKLOAD}` for {run_s:g} s at {1 - NEAR:g} and {1 + NEAR:g}"
        f" of {shown(per_s)} requests/s per replica, the highest rate at which a client of the"
        f" replay has its p99 ITL within {SLA.itl_ms:g} ms and its median TTFT within {DELAY_S:g} s"
        f" in the later half. Phases: G4's, {phase_s:g} s each. One draw; a client's times count as"
        f" within the SLA up to {NOISE:.0%} over it.",
        tuple(rows),
        (
            markdown_table(
                ("run", "p99 ITL, ms (later half)", "median TTFT, s (later half)", "share inside"),
                lines,
            ),
        ),
    )
