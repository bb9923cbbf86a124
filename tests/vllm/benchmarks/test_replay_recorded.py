"""A replay on recorded steps beside the engine that was recorded, also under another setting."""

import json
from pathlib import Path

import pytest

from controller.config import Sla
from replicas.profiles.disturbances import Disturbances, Pauses, SlowPhases
from replicas.profiles.profile_file import load_profile
from simulator.replay.engine import Ground, replay
from simulator.replay.measure import summarise
from simulator.virtual.plan import engine_of, parse_policy
from simulator.virtual.trace import Trace
from simulator.workloads.catalog import load_workload
from simulator.workloads.traffic import draw_requests

SLA = Sla(itl_ms=50)
FIG3 = load_profile("paper-fig3").with_kv_tokens(40_000)
REQUESTS = draw_requests(load_workload("exponential:257,62"), 600, 4.0, None, 0)
REAL = {
    "nothing": Disturbances(),
    "noise and pauses": Disturbances(0.1, (Pauses(0.05, 0.04),)),
    "slow phases": Disturbances(slow=(SlowPhases(0.2, 1.7, 4.0),)),
    "mixed": Disturbances(0.05, mixed_s=0.006),
}


def served(spec: str, ground: Ground) -> Trace:
    return replay(REQUESTS, parse_policy(spec, SLA, engine_of(ground.profile)), ground)


def recorded(trace: Trace, path: Path) -> Ground:
    """What ``brimful record`` would have written of this run, as a ground."""
    names = "decodes", "kv_tokens", "prefill_tokens", "prefill_context"
    columns = {name: [getattr(step, name) for step in trace.steps] for name in names}
    columns["duration_us"] = [round(step.duration_s * 1e6) for step in trace.steps]
    size = {
        "kv_capacity_tokens": FIG3.kv_tokens,
        "max_num_seqs": FIG3.max_num_seqs,
        "max_num_batched_tokens": FIG3.max_num_batched_tokens,
    }
    entry = {**size, "steps": columns}
    path.write_text(json.dumps({"source": "a replay", "recordings": {"run": entry}}))
    return Ground(load_profile(str(path)), disturbance_seed=3)


@pytest.mark.parametrize("disturbances", REAL.values(), ids=REAL)
def test_the_replay_is_like_the_engine_under_the_setting_recorded_and_under_another(
    disturbances: Disturbances, tmp_path: Path
) -> None:
    real = Ground(FIG3, disturbances, 1)
    other = "static:max_num_seqs=80,max_num_batched_tokens=118"
    engines = {spec: served(spec, real) for spec in ("static", other)}
    replayed = recorded(engines["static"], tmp_path / "run.json")
    for spec, trace in engines.items():
        engine, again = (summarise(spec, t, SLA) for t in (trace, served(spec, replayed)))
        assert again.output_tokens_per_s == pytest.approx(engine.output_tokens_per_s, rel=0.02)
        assert again.itl_ms.p50 == pytest.approx(engine.itl_ms.p50, rel=0.1)
        assert again.itl_ms.p99 == pytest.approx(engine.itl_ms.p99, rel=0.15)
