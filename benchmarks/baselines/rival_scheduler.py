"""Runs a named rival on vLLM's scheduler: its limits, orders and admissions before every step."""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.request_queue import FCFSRequestQueue
from vllm.v1.request import Request

from benchmarks.baselines.options import RivalOptions
from benchmarks.baselines.registry import make_rival
from benchmarks.baselines.rival import Columns, Floats, Known, Moves, Seen, clamped
from replicas.engine.request_facts import ran_to_its_end
from replicas.engine.step_sample import step_sample
from replicas.profiles.profile import StepProfile
from simulator.virtual.scheduler import VirtualScheduler


class RivalScheduler(VirtualScheduler):
    """Asks a rival before every step and tells it after every output.

    Requests are reordered under first come, first served; with priorities vLLM's order stays.

    Args:
        options: the rival's constants; their class says which rival it is.
        profile: the step times that it may know.
    """

    def __init__(
        self, *args: Any, options: RivalOptions, profile: StepProfile, **kwargs: Any
    ) -> None:
        self._times: dict[str, tuple[float, float]] = {}  # of the first and of the last token
        self._parked: list[Request] = []
        super().__init__(*args, **kwargs)
        sla = self.governor.config.sla
        ttft_s = None if sla.ttft_ms is None else sla.ttft_ms / 1000
        known = Known(self.governor.engine, sla.itl_s, ttft_s, profile.step_s)
        self._rival = make_rival(options, known)
        self._threshold = self.scheduler_config.long_prefill_token_threshold

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        output = super().schedule(*args, **kwargs)
        if self._parked:
            self.running.extend(self._parked)
            setattr(self, self._cap_name, self.cap + len(self._parked))
            self._parked = []
        return output

    def _set_limits(self) -> None:
        super()._set_limits()
        seen = self._seen()
        moves = clamped(self._rival.decide(seen), seen)
        self.max_num_scheduled_tokens = moves.budget
        self._reorder(moves)
        cap = seen.engine.max_num_seqs - len(self._parked)
        if moves.starts < seen.room:
            cap = len(self.running) + moves.starts
        setattr(self, self._cap_name, max(cap, 1))
        threshold = self._threshold if moves.longest_chunk is None else moves.longest_chunk
        self.scheduler_config.long_prefill_token_threshold = threshold

    def _seen(self) -> Seen:
        free = self.governor.engine.kv_tokens - self._in_tokens(self._used_blocks())
        return Seen(
            self.now_s(),
            self.governor.engine,
            self._columns(self.running),
            len(self.waiting),
            lambda n: self._columns(islice(self.waiting, n)),
            free,
        )

    def _reorder(self, moves: Moves) -> None:
        if moves.waiting is not None and isinstance(self.waiting, FCFSRequestQueue):
            queue = list(self.waiting)
            self.waiting.clear()
            self.waiting.extend(queue[k] for k in moves.waiting)
        if moves.running is not None:
            running, served = self.running, set(moves.running)
            self._parked = [r for k, r in enumerate(running) if k not in served]
            self.running[:] = [running[k] for k in moves.running]

    def _columns(self, requests: Iterable[Request]) -> Columns:
        some = list(requests)
        never = (np.nan, np.nan)
        times = np.array([self._times.get(r.request_id, never) for r in some]).reshape(-1, 2)
        return Columns(
            tuple(r.request_id for r in some),
            np.array([r.num_computed_tokens for r in some], dtype=np.int64),
            np.array([r.num_prompt_tokens for r in some], dtype=np.int64),
            np.array([len(r._output_token_ids) for r in some], dtype=np.int64),
            np.array([r.max_tokens for r in some], dtype=np.int64),
            np.array([r.arrival_time for r in some], dtype=float),
            times[:, 0],
            times[:, 1],
            *self._promised(some),
        )

    def _promised(self, some: list[Request]) -> tuple[Floats | None, Floats | None]:
        itl_s, ttft_of = self._classes.promised_s, self._classes.ttft_of
        if ttft_of is None:
            return None, None
        ids = [r.request_id for r in some]
        return np.array([itl_s(one) for one in ids]), np.array([ttft_of(one) for one in ids])

    def _measure(self, done: SchedulerOutput) -> None:
        since_s = self._last_output_s if self._was_busy else None
        if since_s is None:
            known = (one.begun_s for one in self._scheduled if one.output is done)
            since_s = next(known, self.now_s())
        super()._measure(done)
        if not done.total_num_scheduled_tokens:
            return
        now_s = self.now_s()
        self._rival.observe(step_sample(done, now_s - since_s)[0], len(self.running), now_s)
        for req_id in done.num_scheduled_tokens:
            request = self.requests.get(req_id)
            if request is not None and not request.is_prefill_chunk and request.num_output_tokens:
                first_s, _ = self._times.get(req_id, (now_s, now_s))
                self._times[req_id] = first_s, now_s

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self._rival.preempted()
        super()._preempt_request(request, *args, **kwargs)

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        if ran_to_its_end(request):
            self._rival.finished(request.num_output_tokens)
        self._times.pop(request.request_id, None)
        return super()._free_request(request, *args, **kwargs)
