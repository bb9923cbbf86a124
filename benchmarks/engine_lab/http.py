"""The engine of the lab as one replica under Ray Serve: its core stays its own.

EngineCore is pinned to the lab's core; Ray, HAProxy and the client to another.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import ray
from rich.console import Console
from tqdm import tqdm

from benchmarks.engine_lab.core_watch import CoreWatch
from benchmarks.engine_lab.figures import figures_of
from benchmarks.engine_lab.hog import hog_process
from benchmarks.engine_lab.lab import found_or_made
from benchmarks.engine_lab.load import requests_of
from benchmarks.engine_lab.results import Results, code_behind
from benchmarks.engine_lab.schedule import OURS
from benchmarks.engine_lab.tasks import EngineTask, HttpTask, Task
from benchmarks.live.served import Served
from serve_app.demo.calibrate import random_prompt
from serve_app.demo.client import Answer, Ask, send
from serve_app.demo.cluster import ClusterError, local_cluster
from serve_app.demo.model import SMALL
from serve_app.demo.stack import Stack
from serve_app.demo.tuned import StaticLimits

ENGINE_NAME = "VLLM::EngineCore"
KV_BYTES = 2**30  # as without HTTP


class OneReplica(Stack):
    """The demo's configuration with one replica."""

    def __init__(self, model: Path) -> None:
        engine = {
            "max_num_seqs": OURS.cap,
            "max_num_batched_tokens": OURS.token_budget,
            "kv_cache_memory_bytes": KV_BYTES,
        }
        super().__init__(replace(SMALL, folder=model, engine_kwargs=engine))
        self.replicas = 1
        entry = self._app["args"]["llm_configs"][0]
        entry["deployment_config"]["num_replicas"] = self.replicas

    def go_by_task(self, run: EngineTask) -> None:
        """Let the engine be as in this run."""
        limits = run.limits
        if run.adaptive:
            self.go_by({"policy": "adaptive", "sla": run.ground.sla})
        elif limits.cap is None or limits.token_budget is None:
            self.go_by({"policy": "static"})
        else:
            self.go_by(self.static(StaticLimits(limits.cap, limits.token_budget)))


class HttpLab:
    """Starts its stack with the first run that is to be made.

    Args:
        core: EngineCore's, and a hog's.
        others: of all other processes, the client among them.
    """

    def __init__(
        self, core: int, others: int, model: Path, results: Results, bar: "tqdm[Any]"
    ) -> None:
        self._core, self._others, self._model = core, others, model
        self._results, self._bar = results, bar
        self._exits = ExitStack()
        self._stack: OneReplica | None = None
        self._engine_pid, self._code = 0, ""

    def __enter__(self) -> "HttpLab":
        return self

    def __exit__(self, *exc: object) -> None:
        self._exits.close()

    def do(self, task: Task) -> Any:
        """What clients saw of a run, now or before."""
        return found_or_made(task, self._results, self._bar, self._make)

    def _make(self, task: Task) -> dict[str, Any]:
        assert isinstance(task, HttpTask)
        run, ground = task.run, task.run.ground
        stack = self._running(code_behind(task))
        stack.go_by_task(run)
        requests = requests_of(run.rate_per_s, ground.seconds, run.seed)
        asks = [
            Ask(random_prompt(stack.model, one.input_tokens, k), one.output_tokens, one.arrival_s)
            for k, one in enumerate(requests)
        ]
        with hog_process(ground.hog, run.seed) as hog:
            if hog:
                psutil.Process(hog.pid).cpu_affinity([self._core])
            watch = CoreWatch(self._core, self._engine_pid, hog)
            answers = asyncio.run(send(stack.base_url, stack.model.name, asks))
            shares = watch.shares()
        if broken := [answer for answer in answers if not answer.whole]:
            raise ClusterError(f"{len(broken)} answers broke: {broken[0].status} {broken[0].error}")
        figures = figures_of(
            served_of(asks, answers),
            ground.sla_ms / 1000,
            ground.percentile,
            ground.skip_s,
            ground.seconds,
        )
        return {**shares, "figures": asdict(figures)}

    def _running(self, code: str) -> OneReplica:
        """The stack, started anew where its code was edited since."""
        if self._stack is None or code != self._code:
            self._exits.close()
            self._stack, self._code = self._start(), code
        return self._stack

    def _start(self) -> OneReplica:
        stack = OneReplica(self._model)
        folder = Path(self._exits.enter_context(TemporaryDirectory(prefix="brimful-lab-")))
        cluster = self._exits.enter_context(local_cluster(logs=folder))
        stack.start(cluster, folder, Console(quiet=True))
        self._exits.callback(ray.shutdown)
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            if ENGINE_NAME in " ".join(process.cmdline()):
                self._engine_pid = process.pid
            else:
                _pin(process, self._others)
        _pin(psutil.Process(self._engine_pid), self._core)
        return stack


def _pin(process: psutil.Process, core: int) -> None:
    """All threads of it."""
    for thread in process.threads():
        os.sched_setaffinity(thread.id, {core})


def served_of(asks: Sequence[Ask], answers: Sequence[Answer]) -> Served:
    """What clients saw, by the times at which requests were due."""
    arrival_s = np.array([ask.at_s for ask in asks])
    ttft_s = np.array([np.nan if a.ttft_s is None else a.late_s + a.ttft_s for a in answers])
    gaps = [np.array(answer.itl_s) for answer in answers]
    ends = [
        first_s + gap_s.cumsum() for first_s, gap_s in zip(arrival_s + ttft_s, gaps, strict=True)
    ]
    return Served(
        arrival_s,
        arrival_s + ttft_s,
        np.array([at_s[-1] if len(at_s) else np.nan for at_s in ends]),
        np.array([answer.tokens for answer in answers]),
        np.concatenate(gaps),
        np.concatenate(ends),
        np.repeat(np.arange(len(asks)), [len(gap_s) for gap_s in gaps]),
        max(ask.at_s + a.late_s + a.total_s for ask, a in zip(asks, answers, strict=True)),
    )
