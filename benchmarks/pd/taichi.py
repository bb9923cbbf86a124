"""TaiChi's rule (arXiv 2508.01989): instances heavy in prefill or in decode, all able to do both.

They differ in the size of their chunks. Short prompts, which have time to spare, are computed by
decode-heavy ones beside their decodes, as long as the TTFT is forecast to be kept there; prompts
that would be late there go to prefill-heavy ones, and their KV to a decode-heavy one
(length-aware scheduling of prefill). Written from the paper, not from its code.

Given to it: the ratio tuned for each row, and chunks of decode-heavy instances that are sized to
the ITL step by step. Left out: that decodes move to prefill-heavy instances and back, which it does
where a mean time per token is agreed; here no gap may be longer, and theirs all are.
"""

from dataclasses import replace

from controller.config import Sla
from controller.roles import Transfer
from serve_app.routing.ways import Way
from simulator.replay.steering import Fixed, asked_of
from simulator.workloads.requests import Request


class LengthAware(Fixed):
    """The first engines are heavy in prefill."""

    def __init__(
        self, engines: int, prefill: int, transfer: Transfer, sla: Sla, seed: int = 0
    ) -> None:
        super().__init__(engines, prefill, transfer, sla, seed, direct=True)
        self._ttft_s = (sla.ttft_ms or 0.0) / 1000

    def pick(self, request: Request, now_s: float) -> Way[int]:
        asked, chooser = asked_of(request), self._ways.chooser
        mixed = self._in_role("mixed")
        here = chooser.choose(mixed, replace(asked, part="direct"), now_s)
        if here.wait_s is None or here.wait_s > self._ttft_s:
            return super().pick(request, now_s)
        chooser.sent(here.replica, asked, now_s)
        return Way(here.replica, None, here.wait_s)
