"""How many waiting requests start, as far as KV memory goes: now and as the batch goes on.

``batch_memory`` gives the forecast, ``output_lengths`` what is known of lengths, ``price`` which
requests are worth starting, ``preempted_share`` the margin of the forecast.
"""

from controller.models.arrays import Ints
from controller.models.batch_memory import KvMemory
from controller.models.lookahead import Forecast, SurvivalTable, leading
from controller.models.output_lengths import REFRESH_STEPS, OutputLengths
from controller.models.pace import Remaining
from controller.models.preempted_share import MemoryMargin, worth_of
from controller.models.price import paying
from controller.models.requests import Requests
from controller.models.step_time import StepModel


class MemoryAdmission:
    """Memory's part of ``adaptive``, for one engine.

    Args:
        kv_tokens, block_tokens: KV memory and its unit, tokens; 0: the model keeps none (an encoder
            that embeds or ranks), and nobody has to wait for it.
        epsilon: the share of requests that may be preempted, at most (epsilon_M of the paper);
            None: preempt whenever the expected gain exceeds the cost.
        epsilon_is_per_gap: epsilon is a share of gaps between tokens, of which a long answer has
            more; else of requests.

    Attributes:
        margin: None where the share has no bound.
        most_tokens: KV tokens that one step reads if all requests of the last ``fitting`` call run
            and each has generated min(allowed, ``Survival.longest``) more.
    """

    def __init__(
        self,
        kv_tokens: int,
        block_tokens: int,
        epsilon: float | None,
        *,
        epsilon_is_per_gap: bool = False,
    ) -> None:
        self._epsilon_is_per_gap = epsilon_is_per_gap
        self.margin = None if epsilon is None else MemoryMargin(epsilon)
        self._memory = KvMemory(kv_tokens, block_tokens)
        self.lengths = OutputLengths()
        self._survival_table: SurvivalTable | None = None
        self._step = self.most_tokens = 0

    @property
    def remaining(self) -> Remaining | None:
        """How many tokens requests still generate, by their age; None before it was asked for."""
        known = self.lengths.known
        return None if known is None else known.remaining

    def stepped(self) -> None:
        """A step is done."""
        self._step += 1

    def finished(self, output_tokens: int, *, applied: bool = True) -> None:
        """A request ended by itself after so many tokens.

        Args:
            applied: whether admission went by this; else the end does not move the margin.
        """
        self.lengths.finished(output_tokens)
        if applied and self.margin:
            self.margin.finished(worth_of(output_tokens) if self._epsilon_is_per_gap else 1.0)

    def preempted(self) -> None:
        """A request lost its KV blocks: memory was overcommitted."""
        if self.margin:
            self.margin.preempted(self._step)

    def fitting(
        self,
        running: Requests,
        candidates: Requests,
        kv_used: int,
        model: StepModel,
        not_running: int = 0,
        waiting: Ints | None = None,
    ) -> tuple[int, Forecast | None]:
        """How many of the candidates, in order, start now (``controller.models.price``).

        Args:
            kv_used: tokens of KV memory in use; less than what the requests hold where they share
                prefixes.
            model: what a step takes, and so what an empty slot and a preemption cost.
            not_running: of them, those held by requests that do not run.
            waiting: output tokens of the waiting requests, shape (m,), candidates or not: those of
                preempted ones would count anew each time that they are in sight again. None: those
                of the candidates.

        Returns:
            The count, and the forecast of the running ones with the first k candidates, for each k
            up to the first that does not start, at least. None where memory is so large that
            nothing had to be forecast.
        """
        if waiting is None:
            waiting = candidates.outputs
        longest = self.lengths.survival(self._step, running.outputs, waiting).longest
        most = running.most(longest) + candidates.most(longest)
        self.most_tokens = most + running.shared_tokens + candidates.shared_tokens
        if not self._memory.tokens or self._memory.has_room_for_all(
            running, candidates, most, kv_used, not_running
        ):
            return len(candidates), None
        survival_table = self._table(running, candidates)
        running_only = self._memory.running_only(survival_table, running, kv_used, not_running)
        # The first one often has to wait, and then nothing is asked of the others.
        concentration = survival_table.survival.concentration
        batch = self._memory.with_candidates(running_only, candidates.first(1))
        fitting = paying(batch, self._memory.tokens, len(running), model, concentration)
        if fitting and len(candidates) > 1:
            batch = self._memory.with_candidates(running_only, candidates)
            fitting = paying(
                batch, self._memory.tokens, len(running), model, concentration, first=1
            )
        if self.margin and fitting:
            peaks = batch.together.upper(self.margin.value).max(axis=1) + not_running
            fitting = min(fitting, leading(peaks <= self._memory.tokens))
        return fitting, batch.together

    def forecast(
        self, running: Requests, candidates: Requests, kv_used: int, not_running: int
    ) -> Forecast:
        """The batch with the first k candidates, for each k."""
        survival_table = self._table(running, candidates)
        base = self._memory.running_only(survival_table, running, kv_used, not_running)
        return self._memory.with_candidates(base, candidates).together

    def _table(self, running: Requests, candidates: Requests) -> SurvivalTable:
        """The survival table, made when it is asked for: with memory to spare it never is."""
        # A waiting request may be older than all running ones.
        oldest = int(max(running.outputs.max(initial=0), candidates.outputs.max(initial=0)))
        survival = self.lengths.survival(self._step, running.outputs, candidates.outputs)
        last = self._survival_table
        if last is None or last.survival is not survival or not last.knows(oldest):
            self._survival_table = last = SurvivalTable(survival, oldest + REFRESH_STEPS)
        return last
