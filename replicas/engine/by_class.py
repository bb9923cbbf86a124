"""The SLO of each request of an engine, and which requests a step skips for it.

A request brings its SLO along (``controller.request_slo.KEY``, written by the replica's admission
control). One that is skipped keeps its place among the running ones, its KV memory and its slot;
only vLLM's ``schedule`` does not see it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from controller.models.arrays import Floats, Ints
from controller.policies.class_chunks import SampleByClass
from controller.records import StepLimits, StepSample
from controller.request_slo import KEY, RequestSlo, slo_of
from replicas.engine.in_flight import StepEtas
from replicas.engine.prompt_chunks import as_they_stood

NOBODY = nullcontext()
NEARLY = 1e-6  # seconds by which two sums of the same times may differ


class ByClass:
    """The requests of one engine by their SLO.

    Args:
        on: whether classes differ in their time between tokens; else nothing is kept.
        default: what a request is promised that brings nothing along.

    Attributes:
        slos: all there have been, by their ids; empty where nothing is kept.
    """

    def __init__(self, default: RequestSlo, *, on: bool) -> None:
        self.on = on
        self._ids = {default: 0}
        self.slos = tuple(self._ids) if on else ()
        self._slo_id: dict[str, int] = {}  # of each request here, by its own id
        # Since the last step was measured, and before: steps under way may have them.
        self._gone: list[str] = []
        self._long_gone: list[str] = []
        self._last_s: dict[str, float] = {}  # end of the last step that each was in
        self._skipped: list[Any] = []  # of the step that is scheduled next
        self._ever_skipped: set[str] = set()
        self._deferred_for: Any = None  # the first of the queue, where prompts were deferred

    def come(self, request: Any) -> None:
        """A request has come."""
        if self.on:
            params = request.sampling_params
            wire = ((params and params.extra_args) or {}).get(KEY)
            slo_id = 0
            if isinstance(wire, Mapping):
                slo_id = self._ids.setdefault(slo_of(wire), len(self._ids))
                self.slos = tuple(self._ids)
            self._slo_id[request.request_id] = slo_id

    def lost(self, req_id: str) -> None:
        """A request lost its KV blocks: its next gap is measured by itself."""
        self._last_s.pop(req_id, None)
        self._ever_skipped.discard(req_id)

    def gone(self, req_id: str) -> None:
        """A request is done; its last token is yet to be counted."""
        if self.on:
            self._gone.append(req_id)

    def slo_id(self, req_id: str) -> int:
        """The id of a request's SLO."""
        return self._slo_id.get(req_id, 0)

    def slo_ids(self, requests: Iterable[Any]) -> Ints | None:
        """The id of each request's SLO; None where nothing is kept."""
        if not self.on:
            return None
        return np.array([self.slo_id(r.request_id) for r in requests], dtype=np.int64)

    @property
    def ttft_of(self) -> Callable[[str], float] | None:
        """Gives the TTFT that a request is promised, seconds, by its id; None: nothing is kept."""
        return (lambda req_id: self.slos[self.slo_id(req_id)].ttft_s) if self.on else None

    def waited_s(self, running: Iterable[Any], in_flight: StepEtas, now_s: float) -> Floats:
        """Seconds from the end of the last step that each was in to the next; 0: it was in none.

        That step gave it a token, or a chunk of its prompt. Each of them is looked at: asked only
        where it matters.

        Args:
            in_flight: steps whose output is not back, and when they end.
            now_s: the engine's clock.
        """
        coming: dict[str, float] = {}
        for output, end_s in in_flight:
            now_s = max(now_s, end_s)
            coming.update(dict.fromkeys(output.num_scheduled_tokens, end_s))
        last = self._last_s
        ids = (r.request_id for r in running)
        waited = [now_s - (coming.get(one) or last.get(one, now_s)) for one in ids]
        return np.maximum(np.array(waited, dtype=np.float64), 0.0)

    def skip(self, running: Sequence[Any], limits: StepLimits, waiting: Iterator[Any]) -> None:
        """Skip the requests that the limits name in the step that is scheduled next.

        A prompt that would be deferred only for requests of lower priority is not skipped.

        Args:
            waiting: those that may start; looked at only where prompts are deferred.
        """
        out, first = set(limits.skipped), None
        if limits.deferred:
            others = [r for k, r in enumerate(running) if not r.num_output_tokens and k not in out]
            first = next(waiting, None)
            others += [] if first is None else [first]
            best = min((r.priority for r in others), default=math.inf)
            out -= {k for k in limits.deferred if running[k].priority < best}
        self._skipped = [running[k] for k in sorted(out)]
        self._deferred_for = None if out.isdisjoint(limits.deferred) else first
        self._ever_skipped.update(r.request_id for r in self._skipped)

    def deferred_in_vain(self, waiting: Iterator[Any]) -> bool:
        """Whether prompts were deferred in the last step, and the first of the queue did not start.

        Args:
            waiting: those that may start; looked at only where prompts were deferred.
        """
        return self._deferred_for is not None and next(waiting, None) is self._deferred_for

    def hide_skipped(self, scheduler: Any, cap_name: str) -> AbstractContextManager[None]:
        """While this lasts, vLLM does not see skipped requests; then all stand as they did."""
        if self._skipped:
            return self._hidden(scheduler, cap_name)
        self._deferred_for = None
        return NOBODY

    @contextmanager
    def _hidden(self, scheduler: Any, cap_name: str) -> Iterator[None]:
        out, self._skipped = set(self._skipped), []
        before, cap = list(scheduler.running), getattr(scheduler, cap_name)
        scheduler.running[:] = [r for r in before if r not in out]
        setattr(scheduler, cap_name, max(cap - len(out), 1))
        try:
            yield
        finally:
            scheduler.running.extend(out)
            as_they_stood(scheduler.running, before)
            setattr(scheduler, cap_name, cap)

    def measured(
        self, sample: StepSample, done: Any, prefilled: list[str], now_s: float
    ) -> StepSample:
        """The same step by the SLOs of its decodes.

        Args:
            done: what was scheduled.
            prefilled: ids of those that did not decode in it.
            now_s: when it ended.
        """
        if not self.on:
            return sample
        given = done.num_scheduled_tokens
        # None: they are gone, and were scheduled once too often.
        counted = Counter(map(self._slo_id.get, given))
        unknown = counted[None]
        counted.subtract(map(self._slo_id.get, prefilled))
        tokens = [counted[slo_id] for slo_id in range(len(self.slos))]
        longer: list[tuple[int, float]] = []
        if self._ever_skipped:
            for req_id in (self._ever_skipped & given.keys()).difference(prefilled):
                gap_s = now_s - self._last_s.get(req_id, now_s)
                if gap_s > sample.duration_s + NEARLY:  # else it was in the step before, too
                    longer.append((self.slo_id(req_id), gap_s))
        self._last_s.update(dict.fromkeys(given, now_s))
        if unknown:
            for req_id in given.keys() - self._slo_id.keys():
                del self._last_s[req_id]
        late = sample.late
        if late is None:
            late = self._late(sample.duration_s, tokens, longer)
        self._forget()
        return SampleByClass(
            sample.decodes,
            sample.kv_tokens,
            sample.prefill_tokens,
            sample.prefill_context,
            sample.duration_s,
            late,
            tuple(tokens),
            tuple(sorted(longer)),
            started=sample.started,
        )

    def _late(self, step_s: float, tokens: list[int], longer: list[tuple[int, float]]) -> int:
        itl_s = [one.itl_s for one in self.slos]
        late = sum(n for n, limit_s in zip(tokens, itl_s, strict=True) if step_s > limit_s)
        return late + sum(step_s <= itl_s[k] < gap_s for k, gap_s in longer)

    def _forget(self) -> None:
        for req_id in self._long_gone:
            self._slo_id.pop(req_id, None)
            self._last_s.pop(req_id, None)
            self._ever_skipped.discard(req_id)
        self._gone, self._long_gone = [], self._gone
