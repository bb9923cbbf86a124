"""Which engines of a group compute prompts for the others. Pure; time comes in.

Every engine can do both. ``controller.roles`` says how many are to be prefill engines; here it is
said which, and who changes loses least: the emptiest of those that could.
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

# Since the last engine came: two reports of the slowest. A controller that starts anew hears of one
# engine after another, and would decide for those that it knows.
SETTLED_S = 2.0
LOOK_S = 2.0  # between two looks at how many would be best: of 100 engines one takes some 20 ms


class RolePool(Generic[K]):
    """The roles of a group's engines, without those whose replicas are being removed.

    Args:
        prefill: how many are prefill engines to begin with.

    Attributes:
        roles: of each engine.
        wanted: how many are to be prefill engines.
        capacity_per_s: requests/s of each engine, of what all carry together in their roles; None:
            none computes prompts for others, or it is not known.
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
        """Forget all engines but these; one that is new is in the role that it reports."""
        if reports.keys() - self.roles.keys():
            self._joined_s = now_s
        self.roles = {
            key: self.roles.get(key) or report.role or "mixed" for key, report in reports.items()
        }
        # A controller that starts anew finds the roles as they are.
        self._chooser.prefill = max(self.wanted, self._count())

    def see(
        self,
        reports: Mapping[K, ReplicaReport],
        config: BatchingConfig,
        pool: Pool,
        now_s: float,
    ) -> None:
        """Go by the last reports of all engines, after ``keep``; not while some still come.

        Args:
            config: with roles.
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
        # By the lengths that autoscaling goes by: of more requests than those of a change of roles.
        found = splits(model, lengths, fleet, transfer, config.sla, direct=options.direct)
        held = found[min(self.wanted, len(found) - 1)]
        best = best_of(found) if options.prefill == "auto" else held
        if not best.per_s:  # no load keeps the TTFT: by the ITL alone, as without roles
            itl = config.sla.model_copy(update={"ttft_ms": None})
            best = split_of(
                model, lengths, fleet, transfer, itl, best.prefill, direct=options.direct
            )
        self.capacity_per_s = best.per_s / len(reports)

    def _count(self) -> int:
        return sum(role == "prefill" for role in self.roles.values())

    def _assign(self, reports: Mapping[K, ReplicaReport]) -> None:
        """The replica with least to lose: the emptiest batch, or the shortest queue of prompts."""
        wanted = min(self.wanted, max(len(self.roles) - 1, 0))
        while (now := self._count()) != wanted:
            source: Role = "mixed" if now < wanted else "prefill"
            among = [key for key, role in self.roles.items() if role == source]
            emptiest = min(among, key=lambda key: requests_at(reports[key]))
            self.roles[emptiest] = "prefill" if now < wanted else "mixed"


def requests_at(report: ReplicaReport) -> int:
    """What an engine has to end before its change of role is over: prompts that wait, too."""
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
    """What each number of prefill engines would carry; empty if that is not known yet.

    Args:
        mixed: reports of those that decode: a prefill engine's requests end with one token.
        fleet: all of them, of either role.
        model: of a step; None: not known yet.
        direct: as in ``split_of``.
    """
    lengths = sum((one.latest for one in mixed), LengthMoments())
    if sla.itl_s is None or model is None or lengths.n < LEAST_ENDED or not lengths.output:
        return ()
    return splits(model, lengths, fleet, transfer, sla, direct=direct)


def transfer_of(options: RolesOptions, engine: EngineLimits) -> Transfer | None:
    """How KV gets from one of these engines to another; None: its size is not known."""
    if not engine.kv_token_bytes:
        return None
    bytes_per_s = options.link_gbit_s * 1e9 / 8
    return Transfer(engine.kv_token_bytes, bytes_per_s, options.link_latency_ms / 1000)


def _fleet(engines: int, engine: EngineLimits, config: BatchingConfig) -> Fleet:
    most = config.upper_bound(engine.max_num_seqs)
    return Fleet(engines, most, engine.max_num_batched_tokens, engine.kv_tokens)
