"""An engine without vLLM's scheduler, for long runs: the Governor, a full queue, and step times.

It serves the queue as vLLM does with chunked prefill: every running request decodes, then prompts
take what is left of the step's budget, in order, and new ones start while the cap allows. Memory is
not modelled: it is never what is short.
"""

from collections.abc import Iterator

import numpy as np

from controller.config import BatchingConfig
from controller.models.arrays import Floats, Ints
from controller.records import BatchLimits, EngineLimits, EngineReport, EngineState, StepSample
from replicas.engine.batch_reader import QUEUED, grouped
from replicas.engine.governor import Governor
from replicas.profiles.profile import StepNoise, StepProfile

WAITING = 1000  # the queue's length, always
LONGEST = 16_384  # tokens that any of them may generate
BLOCK = 16


class BareEngine:
    """One replica that is never out of work.

    Args:
        mean_input, mean_output: tokens; whole-numbered exponential both.
    """

    def __init__(
        self,
        config: BatchingConfig,
        profile: StepProfile,
        noise: StepNoise,
        mean_input: float,
        mean_output: float,
        seed: int,
        now_s: float = 0.0,
    ) -> None:
        self.now_s = now_s
        self._profile, self._noise = profile, noise
        self._means = mean_input, mean_output
        self._rng = np.random.default_rng(seed)
        size = EngineLimits(
            profile.max_num_seqs, profile.max_num_batched_tokens, profile.kv_tokens * 100, BLOCK
        )
        self.governor = Governor(config, size, has_controller=True, now_s=now_s)
        # Of each running request: tokens computed, prompt, generated, and what it will generate.
        self._running: Ints = np.zeros((4, 0), dtype=np.int64)
        self._queue = self._draw(WAITING)

    def _draw(self, n: int) -> Ints:
        inputs, outputs = (self._rng.geometric(1 / mean, n) for mean in self._means)
        nothing = np.zeros(n, dtype=np.int64)
        return np.array([nothing, inputs, nothing, outputs], dtype=np.int64)

    @property
    def state(self) -> EngineState:
        """What it holds now."""
        computed, prompt, _, _ = self._running
        decoding = computed >= prompt
        left = zip((prompt - computed)[~decoding], computed[~decoding], strict=True)
        return EngineState(
            len(computed),
            WAITING,
            int(computed.sum()),
            decodes=int(decoding.sum()),
            decode_kv_tokens=int(computed[decoding].sum()),
            prompts=[(int(tokens), int(held)) for tokens, held in left],
        )

    def step(self) -> StepSample:
        """One step; returns what it did."""
        limits = self.governor.before_step(
            self.state, self.now_s, self._first_waiting, self._tables
        )
        computed, prompt, generated, _ = self._running
        before = computed.copy()
        decoding = computed >= prompt
        decodes = int(decoding.sum())
        kv = int(computed[decoding].sum())
        budget = limits.token_budget - decodes
        longest = limits.longest_chunk_tokens or budget
        computed[decoding] += 1
        chunks: list[tuple[int, int]] = []  # tokens, and those computed before
        for index in np.flatnonzero(~decoding):
            chunk = min(budget, int(prompt[index] - computed[index]), longest)
            if chunk <= 0:
                break
            chunks.append((chunk, int(before[index])))
            computed[index] += chunk
            budget -= chunk
        started = self._start(budget, limits.max_running, longest)
        chunks += [(chunk, 0) for chunk, _ in started]
        computed, prompt, generated, _ = self._running
        prefill = sum(chunk for chunk, _ in chunks)
        context = sum(chunk * held + chunk * chunk // 2 for chunk, held in chunks)
        duration_s = self._profile.step_s(decodes, kv, prefill, context) * self._noise.factor()
        self.now_s += duration_s
        generated[computed >= prompt] += 1
        self._end()
        begun = tuple(tokens for _, tokens in started)
        sample = StepSample(decodes, kv, prefill, context, duration_s, started=begun)
        self.governor.after_step(sample, len(chunks))
        return sample

    def _start(self, budget: int, cap: int, longest: int) -> list[tuple[int, int]]:
        """First chunk and whole prompt of each that starts."""
        started: list[tuple[int, int]] = []
        slots = cap - self._running.shape[1]
        while budget > 0 and len(started) < slots:
            prompt = int(self._queue[1, len(started)])
            chunk = min(budget, prompt, longest)
            self._queue[0, len(started)] = chunk
            started.append((chunk, prompt))
            budget -= chunk
        if started:
            n = len(started)
            for prompt in self._queue[1, :n]:
                self.governor.arrived(int(prompt))
            self._running = np.concatenate([self._running, self._queue[:, :n]], axis=1)
            self._queue = np.concatenate([self._queue[:, n:], self._draw(n)], axis=1)
        return started

    def _end(self) -> None:
        _, prompt, generated, length = self._running
        ended = generated >= length
        if ended.any():
            for inputs, outputs in zip(prompt[ended], generated[ended], strict=True):
                self.governor.finished(int(inputs), int(outputs))
            self._running = self._running[:, ~ended]

    def _first_waiting(self, n: int) -> Iterator[tuple[int, int]]:
        return ((prompt, prompt + BLOCK) for prompt in self._queue[1, :n].tolist())

    def _tables(self) -> tuple[Floats, Floats, Ints, tuple[()]]:
        return _table(self._running), _table(self._queue[:, :QUEUED]), self._running[2], ()

    def report(self, replica_id: str, group: str = "group") -> EngineReport:
        """What it tells the controller."""
        return self.governor.report(self.state, self.now_s, replica_id, group, *self._tables())

    def apply(self, limits: BatchLimits) -> None:
        """Take the controller's limits."""
        self.governor.apply(limits, self.now_s)


def _table(requests: Ints) -> Floats:
    _, prompt, generated, _ = requests
    held = prompt + generated + BLOCK
    return grouped(held, generated, LONGEST - generated)
