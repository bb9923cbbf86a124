"""The step-time target: how long a step with prompt tokens may take, late tokens against TTFT.

D is the ITL target and a the share of tokens that may be late. A step that was predicted to take s
and took T is late if it is planned longer than

    theta = D - (T - s) where s <= D < T,    D s / T else:

what made it late would be added to a shorter one as well, as a pause is; else what it was longer by
is taken to grow with its length. Of recent steps with prompt tokens p(s) = Pr(theta < s), the share
that is late if all are planned to take s. Their decodes alone, predicted to take s0, would have
been late with probability p0 = p(s0): no chunk causes that, and none is made smaller for it. Of all
tokens

    L(s) = l0 + f u(s) (p(s) - p0) max(s / D, 1)^(1/2)

are late: l0 is the measured share that no chunk causes, u the share of tokens in steps with
prompts. The second part is multiplied by f: late tokens that prompts caused over those expected, of
the last five minutes, at least 1. Taking the least J of many s favours those whose p is estimated
too low. A late token of a step of s > D counts sqrt(s / D) times: counted once, a gap of six D
would cost no more than one of two; counted s / D times, too much TTFT would be given up. The
step-time target is the s with the least

    J(s) = max(L(s) / a', 1) W(s),    a' = ``AIM`` a,

W the mean TTFT (``chunked_prefill`` has u and W). J often has two minima: chunks that keep D, and
whole prompts in steps that do not, of which there are few. What lies between is worse than both.

A queue that grows without end makes any W large. So prompts are counted on to be served only up to
``MOST_LOAD`` of what the engine carries inside D by the model's mean over five minutes, or of
``LEAST_SERVED`` of what steps of ten D carry if that is more: overload does not buy throughput with
late tokens. Where no chunk keeps D (``StepModel.feasible``), it is ``MOST_LOAD`` of what steps of
ten D carry.
"""

import math
from collections import deque
from statistics import NormalDist

import numpy as np

from controller.models.arrays import Floats
from controller.models.demand import MEMORY_S, Demand
from controller.models.prompt_work import PromptWork
from controller.models.residuals import REGIME_STEPS
from controller.models.step_time import FEATURES, MIN_STEPS, StepModel

AIM = 0.85  # of the share of tokens that may be late
KEPT_STEPS = 400  # with prompt tokens: they tell 1% to a half
# Before steps have run T / s is taken to spread by 5%; each that runs takes the place of one.
FIRST_SPREAD, FIRST_STEPS = 0.05, 40
SETTLED_STEPS = 16  # with prompt tokens, until the model has followed a change of speed
REFRESH_STEPS, ALONE = 16, 0.25  # ... of which one of decodes alone counts so much
L0_MEMORY_S = 60.0
FEW_S = 15.0  # prior: allowed late tokens of so long are added to caused and expected
LONG_MEMORY_S = 300.0
MOST_LOAD = 0.75
LEAST_SERVED = 0.15  # of what steps of ten D carry: where D leaves less, it buys too little
# While the model is a guess D is kept: where there is no room for prompts, none are seen either.
GUESSED_STEPS = 200
# Candidates: these quantiles of theta, multiples of D, and steps that take a whole prompt.
BEYOND = np.array(
    [0, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5]
)
SHORTEST = 0.1  # in D: a pause beyond D is later than any step
LONGER = np.array([1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 10.0])


class StepTarget:
    """The step-time target of one engine and one SLA.

    Args:
        itl_s: D, seconds.
        percentile: of the gaps between tokens, this many % are to be within D.

    Attributes:
        itl_s: D times ``itl_frac``, which the engine keeps to.
        target_s: the step-time target.
        mean_model: the step-time model's mean over five minutes; None before the first refresh.
    """

    def __init__(self, itl_s: float, percentile: float, demand: Demand) -> None:
        self.itl_s = self.target_s = self._sla_s = itl_s
        self._allowed = AIM * (1 - percentile / 100)
        self._demand = demand
        normal = NormalDist(1.0, FIRST_SPREAD)
        first = [normal.inv_cdf((i + 0.5) / FIRST_STEPS) for i in range(FIRST_STEPS)]
        self._predicted_s = deque([itl_s / r for r in first], maxlen=KEPT_STEPS)
        self._took_s = deque([itl_s] * FIRST_STEPS, maxlen=KEPT_STEPS)
        self._placeholders = FIRST_STEPS
        self._newest: deque[tuple[float, float]] = deque()  # which a change of speed discards
        self._unsettled_steps = MIN_STEPS
        self._unseen = float(REFRESH_STEPS)
        self._overload_decodes_s = math.inf  # s0 of the mean batch inside D, under overload
        self._tokens, self._late_tokens = 1.0, 0.0
        self._share = 0.0  # of all tokens, expected to be late at the target because of prompts
        self._caused, self._expected = 0.0, 0.0
        self._costs, self._costs_weight = np.zeros(FEATURES), 0.0  # faded sums
        self.mean_model: StepModel | None = None
        self._since_s = 0.0
        self._lets_late = False
        self._steps = 0
        self._full: tuple[PromptWork, float] | None = None
        self._tail_frac: float | None = None  # None: not asked for since the last refresh

    @property
    def late_anyway(self) -> float:
        """l0, 0 to 1."""
        return self._late_tokens / self._tokens

    def set_target_frac(self, itl_frac: float) -> None:
        """Keep this share of D."""
        itl_s = itl_frac * self._sla_s
        self.target_s *= itl_s / self.itl_s
        self.itl_s = itl_s
        self._tail_frac = None

    def observe(
        self,
        tokens: int,
        predicted_s: float,
        decodes_s: float,
        duration_s: float,
        *,
        prompts: bool,
        applied: bool = True,
    ) -> None:
        """Count a step.

        Args:
            tokens: of decodes under this SLA.
            predicted_s, decodes_s: s and s0, before the step was learned from.
            prompts: whether it computed prompt tokens.
            applied: whether its chunk was sized here. Errors of other steps say nothing of these.
        """
        self._since_s += duration_s
        self._steps += 1
        keep = math.exp(-duration_s / L0_MEMORY_S)
        self._tokens = keep * self._tokens + tokens
        self._late_tokens *= keep
        keep = math.exp(-duration_s / LONG_MEMORY_S)
        self._caused, self._expected = keep * self._caused, keep * self._expected
        counted = applied and not (self._placeholders or self._unsettled_steps)
        self._expected += tokens * self._share * counted
        itl_s = self.itl_s
        if duration_s > itl_s and predicted_s > 0:
            in_time_s = itl_s * predicted_s / duration_s
            if predicted_s <= itl_s:
                in_time_s = itl_s - duration_s + predicted_s
            # A batch that an overload made larger is no excuse.
            alone_s = min(decodes_s, self._overload_decodes_s)
            alone = alone_s > in_time_s
            self._late_tokens += tokens * alone
            counted = counted and prompts and not alone
            self._caused += tokens * counted * max(predicted_s / itl_s, 1.0) ** 0.5
        if not tokens or predicted_s <= 0 or duration_s <= 0:
            return
        self._unseen += 1.0 if prompts else ALONE
        if not prompts or not applied:
            return
        if self._unsettled_steps:
            self._unsettled_steps -= 1
            return
        self._newest.append((predicted_s, duration_s))
        if len(self._newest) > REGIME_STEPS:
            self._count(*self._newest.popleft())

    def _count(self, predicted_s: float, duration_s: float) -> None:
        if self._placeholders:
            self._placeholders -= 1
            self._predicted_s.popleft()
            self._took_s.popleft()
        self._predicted_s.append(predicted_s)
        self._took_s.append(duration_s)

    def _in_time_s(self) -> Floats:
        """theta of the kept steps, seconds, ascending."""
        n = len(self._took_s)
        predicted_s = np.fromiter(self._predicted_s, float, n)
        took_s = np.fromiter(self._took_s, float, n)
        return np.sort(theta_s(predicted_s, took_s, self.itl_s))

    def regime_changed(self) -> None:
        """The engine's speed has changed: the newest steps were predicted for the one before."""
        self._newest.clear()
        self._unsettled_steps = max(self._unsettled_steps, SETTLED_STEPS)

    def waited(self, gap_s: float) -> None:
        """Count a gap that no single step explains: late, where it is longer than D."""
        self._late_tokens += gap_s > self.itl_s

    @property
    def due(self) -> bool:
        """Whether enough steps ran since ``refresh``."""
        return self._unseen >= REFRESH_STEPS

    def refresh(self, model: StepModel, kv_per_decode: float) -> None:
        """Find the target anew, from what was observed."""
        demand, since_s = self._demand, self._since_s
        self._unseen, self._since_s = 0.0, 0.0
        work = PromptWork(model, demand, kv_per_decode)
        longest_per_s = work.carried_per_s(self.itl_s * float(LONGER[-1]))
        if model.feasible(self.itl_s):
            keep, costs = math.exp(-since_s / LONG_MEMORY_S), np.array(model.costs)
            self._costs = keep * self._costs + (1 - keep) * costs
            self._costs_weight = keep * self._costs_weight + 1 - keep
            mean = self._costs / self._costs_weight if self._costs_weight else costs
            self.mean_model = StepModel.of(mean.tolist(), 0.0)
            inside = PromptWork(self.mean_model, demand, kv_per_decode)
            inside_per_s = inside.carried_per_s(self.itl_s)
            most_per_s = max(inside_per_s, LEAST_SERVED * longest_per_s)
        else:
            most_per_s = longest_per_s
        most_per_s *= MOST_LOAD
        come_per_s = demand.prefill_per_s
        log_gain, target_s, shares = self._best(work, min(come_per_s, most_per_s), come_per_s)
        known = not self._placeholders or self._steps >= GUESSED_STEPS
        self._lets_late = known and log_gain > 0
        self.target_s = target_s[self._lets_late]
        self._share = shares[self._lets_late]
        self._full, self._tail_frac = (work, most_per_s), None
        self._overload_decodes_s = math.inf
        if come_per_s > most_per_s:
            self._overload_decodes_s = work.decodes_s(most_per_s)

    @property
    def selection_bias(self) -> float:
        """Late tokens that prompts caused over those that were expected of them; at least 1."""
        few = FEW_S / L0_MEMORY_S * self._tokens * self._allowed
        return max((self._caused + few) / (self._expected + few), 1.0)

    @property
    def tail_frac(self) -> float:
        """D / ``full_load_target_s`` - 1, at least 0."""
        if self._tail_frac is None:
            self._tail_frac = max(self.itl_s / self.full_load_target_s - 1, 0.0)
        return self._tail_frac

    @property
    def full_load_target_s(self) -> float:
        """The target where as much comes as is counted on to be served, seconds."""
        if self._full is None:
            return self.itl_s
        work, most_per_s = self._full
        log_gain, target_s, _ = self._best(work, most_per_s, most_per_s)
        return target_s[self._lets_late and log_gain > 0]

    def _best(
        self, work: PromptWork, served_per_s: float, come_per_s: float
    ) -> tuple[float, tuple[float, float], tuple[float, float]]:
        """The two minima of J: log J of the first less that of the second, and where they are.

        Args:
            served_per_s: prompt tokens/s that are counted on to be served.
            come_per_s: those that come.
        """
        itl_s = self.itl_s
        in_time_s = self._in_time_s()
        n = len(in_time_s)
        prompts = work.prompts(served_per_s)
        alone = np.searchsorted(in_time_s, prompts.decodes_s) / n

        def caused(predicted_s: Floats) -> Floats:
            late = np.searchsorted(in_time_s, predicted_s)
            more = np.maximum(np.minimum((late + 1) / (n + 1), 1.0) - alone, 0.0)
            counted: Floats = more * np.sqrt(np.maximum(predicted_s / itl_s, 1.0))
            return counted

        inside_s = np.maximum(
            in_time_s[np.minimum((BEYOND * n).astype(int), n - 1)], SHORTEST * itl_s
        )
        whole_s = work.whole_s(prompts)
        s = np.sort(np.concatenate([inside_s, itl_s * LONGER, whole_s[whole_s > itl_s]]))
        steps = prompts.steps(s)
        share = steps.late_share(come_per_s / prompts.mean_tokens, caused)
        late = self.late_anyway + self.selection_bias * share
        over = np.maximum(late / self._allowed, 1.0)
        j, planned_s = over * steps.wait_s(MEMORY_S), steps.step_s
        keeps = planned_s <= max(float(inside_s[-1]), itl_s)
        first = int(np.where(keeps, j, np.inf).argmin())
        # The target is for the mean batch. Where its steps end with the CUDA graphs, a larger
        # batch may use what is left of D.
        same = (planned_s == planned_s[first]) & (caused(s) <= self._allowed)
        first = max(first, int(same.nonzero()[0].max(initial=0)))
        if keeps.all():
            return -math.inf, (float(s[first]),) * 2, (float(share[first]),) * 2
        second = int(np.where(keeps, np.inf, j).argmin())
        two = [first, second]
        return math.log(j[first] / j[second]), tuple(s[two].tolist()), tuple(share[two].tolist())


def theta_s(predicted_s: Floats, took_s: Floats, itl_s: float) -> Floats:
    """theta of steps that were predicted to take s and took T; seconds, of their shape."""
    late = (predicted_s <= itl_s) & (itl_s < took_s)
    in_time_s: Floats = np.where(late, itl_s - took_s + predicted_s, itl_s * predicted_s / took_s)
    return in_time_s
