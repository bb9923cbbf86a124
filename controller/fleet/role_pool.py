"""Which engines of a group compute prompts for others. Pure; time comes in.

Every engine can do both. ``controller.roles`` decides how many are prefill engines. This module
chooses which: the engine with the fewest requests changes its role.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from controller.config import BatchingConfig, RolesOptions, Sla
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.policies.base import Pool
from controller.records import EngineLimits, ReplicaReport, Role
from controller.roles import (
    LEAST_ENDED,
    Fleet,
    RoleChooser,
    Split,
    Transfer,
    best_of,
    split_of,
    splits,
)

K = TypeVar("K", bound=Hashable)

# Time since the last engine came: two reports of the slowest. A new controller hears of one engine
# after another, and would decide with only some of them.
SETTLED_S = 2.0
LINK_LATENCY_S = 0.001  # before a KV transfer begins
LOOK_S = 2.0  # between two searches for the best number; for 100 engines one takes 20 ms


class RolePool(Generic[K]):
    """The roles of a group's engines; replicas that are being removed are left out.

    Args:
        prefill: initial number of prefill engines.

    Attributes:
        roles: by engine.
        wanted: number of prefill engines to have.
        capacity_per_s: requests/s per engine, for the whole fleet in its roles; None: there is no
            prefill engine, or it is unknown.
    """

    def __init__(self, prefill: int = 0) -> None:
        self.roles: dict[K, Role] = {}
        self.capacity_per_s: float | None = None
        self._joined_s = self._looked_s = float("-inf")
        self._engines = 0
        self._chooser = RoleChooser()
        self._chooser.prefill = prefill

    @property
    def wanted(self) -> int:
        return self._chooser.prefill

    def keep(self, reports: Mapping[K, ReplicaReport], now_s: float) -> None:
        """Forget all other engines; a new one has the role that it reports."""
        if reports.keys() - self.roles.keys():
            self._joined_s = now_s
        self.roles = {
            key: self.roles.get(key) or report.role or "mixed" for key, report in reports.items()
        }
        # A new controller keeps the roles that it finds.
        self._chooser.prefill = max(self.wanted, self._count())

    def see(
        self,
        reports: Mapping[K, ReplicaReport],
        config: BatchingConfig,
        pool: Pool,
        now_s: float,
    ) -> None:
        """Decide by the last reports of all engines, after ``keep``; not while engines still join.

        Args:
            config: a block with roles.
            pool: of all engines together.
        """
        if now_s < self._joined_s + SETTLED_S:
            return
        if config.roles is not None and config.roles.prefill != "auto":
            self._chooser.prefill = config.roles.prefill
        if len(reports) != self._engines or now_s >= self._looked_s + LOOK_S:
            self._engines, self._looked_s = len(reports), now_s
            self._look(reports, config, pool, now_s)
        self._assign(reports)

    def _look(
        self,
        reports: Mapping[K, ReplicaReport],
        config: BatchingConfig,
        pool: Pool,
        now_s: float,
    ) -> None:
        options, model, lengths = config.roles, pool.model, pool.lengths
        assert options is not None
        self.capacity_per_s = None
        mixed = [reports[key] for key, role in self.roles.items() if role == "mixed"]
        transfer = transfer_of(options, mixed[0].engine) if mixed else None
        if transfer is None or model is None:
            return
        fleet = _fleet(len(reports), mixed[0].engine, config)
        if options.prefill == "auto":
            found = carried(mixed, fleet, transfer, config.sla, model, direct=options.direct)
            if found:
                self._chooser.see(found, now_s)
        if config.sla.itl_s is None or not lengths.output or not self.wanted:
            return
        # With the lengths of autoscaling, which include more requests than those for a change of
        # roles.
        found = splits(model, lengths, fleet, transfer, config.sla, direct=options.direct)
        held = found[min(self.wanted, len(found) - 1)]
        best = best_of(found) if options.prefill == "auto" else held
        if not best.per_s:  # no load keeps the TTFT: use the ITL alone, as without roles
            itl = config.sla.model_copy(update={"ttft_ms": None})
            best = split_of(
                model, lengths, fleet, transfer, itl, best.prefill, direct=options.direct
            )
        self.capacity_per_s = best.per_s / len(reports)

    def _count(self) -> int:
        return sum(role == "prefill" for role in self.roles.values())

    def _assign(self, reports: Mapping[K, ReplicaReport]) -> None:
        """Change the role of the engine with the fewest requests."""
        wanted = min(self.wanted, max(len(self.roles) - 1, 0))
        while (now := self._count()) != wanted:
            source: Role = "mixed" if now < wanted else "prefill"
            among = [key for key, role in self.roles.items() if role == source]
            emptiest = min(among, key=lambda key: requests_at(reports[key]))
            self.roles[emptiest] = "prefill" if now < wanted else "mixed"


def requests_at(report: ReplicaReport) -> int:
    """Requests that an engine has to end before its change of role is complete, prompts too."""
    return report.running + report.waiting


def carried(
    mixed: Sequence[ReplicaReport],
    fleet: Fleet,
    transfer: Transfer,
    sla: Sla,
    model: StepModel | None,
    *,
    direct: bool = True,
) -> tuple[Split, ...]:
    """What each number of prefill engines would carry; empty if unknown.

    Args:
        mixed: reports of decoding engines: a prefill engine's requests end with one token.
        fleet: all engines, in either role.
        model: step-time model; None: unknown.
        direct: as in ``split_of``.
    """
    lengths = sum((one.latest for one in mixed), LengthMoments())
    if sla.itl_s is None or model is None or lengths.n < LEAST_ENDED or not lengths.output:
        return ()
    return splits(model, lengths, fleet, transfer, sla, direct=direct)


def transfer_of(options: RolesOptions, engine: EngineLimits) -> Transfer | None:
    """The KV transfer between two of these engines; None: the size of KV is unknown."""
    if not engine.kv_token_bytes:
        return None
    bytes_per_s = options.link_gbit_s * 1e9 / 8
    return Transfer(engine.kv_token_bytes, bytes_per_s, LINK_LATENCY_S)


def _fleet(engines: int, engine: EngineLimits, config: BatchingConfig) -> Fleet:
    most = config.upper_bound(engine.max_num_seqs)
    return Fleet(engines, most, engine.max_num_batched_tokens, engine.kv_tokens)
