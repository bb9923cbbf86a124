"""Which of an engine's requests count for autoscaling: not those of ``autoscale: false``."""

from collections.abc import Iterable

from vllm.v1.request import Request, RequestStatus

from controller.models.lengths import LengthRing
from controller.records import AutoscaledLoad
from controller.request_slo import KEY
from replicas.engine.rate import Rate
from replicas.engine.seen_lengths import PROMPTS_KEPT

IDLE = RequestStatus.WAITING_FOR_STREAMING_REQ  # a session waits for its client, not for the engine


def autoscales(request: Request) -> bool:
    """Whether a request counts for autoscaling, as its class says (``controller.request_slo``)."""
    params = request.sampling_params
    wire = ((params and params.extra_args) or {}).get(KEY)
    return not isinstance(wire, dict) or wire.get("autoscale", True) is not False


class Autoscaled:
    """Counts the load for autoscaling; None until a request comes that does not count."""

    def __init__(self, now_s: float) -> None:
        self._others: set[str] = set()  # ids of requests that do not count, until they end
        self._has_others = False
        self._arrivals = self._first_tokens = self._late = 0
        self._rate = Rate(now_s)
        self._prompts, self._finished = LengthRing(PROMPTS_KEPT), LengthRing()

    def come(self, request: Request, *, for_another: bool = False) -> None:
        """Count a new request; ``for_another``: its prompt is computed for another replica."""
        if not autoscales(request):
            self._has_others = True
            self._others.add(request.request_id)
            return
        if for_another:
            return
        self._arrivals += 1
        self._prompts.add(request.num_prompt_tokens, 0)

    def first_token(self, req_id: str, *, late: bool) -> None:
        """A request got its first token."""
        if req_id in self._others:
            return
        self._first_tokens += 1
        self._late += late

    def finished(self, request: Request, cached: int) -> None:
        """A request ran to its end; ``cached``: prompt tokens that the prefix cache held."""
        if autoscales(request):
            self._finished.add(request.num_prompt_tokens, request.num_output_tokens, cached)

    def gone(self, req_id: str) -> None:
        """Forget a request that has ended, and whose first token needs no measuring any more."""
        self._others.discard(req_id)

    def load(
        self, running: Iterable[Request], waiting: Iterable[Request], now_s: float
    ) -> AutoscaledLoad | None:
        """The load that counts for autoscaling; None: every request counts.

        Args:
            running, waiting: requests; read only if some do not count.
        """
        rate_per_s = self._rate.per_s(self._arrivals, now_s)
        if not self._has_others:
            return None
        return AutoscaledLoad(
            running=sum(map(autoscales, running)),
            waiting=sum(autoscales(r) and r.status != IDLE for r in waiting),
            arrival_rate_per_s=rate_per_s,
            prompts=self._prompts.moments(),
            lengths=self._finished.moments(),
            first_tokens=self._first_tokens,
            late_first_tokens=self._late,
        )
