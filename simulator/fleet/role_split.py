"""How many replicas of a fluid fleet compute prompts for the others: ``controller.roles``.

As the replay's ``Auto`` goes by it (``simulator.replay.steering``): lengths of the requests that
ended last, hysteresis, dwell. A change of role restarts nothing; one that is to compute prompts
decodes what it has, under its ITL.
"""

from collections.abc import Sequence

import numpy as np

from controller.config import Sla
from controller.models.lengths import LengthMoments
from controller.models.step_time import StepModel
from controller.roles import LEAST_ENDED, RoleChooser, Split, Transfer, best_of, splits
from controller.roles import Fleet as Engines
from replicas.engine.seen_lengths import LATEST_KEPT
from simulator.fleet.published import moments
from simulator.fleet.state import MIXED, NOBODY, PREFILL, READY, Engine, Fleet


class RoleSplit:
    """Gives the ready replicas of a fleet their roles.

    Args:
        model: the step-time model that the replicas have learnt.
    """

    def __init__(
        self, fleet: Fleet, engine: Engine, sla: Sla, model: StepModel, transfer: Transfer
    ) -> None:
        self._fleet, self._engine, self._sla = fleet, engine, sla
        self._model, self._transfer = model, transfer
        self._chooser = RoleChooser()
        self._wanted = 0
        self.changes = 0  # of one replica's role

    def look(self, now_s: float) -> None:
        """Decide anew, with what ended lately and who is ready now."""
        fleet = self._fleet
        ready = int((fleet.status == READY).sum())
        if ready < 1:
            return
        done = int(fleet.counts[0])
        last = fleet.done[max(done - ready * LATEST_KEPT, 0) : done]
        if len(last) >= LEAST_ENDED:
            lengths = moments(fleet.input[last], fleet.output[last])
            self._wanted = self._chooser.see(self._found(lengths, ready), now_s)
        self._assign(min(self._wanted, ready - 1))

    def carried_per_s(self, lengths: LengthMoments, replicas: int) -> float:
        """Requests/s of so many with their best split."""
        return best_of(self._found(lengths, replicas)).per_s

    def spare(self) -> Sequence[int]:
        """The roles of which one may go, the first before the others."""
        prefill = len(self._in_role(PREFILL))
        return (PREFILL, MIXED) if prefill > self._wanted else (MIXED, PREFILL)

    def _found(self, lengths: LengthMoments, replicas: int) -> tuple[Split, ...]:
        of = self._engine
        engines = Engines(replicas, of.max_num_seqs, of.max_num_batched_tokens, int(of.kv_tokens))
        return splits(self._model, lengths, engines, self._transfer, self._sla)

    def _in_role(self, role: int) -> np.ndarray:
        fleet = self._fleet
        return np.flatnonzero((fleet.status == READY) & (fleet.role == role))

    def _assign(self, wanted: int) -> None:
        """Whoever has least to lose, as ``simulator.replay.steering`` has it."""
        fleet = self._fleet
        while (now := len(self._in_role(PREFILL))) != wanted:
            source, role = (MIXED, PREFILL) if now < wanted else (PREFILL, MIXED)
            those = self._in_role(source)
            busy = fleet.decodes[those] + fleet.waiting[those] + fleet.promised[those]
            busy = busy + (fleet.prompt[those] != NOBODY)
            fleet.role[those[int(busy.argmin())]] = role
            self.changes += 1
