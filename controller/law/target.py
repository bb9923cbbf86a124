"""The step-time target: how long a step with prompt tokens may take, late tokens against TTFT.

D is the ITL target and a the share of tokens that may be late. A step that takes s by the
model and took T is late if it is planned longer than

    theta = D - (T - s) if s <= D < T,    D s / T else:

what made it late would be added to a shorter one as well, as a pause is; else what it was longer by
is taken to grow with its length. p(s) = Pr(theta < s) over the last rows with prompts is the share
that is late if all are planned to take s; their decodes alone take s0 and are late with p0 = p(s0),
which no chunk causes. l0 is the share of all tokens that their steps' own decodes made late, u(s)
the share of tokens in steps with prompts. The target is the s with the least

    J(s) = max((l0 + u(s) (p(s) - p0)) / a', 1) W(s),    a' = ``AIM`` a,

and ``BEYOND`` times that if more than a' are late: a target that keeps the SLA, and serves what
comes, is left only for one that is worth as much. W is the mean TTFT (``chunked_prefill`` has u and
W). A queue that grows without end makes any W large: prompts are counted on to be served up to
``MOST_LOAD`` of what the engine carries inside D by the model's mean over five minutes, or of
``LEAST_SERVED`` of what steps of ten D carry if that is more.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from controller.models.arrays import Floats
from controller.models.demand import MEMORY_S, Demand
from controller.models.prompt_work import PromptWork
from controller.models.step_time import StepModel

TINY_S = 1e-9
AIM = 0.85  # of the share of tokens that may be late
BEYOND = 4.0  # in J, of a target by which more than that are late
SERVED = 0.9  # of the time that prompts take; beyond it the queue of such a target would grow
# Before steps have run T / s is taken to spread by 5%, as if so many steps had shown it.
FIRST_SPREAD, FIRST_STEPS = 0.05, 40
MOST_LOAD = 0.75
LEAST_SERVED = 0.15  # of what steps of ten D carry: if D leaves less, it buys too little
KNOWN_STEPS = 200  # while fewer were seen the model is a guess, and D is kept
# Candidates: these quantiles of theta, multiples of D, and steps that take a whole prompt.
QUANTILES = np.array(
    [0, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5]
)
SHORTEST = 0.1  # in D: a pause beyond D is later than any step
LONGER = np.array([1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0])

_NORMAL = NormalDist(1.0, FIRST_SPREAD)
_FIRST = np.array([_NORMAL.inv_cdf((i + 0.5) / FIRST_STEPS) for i in range(FIRST_STEPS)])


@dataclass(frozen=True, slots=True)
class Targets:
    """Seconds that a step with prompt tokens may take.

    Args:
        now_s: for the prompts that come.
        full_s: if as many come as are counted on to be served.
        served_per_s: prompt tokens/s that are counted on.
        inside_s: of which as many steps are late as may be; D at most.
    """

    now_s: float
    full_s: float
    served_per_s: float
    inside_s: float


def theta_s(expected_s: Floats, took_s: Floats, itl_s: float) -> Floats:
    """theta of steps that take s by the model and took T; seconds, of their shape."""
    late = (expected_s <= itl_s) & (itl_s < took_s)
    in_time_s: Floats = np.where(
        late, itl_s - took_s + expected_s, itl_s * expected_s / np.maximum(took_s, TINY_S)
    )
    return in_time_s


def in_time_s(expected_s: Floats, took_s: Floats, itl_s: float) -> Floats:
    """theta of the last rows with prompts, ascending; if they are few, with the guess."""
    known = theta_s(expected_s, took_s, itl_s)
    missing = max(FIRST_STEPS - len(known), 0)
    return np.sort(np.concatenate([known, itl_s / _FIRST[:missing]]))


class TargetSearch:
    """Finds the targets of one SLA.

    Args:
        model, mean: the step-time model of now, and its mean over five minutes.
        demand: prompts and decodes of the last minute.
        kv_per_decode: KV tokens of a decode, on average.
        least_s: no shorter target is looked for, unless it is beyond D.
    """

    def __init__(
        self,
        model: StepModel,
        mean: StepModel,
        demand: Demand,
        kv_per_decode: float,
        least_s: float = 0.0,
    ) -> None:
        self._demand, self._least_s = demand, least_s
        self._model = model
        self._work = PromptWork(model, demand, kv_per_decode)
        self._usual = PromptWork(mean, demand, kv_per_decode)

    def targets(
        self, in_time: Floats, late_anyway: float, itl_s: float, allowed: float, *, known: bool
    ) -> Targets:
        """The targets.

        Args:
            in_time: theta, ascending, shape (n,).
            late_anyway: l0.
            itl_s: D.
            allowed: a'.
            known: whether steps beyond D may be planned.
        """
        longest_per_s = self._work.carried_per_s(itl_s * float(LONGER[-1]))
        served_per_s = longest_per_s
        if self._model.feasible(itl_s):
            inside_per_s = self._usual.carried_per_s(itl_s)
            served_per_s = max(inside_per_s, LEAST_SERVED * longest_per_s)
        served_per_s *= MOST_LOAD
        come_per_s = self._demand.prefill_per_s
        # Capacity is told for what keeps the SLA, whatever comes: SERVED is not asked for it.
        least = [
            self._least(in_time, late_anyway, itl_s, allowed, served, come, known, bound)
            for served, come, bound in (
                (min(come_per_s, served_per_s), come_per_s, SERVED),
                (served_per_s, served_per_s, math.inf),
            )
        ]
        inside_s = min(float(np.quantile(in_time, allowed)), itl_s)
        return Targets(least[0], least[1], served_per_s, inside_s)

    def _least(
        self,
        in_time: Floats,
        late_anyway: float,
        itl_s: float,
        allowed: float,
        served_per_s: float,
        come_per_s: float,
        known: bool,
        bound: float,
    ) -> float:
        """The s of the least J if so many prompt tokens/s are served, and so many come."""
        n = len(in_time)
        prompts = self._work.prompts(served_per_s)
        alone = np.searchsorted(in_time, prompts.decodes_s) / n

        def caused(planned_s: Floats) -> Floats:
            late = np.minimum((np.searchsorted(in_time, planned_s) + 1) / (n + 1), 1.0)
            return np.maximum(late - alone, 0.0)

        least_s = min(max(self._least_s, SHORTEST * itl_s), itl_s)
        inside_s = np.maximum(in_time[(QUANTILES * n).astype(int)], least_s)
        whole_s = self._work.whole_s(prompts)
        beyond = (whole_s > itl_s) & (whole_s <= itl_s * LONGER[-1])
        s = np.unique(np.concatenate([inside_s, itl_s * LONGER, whole_s[beyond]]))
        steps = prompts.steps(s)
        late = late_anyway + steps.late_share(come_per_s / prompts.mean_tokens, caused)
        j = np.maximum(late / allowed, 1.0) * steps.wait_s(MEMORY_S)
        served = come_per_s / prompts.mean_tokens * steps.served_s <= bound
        if (served & (late <= allowed)).any():
            j = np.where(late > allowed, BEYOND * j, j)
        if not known:
            j = np.where(s <= itl_s, j, np.inf)
        return float(s[int(j.argmin())])
