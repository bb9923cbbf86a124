"""How long steps take on this machine, measured before an SLA is promised on it.

One engine for each replica that will share the cores, all at the same time and at the niceness that
Ray gives to replicas. ``python -m benchmarks.live.calibrate MODEL ENGINE_KWARGS`` is one of them.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.live.cluster import ENVIRONMENT, NICENESS, ClusterError

DECODES, CONTEXT_TOKENS = 8, 64  # of the steps that are timed
PROMPT_TOKENS = 1500
PROMPTS, STEPS_BETWEEN = 5, 60
# Steps that nobody disturbed. Beside the engines run their API servers, HAProxy and the client, so
# that a step of ten decodes takes several times as long, and the slowest of a hundred so long that
# the policy fills less than half of the SLA; what is left has to hold some hundred prompt tokens.
SLA_STEPS, SLA_LEAST_MS, SLA_ROUND_MS = 20.0, 20.0, 5.0
READY, FOUND = "brimful ready", "brimful found "


@dataclass(frozen=True, slots=True)
class StepTimes:
    """In seconds: a step of ``DECODES`` decodes, and one with a whole prompt beside.

    Of several the one that a fifth do not pass: nobody took the core from it.
    """

    decode_s: float
    prompt_s: float

    def sla_ms(self) -> float:
        """The time between tokens that this machine can hold, in whole steps of 5 ms."""
        wanted_ms = SLA_STEPS * self.decode_s * 1000
        return max(SLA_LEAST_MS, math.ceil(wanted_ms / SLA_ROUND_MS) * SLA_ROUND_MS)


class Calibration:
    """Engines in processes of their own: started, then measured together, then ended."""

    def __init__(self, model: Path, engine_kwargs: Mapping[str, Any], engines: int) -> None:
        environment = os.environ | ENVIRONMENT
        environment |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
        command = [sys.executable, "-m", "benchmarks.live.calibrate", str(model)]
        self._processes = [
            subprocess.Popen(
                [*command, json.dumps(dict(engine_kwargs))],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(engines)
        ]

    def __enter__(self) -> "Calibration":
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def measure(self) -> StepTimes:
        """Of the engine that was slower.

        Raises:
            ClusterError: an engine ended without a result.
        """
        for process in self._processes:
            self._read(process, READY)
        for process in self._processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        found = [StepTimes(**json.loads(self._read(one, FOUND))) for one in self._processes]
        return StepTimes(max(one.decode_s for one in found), max(one.prompt_s for one in found))

    @staticmethod
    def _read(process: "subprocess.Popen[str]", beginning: str) -> str:
        assert process.stdout
        lines = []
        for line in process.stdout:  # others may write there, too
            if line.startswith(beginning):
                return line.removeprefix(beginning)
            lines.append(line)
        raise ClusterError(f"the engine that times steps ended:\n{''.join(lines[-5:])}")


class _Engine:
    """vLLM's EngineCore in this process, stepped by hand."""

    def __init__(self, model: str, engine_kwargs: dict[str, Any]) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.executor.abstract import Executor

        config = EngineArgs(model=model, **engine_kwargs).create_engine_config()
        self._core = EngineCore(config, Executor.get_class(config), log_stats=False)
        self._number = 0

    def add(self, tokens: int, max_tokens: int) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        self._number += 1
        sampling = SamplingParams(max_tokens=max_tokens, ignore_eos=True, temperature=0.0)
        request = Request(
            str(self._number), [self._number % 100 + 3] * tokens, sampling, None, time.time()
        )
        self._core.add_request(request, 0)

    def step_s(self) -> float:
        begin_s = time.perf_counter()
        _, executed = self._core.step_fn()
        self._core.post_step(executed)
        return time.perf_counter() - begin_s


def _measure(engine: _Engine) -> StepTimes:
    steps = PROMPTS * (STEPS_BETWEEN + 3)
    for _ in range(DECODES):
        engine.add(CONTEXT_TOKENS, steps + 10)
    engine.step_s()
    decode_s, prompt_s = [], []
    for _ in range(PROMPTS):
        decode_s += [engine.step_s() for _ in range(STEPS_BETWEEN)]
        engine.add(PROMPT_TOKENS, 1)
        prompt_s.append(engine.step_s())
    return StepTimes(*(statistics.quantiles(times, n=5)[0] for times in (decode_s, prompt_s)))


def main(model: str, engine_kwargs: str) -> None:
    """Load, say so, wait to be told, measure, say what was found."""
    os.nice(NICENESS)
    engine = _Engine(model, json.loads(engine_kwargs))
    print(READY, flush=True)
    sys.stdin.readline()
    print(FOUND + json.dumps(asdict(_measure(engine))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
