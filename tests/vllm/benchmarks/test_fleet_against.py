"""The fluid replica beside the real scheduler and Governor, on the same requests."""

import pytest

from benchmarks.fleet.against import both
from controller.config import Sla
from replicas.profiles.profile_file import load_profile
from simulator.fleet.simulate import Ground
from simulator.workloads.catalog import load_workload


# At all that it carries the fluid has some 5% of the requests just inside that are just outside
# (docs/results/elastic.md).
def test_a_fluid_replica_serves_as_the_real_one_does() -> None:
    ground = Ground(load_profile("paper-fig3"), Sla(itl_ms=100, ttft_ms=2000))
    workload = load_workload("azure-2023-conversation")
    real, fluid = both(workload, 3.5, 400, ground, 3)
    assert fluid.finished_per_s == pytest.approx(real.finished_per_s, rel=0.03)
    assert fluid.present == pytest.approx(real.present, rel=0.05)
    assert fluid.itl_s == pytest.approx(real.itl_s, rel=0.04)
    assert fluid.ttft_s == pytest.approx(real.ttft_s, rel=0.2)
    assert fluid.inside == pytest.approx(real.inside, abs=0.06)
