"""The capacity of a replica of the fluid fleet, by trials."""

from controller.errors import ConfigError
from simulator.fleet.fluid import make_fleet, occupy, run_until
from simulator.fleet.outcome import SHARE, inside_sla
from simulator.fleet.simulate import Scenario
from simulator.fleet.traffic import Rates, draw
from simulator.replay.fluid import highest
from simulator.workloads.traffic import Workload

TRIAL_REPLICAS, TRIAL_S = 10, 1200.0
LEAST_PER_S = 0.05  # least capacity of a replica


def capacity_per_s(workload: Workload, scenario: Scenario) -> float:
    """Requests/s per replica, among ``TRIAL_REPLICAS``, at which ``SHARE`` stays inside the SLA.

    Poisson arrivals; found by bisection, to a percent or two.

    Raises:
        ConfigError: the capacity is below ``LEAST_PER_S``.
    """
    low, high = LEAST_PER_S, 2 * LEAST_PER_S

    def keeps(rate_per_s: float) -> bool:
        return _attained(workload, scenario, rate_per_s) >= SHARE

    if not keeps(low):
        raise ConfigError(
            [
                f"sla: one replica does not keep it at {low:g} requests/s of these lengths for"
                f" {SHARE:.0%} of them: a longer itl_ms or ttft_ms, or another profile"
            ]
        )
    while high < 1e4 and keeps(high):
        low, high = high, 2 * high
    return highest(keeps, low, high, 6)


def _attained(workload: Workload, scenario: Scenario, rate_per_s: float) -> float:
    rate = rate_per_s * TRIAL_REPLICAS
    requests = draw(Rates(TRIAL_S / 2, (rate, rate), (1.0, 1.0)), workload, scenario.seed + 1)
    engine = scenario.engine(requests)
    fleet = make_fleet(requests, TRIAL_REPLICAS, engine, scenario.seed)
    for slot in range(TRIAL_REPLICAS):
        occupy(fleet, slot, 0.0)
    run_until(fleet, engine, 2 * TRIAL_S)
    met = inside_sla(requests.arrival_s, fleet.first_s, fleet.end_s, requests.output, scenario.sla)
    return float(met.mean())
