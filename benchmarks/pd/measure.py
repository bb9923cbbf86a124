"""What is asked of which fleet, and who computes prompts where."""

from dataclasses import dataclass

from controller.config import Sla
from controller.roles import Fleet as Engines
from controller.roles import Split, Transfer, splits
from replicas.profiles.profile_file import load_profile
from simulator.fleet.published import moments
from simulator.fleet.simulate import Ground
from simulator.fleet.traffic import Rates, draw
from simulator.workloads.catalog import load_workload

PROFILE = "paper-fig3"
KV_BYTES = 327_680.0  # of a token: 80 layers, 8 heads of KV, 128 wide, 2 bytes (70B with GQA)
LATENCY_S = 0.005  # the request to read, and a notice that it was
TTFT_MS = 2000.0
AGGREGATED, AUTO = "aggregated", "auto"
DRAWN = Rates(1.0, (5000.0,), (1.0,))  # requests whose lengths the closed form goes by


@dataclass(frozen=True, slots=True)
class PdRow:
    """One row of the table: what is asked of which fleet.

    Args:
        link_gbit_s: of each engine's network card.
    """

    engines: int
    workload: str
    itl_ms: float
    link_gbit_s: float

    @property
    def transfer(self) -> Transfer:
        """How KV gets from engine to engine."""
        return Transfer(KV_BYTES, self.link_gbit_s * 1e9 / 8, LATENCY_S)

    @property
    def sla(self) -> Sla:
        """The agreement of the whole fleet."""
        return Sla(itl_ms=self.itl_ms, ttft_ms=TTFT_MS)


@dataclass(frozen=True, slots=True)
class Task:
    """The capacity of one arm on one draw.

    Args:
        arm: ``aggregated``; ``auto``; ``P:D``: so many engines compute prompts and so many decode.
    """

    row: PdRow
    arm: str
    seed: int
    small: bool = False


def fluid_splits(row: PdRow, seed: int) -> tuple[Split, ...]:
    """What ``controller.roles`` says of the true step times and lengths, no prompt direct."""
    profile = load_profile(PROFILE)
    ground = Ground(profile, row.sla, seed=seed)
    requests = draw(DRAWN, load_workload(row.workload), seed)
    model = ground.model(requests, ground.engine(requests))
    lengths = moments(requests.input, requests.output)
    fleet = Engines(
        row.engines, profile.max_num_seqs, profile.max_num_batched_tokens, profile.kv_tokens
    )
    return splits(model, lengths, fleet, row.transfer, row.sla, direct=False)


def prefill_of(arm: str) -> int:
    """The prefill engines of an arm."""
    prefill, _, decode = arm.partition(":")
    return int(prefill) if decode else 0
