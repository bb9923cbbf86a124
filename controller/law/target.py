"""The step-time target: how long a step with prompt tokens may take, late tokens against TTFT.

D is the ITL target, a the share of tokens that may be late. The model predicts that a step takes s;
it took T. The step would have been in time if it had been planned to take at most

    theta = D - (T - s) if s <= D < T,    D s / T otherwise.

In the first case T - s is a pause, which a shorter step would have had as well; in the second the
excess grows with the length of the step. If all steps with prompts are planned to take s, the share
p(s) = Pr(theta < s) of them is late. Their decodes alone take s0; the share p0 = p(s0) is late
without any chunk. l0 is the share of all tokens that is late because of the decodes of their step,
u(s) the share of tokens in steps with prompts. The target is the s with the least

    J(s) = max((l0 + u(s) (p(s) - p0)) / a', 1) W(s),    a' = ``AIM`` a.

W is the mean TTFT (``chunked_prefill`` has u and W). If some target keeps the SLA and serves what
comes, J of every target that does not keep it counts ``BEYOND`` times. W of an overloaded engine is
large for any s, so the prompts served are bounded: by ``MOST_LOAD`` of what the engine carries
inside D (by the model's mean over five minutes), or by that share of ``LEAST_SERVED`` of what steps
of ten D carry, if that is more.
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
BEYOND = 4.0  # factor of J if more tokens than that are late
SERVED = 0.9  # utilization by prompts; if it is higher, the queue of such a target may grow
# Before any step has run: T / s has a standard deviation of 5%, counted as 40 steps.
FIRST_SPREAD, FIRST_STEPS = 0.05, 40
MOST_LOAD = 0.75
LEAST_SERVED = 0.15  # share of what steps of ten D carry; a D that leaves less costs too much
KNOWN_STEPS = 200  # with fewer rows the model is a guess, and no target is beyond D
# Candidates: these quantiles of theta, multiples of D, and steps that take a whole prompt.
QUANTILES = np.array(
    [0, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5]
)
SHORTEST = 0.1  # in D: no step is short enough to hide a pause longer than D
LONGER = np.array([1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0])

_NORMAL = NormalDist(1.0, FIRST_SPREAD)
_FIRST = np.array([_NORMAL.inv_cdf((i + 0.5) / FIRST_STEPS) for i in range(FIRST_STEPS)])


@dataclass(frozen=True, slots=True)
class Targets:
    """Seconds that a step with prompt tokens may take.

    Args:
        now_s: for the prompts that come now.
        full_s: for the most prompts that are served.
        served_per_s: these, prompt tokens/s.
        inside_s: the longest by which no more steps are late than allowed; D at most.
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
    """theta of the last rows with prompts, ascending; filled up with the guess to 40 rows."""
    known = theta_s(expected_s, took_s, itl_s)
    missing = max(FIRST_STEPS - len(known), 0)
    return np.sort(np.concatenate([known, itl_s / _FIRST[:missing]]))


class TargetSearch:
    """Finds the targets of one SLA.

    Args:
        model, mean: the step-time model of now, and its mean over five minutes.
        demand: prompts and decodes of the last minute.
        kv_per_decode: KV tokens of a decode, on average.
        least_s: the shortest target considered; D if this is beyond D.
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
        # full_s gives the capacity inside the SLA, so its BEYOND does not depend on what comes.
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
        """The s with the least J.

        Args:
            served_per_s, come_per_s: prompt tokens/s that are served, and that come.
            bound: the highest utilization at which a target counts as serving what comes.
        """
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
