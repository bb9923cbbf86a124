"""Ray Serve LLM's prefill and decode as shipped: a fixed ratio, pairs chosen by chance.

``ray.serve.llm.build_pd_openai_app``: each request goes to a decode replica, which has a prefill
replica compute the prompt; Ray's router draws both by power of two choices over the requests that
are open there (Ray 2.60, ``pow_2_router``). Limits are vLLM's defaults: it is not tuned.
"""

import random

from controller.records import ReplicaReport, Role
from serve_app.routing.replica_load import ReplicaLoad
from serve_app.routing.ways import Way
from simulator.workloads.requests import Request


class RandomPairs:
    """The first engines compute prompts; both of a pair by power of two choices.

    Open requests are taken to be known at once, which is more than Ray's router knows.
    """

    def __init__(self, engines: int, prefill: int, seed: int) -> None:
        self.roles: list[Role] = ["prefill" if k < prefill else "mixed" for k in range(engines)]
        self._random = random.Random(seed)
        self._prefills, self._decodes = range(prefill), range(prefill, engines)
        self._open = [0] * engines

    def pick(self, request: Request, now_s: float) -> Way[int]:
        prefill, decode = self._one_of(self._prefills), self._one_of(self._decodes)
        self._open[prefill] += 1
        return Way(decode, prefill, None)

    def _one_of(self, places: range) -> int:
        drawn = self._random.sample(places, min(2, len(places)))
        return min(drawn, key=lambda k: self._open[k])

    def handed_over(self, request: Request, way: Way[int], now_s: float) -> None:
        assert way.prefill is not None
        self._open[way.prefill] -= 1
        self._open[way.decode] += 1

    def hear(
        self, engine: int, report: ReplicaReport, room: ReplicaLoad | None, now_s: float
    ) -> None:
        self._open[engine] = report.running + report.waiting
