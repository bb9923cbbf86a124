"""NVIDIA Dynamo's rule for roles, on a fleet of a fixed size.

Its SLA planner (docs/planner of github.com/ai-dynamo/dynamo) asks every interval for as many
prefill engines as the predicted prompt tokens/s take at the throughput that was profiled within the
TTFT, and for as many decode engines as the predicted output tokens/s take at the one within the
ITL; where both together are more than there are, they are scaled down in proportion. Written from
its public description, not from its code. Here all engines are always used, in that proportion.

Given to it: true step times; each request's true output length when it comes; engines that size
their chunks (``adaptive``) and the choice of engines by room. Without its correction factors, which
scale the profile to what was measured: the profile is exact here. All prompts go through.
"""

from controller.config import Sla
from controller.records import ReplicaReport
from controller.roles import Transfer
from serve_app.routing.replica_load import ReplicaLoad
from serve_app.routing.ways import Way
from simulator.replay.steering import Fixed
from simulator.workloads.requests import Request

INTERVAL_S = 60.0  # ``adjustment_interval``; predicted is what came in the last one


class Planner(Fixed):
    """The rule.

    Args:
        costs: seconds of a step, of each decode and each prompt token in it, as profiled.
        most: requests of a batch, and tokens of KV memory.
    """

    def __init__(
        self,
        engines: int,
        prefill: int,
        transfer: Transfer,
        sla: Sla,
        costs: tuple[float, float, float],
        most: tuple[int, int],
        seed: int = 0,
    ) -> None:
        super().__init__(engines, prefill, transfer, sla, seed)
        self._itl_s = sla.itl_s or 0.0
        self._fixed_s, self._per_decode_s, self._per_prefill_s = costs
        self._most_running, self._kv_tokens = most
        self._next_s, self._seen = INTERVAL_S, (0, 0, 0)

    def pick(self, request: Request, now_s: float) -> Way[int]:
        n, tokens_in, tokens_out = self._seen
        self._seen = n + 1, tokens_in + request.input_tokens, tokens_out + request.output_tokens
        return super().pick(request, now_s)

    def hear(
        self, engine: int, report: ReplicaReport, room: ReplicaLoad | None, now_s: float
    ) -> None:
        super().hear(engine, report, room, now_s)
        if now_s >= self._next_s and self._seen[0]:
            self._assign(self.prefill_of(*self._seen))
            self._next_s, self._seen = now_s + INTERVAL_S, (0, 0, 0)

    def prefill_of(self, n: int, tokens_in: int, tokens_out: int) -> int:
        """How many of the engines compute prompts, by what came in an interval."""
        prompt = tokens_in / n
        prefill_per_s = prompt / (self._fixed_s + self._per_prefill_s * prompt)
        fit = self._kv_tokens / (prompt + tokens_out / n / 2)
        decodes = (self._itl_s - self._fixed_s) / self._per_decode_s
        decodes = max(min(decodes, self._most_running, fit), 1.0)
        decode_per_s = decodes / (self._fixed_s + self._per_decode_s * decodes)
        prefill, decode = tokens_in / prefill_per_s, tokens_out / decode_per_s
        engines = len(self.roles)
        return min(max(round(engines * prefill / (prefill + decode)), 1), engines - 1)
