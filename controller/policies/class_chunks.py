"""Prefill chunks where classes differ: a step is sized for those that decode in it.

Each SLO (``controller.request_slo``) has a step-time target and a percentile of its own; the
step-time model is the engine's. A step's budget is the smallest target among its decodes; without
one it is unlimited.

Where all decodes together take longer than that (one of 50 ms has come into a batch of 256 without
any), or leave the prompts of stricter classes too little room, requests with time to spare are
skipped in single steps and keep their KV memory: a class of 100 ms decodes in every other step of
50, one without a bound as there is room, and once in ``LONGEST_SKIP_S`` at least. A class that is
promised no time at all, as that of batches, gets what prompts of others leave, and a token in
``UNPROMISED_SKIP_S``. This costs nothing: a token takes the same time in every step. It gains
nothing either but the time of the strict: each step has its fixed part, whoever decodes in it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from controller.capacity import step_limit_s, typical_itl_s
from controller.models.arrays import Bools, Floats, Ints
from controller.models.requests import Requests
from controller.models.step_target import AIM
from controller.policies.chunk import ChunkSizer, GapChunks, StepHistory
from controller.records import StepSample
from controller.request_slo import RequestSlo

LONGEST_SKIP_S = 1.0  # at most, for a class without a time between tokens: it is streamed, too
UNPROMISED_SKIP_S = 5.0  # ... nor to first token: nobody waits for it
# Decodes that take no more than this of what a step's fixed part leaves are all in it: prompts of a
# stricter class have room enough.
FEW_FRAC = 0.5
# A late token of a skipped request raises its class's reserve by 2% of D, to at most half. Every
# token of the class lowers it by 2% x AIM x (1 - percentile / 100), so it holds still where AIM of
# the allowed share is late.
RESERVE_STEP_FRAC, MOST_RESERVE_FRAC = 0.02, 0.5
# Where the strictest is taken to be out of reach, all decode, but in one of so many steps: in a
# batch that is always as large, what a step takes with a few decodes is not known.
PROBE_STEPS = 16
ROUNDING = 1e-9  # by which two ways to add up hundreds of times cannot differ


@dataclass(frozen=True, slots=True)
class SampleByClass(StepSample):
    """A step, by the SLOs of its decodes.

    Args:
        tokens: of decodes, by the id of their SLO.
        longer: of each token of a request that the steps before this one skipped, the id of its SLO
            and the seconds since the token before.
    """

    tokens: tuple[int, ...] = ()
    longer: tuple[tuple[int, float], ...] = ()


class ClassChunks(ChunkSizer):
    """Requests have SLOs of their own: each is held to by ``GapChunks`` of its own.

    Args:
        sla_s: D of the SLA; capacity is reported for the SLO that is nearest to it.
    """

    def __init__(self, sla_s: float, history: StepHistory) -> None:
        super().__init__(history)
        self._sla_s = sla_s
        self._sizers: dict[tuple[float, float], GapChunks] = {}
        self._slos: tuple[RequestSlo, ...] = ()
        self._by_slo: list[GapChunks | None] = []  # of each SLO; None: no time between tokens
        self._reserve_frac: list[float] = []  # of each SLO: share of D that skipping leaves
        self._itl_s: Floats = np.zeros(0)
        self._longest_skip_s: Floats = np.zeros(0)
        self._unpromised: Bools = np.zeros(0, dtype=bool)
        self._binding: GapChunks | None = None
        self._unknown_steps = 0
        self._itl_frac = 1.0

    def know(self, slos: tuple[RequestSlo, ...]) -> None:
        """The SLOs of requests so far, by id; more may come, none goes."""
        for one in slos[len(self._by_slo) :]:
            self._by_slo.append(self._sizer(one) if one.bounded else None)
            self._reserve_frac.append(0.0)
        if len(slos) > len(self._slos):
            self._slos = slos
            self._itl_s = np.array([one.itl_s for one in slos])
            self._unpromised = np.array([one.unpromised for one in slos])
            self._longest_skip_s = np.where(self._unpromised, UNPROMISED_SKIP_S, LONGEST_SKIP_S)

    def _sizer(self, one: RequestSlo) -> GapChunks:
        key = one.itl_s, one.percentile
        if key not in self._sizers:
            self._sizers[key] = GapChunks(*key, self.history)
            self._sizers[key].set_target_frac(self._itl_frac)
            nearest = min(self._sizers, key=lambda key: abs(key[0] - self._sla_s))
            self.target = self._sizers[nearest].target
        return self._sizers[key]

    def set_target_frac(self, itl_frac: float) -> None:
        self._itl_frac = itl_frac
        for sizer in self._sizers.values():
            sizer.set_target_frac(itl_frac)

    def observe(self, sample: StepSample, *, applied: bool = True) -> None:
        predicted = self.history.observe(sample)
        tokens = dict.fromkeys(self._sizers, 0)
        longer: tuple[tuple[int, float], ...] = ()
        if isinstance(sample, SampleByClass):
            longer = sample.longer
            for slo_id, (one, count) in enumerate(zip(self._slos, sample.tokens, strict=False)):
                if one.bounded:
                    tokens[one.itl_s, one.percentile] += count
                    if applied:
                        self._keep(slo_id, -count * AIM * (1 - one.percentile / 100))
        for key, sizer in self._sizers.items():
            sizer.judge(sample, predicted, tokens[key], applied=applied)
        for slo_id, gap_s in longer if applied else ():
            self._came_back(slo_id, gap_s, sample.duration_s)

    def _came_back(self, slo_id: int, gap_s: float, step_s: float) -> None:
        if (sizer := self._sizer_of(slo_id)) is None or gap_s <= self._slos[slo_id].itl_s:
            return
        if step_s <= self._slos[slo_id].itl_s:  # else it is counted with the step
            sizer.resumed(gap_s)
        self._keep(slo_id, 1.0)

    def _keep(self, slo_id: int, late_tokens: float) -> None:
        """Move a class's reserve for so many late tokens; below 0: back."""
        frac = self._reserve_frac[slo_id] + RESERVE_STEP_FRAC * late_tokens
        self._reserve_frac[slo_id] = min(max(frac, 0.0), MOST_RESERVE_FRAC)

    def resumed(self, gap_s: float, slo_id: int = 0) -> None:
        if sizer := self._sizer_of(slo_id):
            sizer.resumed(gap_s)

    def _sizer_of(self, slo_id: int) -> GapChunks | None:
        # After a live change a step may come back before the first is sized.
        return self._by_slo[slo_id] if slo_id < len(self._by_slo) else None

    def decoding(self, slo_ids: Ints) -> None:
        """The requests that decode in the next step have these SLOs."""
        decodes = np.bincount(slo_ids, minlength=len(self._by_slo)).tolist()
        there = {s for s, n in zip(self._by_slo, decodes, strict=True) if n and s is not None}
        self._binding = min(there, key=lambda sizer: sizer.target.target_s, default=None)

    def chunk(self, decodes: int, kv: int, context: int, *, least: int, most: int) -> int:
        if self._binding is None:
            return most
        return self._binding.chunk(decodes, kv, context, least=least, most=most)

    def starting(self, running: Requests, candidates: Requests, *of_memory: object) -> int:
        """How many candidates may start so that decodes alone are in time for the strictest of all.

        Those of stricter classes do not wait for decodes that can be skipped in single steps; one
        without a time between tokens waits until all decodes fit, those without one included.
        """
        n = len(self._by_slo)
        counts = np.bincount(running.slo_ids, minlength=n).tolist()
        held = np.bincount(running.slo_ids, running.tokens, minlength=n).tolist()
        pairs = zip(candidates.slo_ids.tolist(), candidates.tokens.tolist(), strict=True)
        for index, (slo_id, tokens) in enumerate(pairs):
            counts[slo_id] += 1
            held[slo_id] += tokens
            if not self._decodes_in_time(slo_id, counts, held):
                return index
        return len(candidates)

    def _decodes_in_time(self, slo_id: int, counts: list[int], held: list[float]) -> bool:
        there = [k for k, count in enumerate(counts) if count]
        target_s, model = self._decode_target_s(there), self.history.model
        if target_s == math.inf:
            return True
        step_s = model.c0
        for k in there:
            share = self._share(k, target_s) if self._slos[slo_id].bounded else 1.0
            step_s += share * (model.c1 * counts[k] + model.c2 * held[k])
        return step_s <= target_s

    def _decode_target_s(self, slo_ids: list[int]) -> float:
        """How long a step of decodes alone may take; infinite where none of them has an ITL."""
        # No longer than at full load: a target beyond D is for the few steps with prompts.
        target_s = math.inf
        for slo_id in slo_ids:
            if (sizer := self._by_slo[slo_id]) is not None:
                itl_s = self._itl_frac * self._slos[slo_id].itl_s
                own_s = min(sizer.target.target_s, typical_itl_s(sizer.reported, itl_s))
                target_s = min(target_s, step_limit_s(self.history.model, itl_s, own_s))
        return target_s

    def _share(self, slo_id: int, step_s: float) -> float:
        """In what share of steps a request with this SLO has to decode."""
        own_s = self._slos[slo_id].itl_s
        if own_s < math.inf:
            return 1 / max(math.floor(own_s / step_s), 1)
        return float(step_s / self._longest_skip_s[slo_id])

    def stricter(self, requests: Requests, itl_s: float | None) -> Bools:
        """Which requests have an ITL below this, shape (n,); None: are promised any time."""
        if itl_s is None:
            promised: Bools = ~self._unpromised[requests.slo_ids]
            return promised
        less: Bools = self._itl_s[requests.slo_ids] < itl_s
        return less

    def skipped(
        self,
        running: Requests,
        decoding: Bools,
        waited_s: Callable[[], Floats],
        stricter_tokens: Callable[[float | None], int],
    ) -> Bools:
        """Which of the decoding requests are skipped in the next step, shape (n,).

        Args:
            waited_s: as in ``Batch``.
            stricter_tokens: gives the prompt tokens of requests with an ITL below this; None: of
                those that are promised any time.
        """
        nobody = np.zeros(len(running), dtype=bool)
        slo_ids, model = running.slo_ids, self.history.model
        there = [k for k, n in enumerate(np.bincount(slo_ids[decoding]).tolist()) if n]
        target_s = self._decode_target_s(there)
        if target_s == math.inf:
            return nobody
        strictest_s = min(self._slos[k].itl_s for k in there)
        known = model.feasible(self._itl_frac * strictest_s)
        self._unknown_steps = 0 if known else self._unknown_steps + 1
        if not known and self._unknown_steps % PROBE_STEPS != 1:
            return nobody
        room_s = target_s - model.c0
        few_s = FEW_FRAC * room_s
        promised = stricter_tokens(None) if self._unpromised[there].any() else 0
        if promised:
            few_s = 0.0
        # All together first: the usual case, and a sum of hundreds of times differs by rounding.
        kv = int(running.computed[decoding].sum())
        about_s = model.c1 * int(np.count_nonzero(decoding)) + model.c2 * kv
        if known and about_s <= few_s * (1 - ROUNDING):
            return nobody
        cost_s = np.where(decoding, model.c1 + model.c2 * running.computed, 0.0)
        if known and float(cost_s.sum()) <= few_s:
            return nobody
        itl_s = self._itl_s[slo_ids]
        # What a class may go without a token is less by what steps leave of the strictest one's D,
        # and by its reserve.
        bounded = itl_s < math.inf
        own_s = np.where(bounded, itl_s, self._longest_skip_s[slo_ids])
        spare_s = own_s * (1 - np.array(self._reserve_frac)[slo_ids]) - waited_s()
        spare_s -= np.where(bounded, max(strictest_s - target_s, 0.0), 0.0)
        ahead = np.where(bounded, 2, 3)  # many that come back at once make a step longer
        has_to = decoding & ((itl_s <= strictest_s) | (spare_s < ahead * target_s))
        others = np.flatnonzero(decoding & ~has_to)
        if not len(others):
            return nobody
        before = stricter_tokens(float(itl_s[others].max()))
        now_s = np.bincount(slo_ids, cost_s * has_to)
        room_s = max(room_s - float(now_s.sum()), 0.0)
        if not known:
            nobody[others] = True
            return nobody
        # Stricter prompts go before them, but each has its turn in time: all of a class that are
        # skipped at once would come back at once.
        shares = [self._share(k, target_s) for k in range(len(now_s))]
        turns_s = np.array(shares) * np.bincount(slo_ids, cost_s) - now_s
        others = others[np.argsort(spare_s[others], kind="stable")]
        turn = np.zeros(len(others), dtype=bool)
        for k in set(slo_ids[others].tolist()):
            own = np.flatnonzero(slo_ids[others] == k)
            before_s = cost_s[others[own]].cumsum() - cost_s[others[own]]
            turn[own] = before_s < turns_s[k] - ROUNDING
        others = np.concatenate([others[turn], others[~turn]])
        prompts = np.where(self._unpromised[slo_ids[others]], promised, before)
        most_s = np.maximum(room_s - model.c3 * prompts, 0.0)
        most_s[: np.count_nonzero(turn)] = room_s
        nobody[others[cost_s[others].cumsum() > most_s]] = True
        return nobody
