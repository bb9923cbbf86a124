"""The class of each request of an engine, if classes differ in their ITL.

A request brings its SLO under ``controller.request_slo.KEY``, written by the replica's admission.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from controller.records import ClassSlo, StepSample, from_wire
from controller.request_slo import KEY, RequestSlo


class ByClass:
    """The requests of one engine by their SLO.

    Args:
        on: whether classes differ in ITL; otherwise nothing is kept.
        default: SLO of a request that brings none.
        may_skip: whether a step may leave decodes out. Speculative tokens would be stale when a
            skipped request is back, and vLLM would start another adapter in its place.

    Attributes:
        decodes: running decodes of each class.
        itl_s: promised ITL of each class, seconds.
    """

    def __init__(self, default: RequestSlo, *, on: bool, may_skip: bool = True) -> None:
        self.on, self._may_skip = on, may_skip
        self._ids = {default: 0}
        self._slos = [default]
        self._slo_id: dict[str, int] = {}  # class index by request id
        # Ended since the last measured step, and before it: steps in flight may contain them.
        self._gone: list[str] = []
        self._long_gone: list[str] = []
        self.decodes: list[int] = []
        self.itl_s = [default.itl_s]
        self._skipped: dict[str, int] = {}  # steps since the last token, by id

    @property
    def slos(self) -> tuple[ClassSlo, ...]:
        """The classes seen so far, by the index of their column; empty if nothing is kept."""
        return tuple(ClassSlo(one.itl_s, one.percentile) for one in self._slos) if self.on else ()

    def come(self, request: Any) -> None:
        """A request has come."""
        if self.on:
            params = request.sampling_params
            wire = ((params and params.extra_args) or {}).get(KEY)
            slo_id = 0
            if isinstance(wire, dict):
                slo = from_wire(RequestSlo, wire)
                slo_id = self._ids.setdefault(slo, len(self._ids))
                if slo_id == len(self._slos):
                    self._slos.append(slo)
                    self.itl_s.append(slo.itl_s)
            self._slo_id[request.request_id] = slo_id

    def gone(self, req_id: str) -> None:
        """A request has ended; its last token is yet to be counted."""
        if self.on:
            self._gone.append(req_id)

    @property
    def ttft_of(self) -> Callable[[str], float] | None:
        """Gives the promised TTFT of a request, seconds, by its id; None: nothing is kept."""
        if not self.on:
            return None
        return lambda req_id: self._slos[self._slo_id.get(req_id, 0)].ttft_s

    def promised_s(self, req_id: str) -> float:
        """The promised ITL of a request, seconds; infinite: none."""
        return self._slos[self._slo_id.get(req_id, 0)].itl_s if self.on else math.inf

    @property
    def loose(self) -> int:
        """Decodes without a promised ITL, which a step may skip."""
        pairs = zip(self.itl_s, self.decodes, strict=False)
        return sum(n for itl_s, n in pairs if itl_s == math.inf) if self._may_skip else 0

    def hurried(self, prefilling: Iterable[Any]) -> bool:
        """Whether any of these prompts is of a class with a promised ITL."""
        return any(self.promised_s(r.request_id) < math.inf for r in prefilling)

    def scheduled(self, ids: Iterable[str], prefilling: Iterable[Any]) -> None:
        """Count the decodes of the next step, after a step that has or skips these requests."""
        self.decodes = self._counted(ids, (r.request_id for r in prefilling))

    def skip(self, running: Sequence[Any], prefilling: Collection[Any], n: int) -> set[Any]:
        """Choose n decodes to skip: without a promised ITL, the newest token first."""
        loose = [
            r for r in running if self.promised_s(r.request_id) == math.inf and r not in prefilling
        ]
        before = self._skipped
        loose.sort(key=lambda r: before.get(r.request_id, 0))
        self._skipped = {r.request_id: before.get(r.request_id, 0) + 1 for r in loose[:n]}
        return set(loose[:n])

    def measured(self, given: Iterable[str], prefilled: Iterable[str]) -> tuple[int, ...]:
        """Decodes of each class in a step.

        Args:
            given: ids of the step's requests.
            prefilled: ids of those in prefill.
        """
        tokens = self._counted(given, prefilled)
        for req_id in self._long_gone:
            self._slo_id.pop(req_id, None)
        self._gone, self._long_gone = [], self._gone
        return tuple(tokens)

    def late(self, sample: StepSample) -> int:
        """How many decodes of a step took longer than promised."""
        pairs = zip(sample.by_class, self._slos, strict=False)
        took_s = sample.duration_s if sample.seen_s is None else sample.seen_s
        return sum(n for n, one in pairs if took_s > one.itl_s)

    def _counted(self, ids: Iterable[str], less: Iterable[str]) -> list[int]:
        counted = Counter(map(self._slo_id.get, ids))
        counted.subtract(map(self._slo_id.get, less))
        return [max(counted[slo_id], 0) for slo_id in range(len(self._slos))]
