"""One core of the lab: makes tasks, each in a process of its own that is pinned to it."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.engine_lab.results import ENGINE_RUN, REPLAYS, Results, key_of, origin
from benchmarks.engine_lab.schedule import expected_s
from benchmarks.engine_lab.tasks import BesideTask, EngineTask, RankTask, RateTask, RecordTask, Task

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_TARGET_DEVICE": "cpu",
}


class Lab:
    """Call its methods from one thread.

    Args:
        model: a folder that vLLM serves.
        steps: the folder of recorded steps, a file a run; made where it is not there.
        bar: in seconds, of all labs.
    """

    def __init__(
        self, core: int, model: Path, results: Results, steps: Path, bar: "tqdm[Any]"
    ) -> None:
        self._core, self._model, self._steps = core, model, steps
        self._results, self._bar = results, bar
        os.environ.update(ENVIRONMENT)
        steps.mkdir(parents=True, exist_ok=True)
        self._pool = ProcessPoolExecutor(
            1,
            mp_context=get_context("spawn"),
            initializer=_settle,
            initargs=(core, steps / f"core-{core}.log"),
            max_tasks_per_child=1,
        )

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def do(self, task: Task) -> Any:
        """Its result, made now or before; None: of a replay whose recorded steps are not here."""
        return found_or_made(task, self._results, self._bar, self._make)

    def _make(self, task: Task) -> Any:
        if isinstance(task, EngineTask | RecordTask):
            found = self._call(ENGINE_RUN, task, self._model)
            self._keep_steps(task, found.pop("recording"))
            return found
        profile = self._profile(task)
        return None if profile is None else self._call(REPLAYS, task, profile)

    def _call(self, module: str, *args: Any) -> Any:
        return self._pool.submit(_run, module, *args).result()

    def _profile(self, task: Task) -> Path | None:
        """The file of steps that a replay is of."""
        if isinstance(task, BesideTask):
            paths = [self._path(run) for run in task.runs]
            return self._together(paths) if all(path.exists() for path in paths) else None
        assert isinstance(task, RateTask | RankTask)
        recorded = RecordTask(task.ground)
        if not self._path(recorded).exists():
            key = key_of(recorded)
            self._results.add(key, self._make(recorded))
        return self._path(recorded)

    def _path(self, task: Task) -> Path:
        key = json.dumps(key_of(task), sort_keys=True)
        return self._steps / f"{sha256(key.encode()).hexdigest()[:16]}.json"

    def _keep_steps(self, task: EngineTask | RecordTask, recording: dict[str, Any]) -> None:
        what = f"{task.rate_per_s:g} streams/s" if isinstance(task, EngineTask) else "light, heavy"
        about = {**origin(), "model": task.ground.model, "load": what}
        entry = {key: about[key] for key in ("machine", "model", "versions", "load")} | recording
        _write(self._path(task), {task.ground.model: entry})

    def _together(self, paths: Sequence[Path]) -> Path:
        """Their steps one after the other, of an engine as the first had it."""
        entries = [
            entry for path in paths for entry in json.loads(path.read_text())["recordings"].values()
        ]
        columns = entries[0]["steps"]
        steps = {name: [x for entry in entries for x in entry["steps"][name]] for name in columns}
        path = self._steps / f"row-{self._core}.json"
        _write(path, {"row": {**entries[0], "steps": steps}})
        return path


def found_or_made(
    task: Task, results: Results, bar: "tqdm[Any]", make: Callable[[Task], Any]
) -> Any:
    """The kept result of a task, or else the one that ``make`` returns, kept unless it is None."""
    key = key_of(task)
    found = results.get(key)
    if found is not None:
        bar.initial += expected_s(task)  # took no time: the estimate leaves it out
    else:
        found = make(task)
        if key_of(task) != key:
            bar.write("code was edited while a task ran it: its result is not kept", sys.stderr)
        elif found is not None:
            results.add(key, found)
    bar.update(expected_s(task))
    return found


def _write(path: Path, recordings: dict[str, Any]) -> None:
    path.write_text(json.dumps({"source": "make bench-cpu", "recordings": recordings}) + "\n")


def _settle(core: int, log: Path) -> None:
    """Stay on this core, and out of the progress bar: what libraries say goes to a file."""
    os.sched_setaffinity(0, {core})
    with log.open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())


def _run(module: str, *args: Any) -> Any:
    # By name: an import of vLLM takes seconds, and its threads have to begin on this core.
    return import_module(module).run(*args)
