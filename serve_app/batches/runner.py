"""Processes batches: reads their lines, sends each as a request, keeps the answers."""

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from secrets import token_hex
from typing import Any, TypeVar

from controller import metrics
from controller.metrics import Metric
from serve_app.batches.lines import (
    CANCELLED,
    EXPIRED,
    SAID,
    Line,
    LineError,
    answer_line,
    error_line,
    read_line,
)
from serve_app.batches.progress import Progress
from serve_app.batches.sender import FAILED, REFUSED, TIMED_OUT, Answer
from serve_app.batches.store import ROWS, Row, Store, numbered_lines
from serve_app.batches.window import Window

logger = logging.getLogger("ray.serve")

R = TypeVar("R")
Send = Callable[[str, Mapping[str, Any]], Awaitable[Answer]]
Value = tuple[Metric, tuple[str, ...], float]
# Is told gauges, and what was counted since the runner started: metrics, labels, values.
Publish = Callable[[tuple[Value, ...], tuple[Value, ...]], None]
# As the APIs' usage has them.
USED = {
    "prompt_tokens": "prompt",
    "input_tokens": "prompt",
    "completion_tokens": "completion",
    "output_tokens": "completion",
}

LONGEST_REST_S = 60.0  # before the next try of a batch that failed by storage or database
LOOKS_EVERY_S = 0.5  # for new and cancelled batches
MOST_AHEAD = 64 << 20  # bytes of a batch's lines that were read and have no answer
TRIES = 3  # tries of a request that the server fails
TRIES_IN_TIME = (
    2  # of a request that a timeout of the server ends: the second one with fewer others
)


class Runner:
    """Runs all batches that have not ended at the same time; they share one window.

    Args:
        service_tier: for requests that name none.
        most_open: requests at once, at most.
        clock: Unix time, seconds.
        urgent_tier: for requests of a batch that would miss its window; None: service_tier.
        publish: called with the metrics at every look.
    """

    def __init__(
        self,
        store: Store,
        send: Send,
        service_tier: str | None = None,
        most_open: int = 256,
        clock: Callable[[], float] = time.time,
        *,
        urgent_tier: str | None = None,
        publish: Publish = lambda now, totals: None,
    ) -> None:
        self._store, self._send, self._clock = store, send, clock
        self._most_open = most_open
        self._tier, self._urgent_tier = service_tier, urgent_tier
        self._publish = publish
        self._progress: dict[str, Progress] = {}  # of batches whose lines are sent
        self._answers: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self.window = Window(most_open)
        self._stopped: dict[str, asyncio.Event] = {}
        self._answered: list[Row] = []  # that wait to be written
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Process the store's batches until this is cancelled; the next runner continues.

        While another process holds the store's lock, such as the replaced one during an upgrade,
        that process does the work.
        """
        running: dict[str, asyncio.Task[None]] = {}
        retries: dict[str, tuple[int, float]] = {}  # number of failures, and when to try again
        try:
            while True:
                for batch in self._mine():
                    name = batch["id"]
                    if name not in running and retries.get(name, (0, 0.0))[1] <= self._clock():
                        self._stopped[name] = asyncio.Event()
                        running[name] = asyncio.create_task(self._run(batch))
                    if batch["status"] == "cancelling" and name in running:
                        self._stopped[name].set()
                for name in [name for name, task in running.items() if task.done()]:
                    if error := running[name].exception():
                        times = retries.get(name, (0, 0.0))[0] + 1
                        rest_s = min(LOOKS_EVERY_S * 2.0**times, LONGEST_REST_S)
                        retries[name] = times, self._clock() + rest_s
                        said = "Batch %s stopped with an error; it continues in %g s."
                        logger.error(said, name, rest_s, exc_info=error)
                    del running[name], self._stopped[name]
                self._publish(*self._figures())
                await asyncio.sleep(LOOKS_EVERY_S)
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    def _figures(self) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        now_s, known = self._clock(), list(self._progress.values())
        under_way = sum(one.under_way for one in known)
        oldest = min(known, key=lambda one: one.created_s, default=None)
        end_s = oldest and oldest.end_s(now_s, *self._pace(oldest))
        window_s = max(oldest.due_s - now_s, 0.0) if oldest else 0.0
        waiting = sum(one.left for one in known) - under_way
        return (
            (
                (metrics.BATCH_LINES, ("waiting",), waiting),
                (metrics.BATCH_LINES, ("under_way",), under_way),
                (metrics.BATCH_END, (), end_s or 0.0),
                (metrics.BATCH_WINDOW, (), window_s),
            ),
            (
                *((metrics.BATCH_ANSWERS, (k,), n) for k, n in self._answers.items()),
                *((metrics.BATCH_TOKENS, (k,), n) for k, n in self._tokens.items()),
            ),
        )

    def _pace(self, batch: Progress) -> tuple[int, list[int]]:
        """Input of a batch's forecast: answers of all batches, and lines left of each other one."""
        others = [one.left for one in self._progress.values() if one is not batch]
        return self._answers.total(), others

    def _mine(self) -> list[dict[str, Any]]:
        try:
            return self._store.unfinished() if self._store.lock() else []
        except sqlite3.Error:  # usually a full disk, which may be repaired
            logger.exception("Batches cannot be read; tried again in %g s.", LOOKS_EVERY_S)
            return []

    async def _run(self, batch: dict[str, Any]) -> None:
        if batch["status"] == "validating" and not await self._validate(batch):
            return
        why = None
        if batch["status"] != "finalizing":
            why = await self._answer_all(batch)
        await self._finish(batch, why)

    async def _validate(self, batch: dict[str, Any]) -> bool:
        """Count the lines; returns whether there is anything to do."""

        def counted() -> int:
            with self._store.open_file(batch["input_file_id"]) as opened:
                return sum(1 for _ in numbered_lines(opened))

        try:
            total = await _in_thread(counted)
        except (FileNotFoundError, LineError) as error:
            self._store.move(batch["id"], "failed", errors=_errors("invalid_file", str(error)))
            return False
        if not total:
            errors = _errors("empty_file", "the input file has no requests")
            self._store.move(batch["id"], "failed", errors=errors)
            return False
        counts = {"total": total, "completed": 0, "failed": 0}
        was = ("validating",)
        if self._store.move(batch["id"], "in_progress", only_from=was, request_counts=counts):
            return True
        # It was cancelled meanwhile.
        self._store.move(batch["id"], "cancelling", request_counts=counts)
        self._stopped[batch["id"]].set()
        return True

    async def _answer_all(self, batch: Mapping[str, Any]) -> str | None:
        """Send the lines without an answer; returns why it stopped early, or None."""
        if self._stopped[batch["id"]].is_set():
            return CANCELLED
        work = asyncio.create_task(self._send_all(batch))
        stop = asyncio.create_task(self._stopped[batch["id"]].wait())
        try:
            left_s = max(batch["expires_at"] - self._clock(), 0.0)
            either = {work, stop}
            await asyncio.wait(either, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return None
            return CANCELLED if stop.done() else EXPIRED
        finally:
            for task in (work, stop):
                task.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)
            self._progress.pop(batch["id"], None)
            await self._write()  # the answers that came in time

    async def _send_all(self, batch: Mapping[str, Any]) -> None:
        done = self._store.answered(batch["id"])
        self._progress[batch["id"]] = self._begun(batch, len(done))
        ahead = asyncio.Semaphore(
            self._most_open
        )  # bytes of lines that were read and have no answer
        with self._store.open_file(batch["input_file_id"]) as opened:
            lines = numbered_lines(opened)
            async with asyncio.TaskGroup() as under_way:
                while following := await _in_thread(next, lines, None):
                    number, text = following
                    if number in done:
                        continue
                    share = 1 + len(text) * self._most_open // MOST_AHEAD
                    share = min(share, self._most_open)
                    for _ in range(share):
                        await ahead.acquire()
                    under_way.create_task(self._answer(batch, number, text, ahead, share))

    def _begun(self, batch: Mapping[str, Any], done: int) -> Progress:
        counted = self._store.batch(batch["id"])
        assert counted is not None
        left, due_s = counted["request_counts"]["total"] - done, batch["expires_at"]
        window_s, answers = due_s - batch["created_at"], self._answers.total()
        return Progress(left, due_s, window_s, self._clock(), answers)

    async def _answer(
        self,
        batch: Mapping[str, Any],
        number: int,
        text: bytes,
        ahead: asyncio.Semaphore,
        share: int,
    ) -> None:
        """Get the answer to one line, keep it, and then count it.

        Args:
            share: the line's part of ``ahead``.
        """
        good, used = False, None
        try:
            line = read_line(text, batch["endpoint"], self._tier)
        except LineError as error:
            said = f"line {number}: {error}"
            told = error_line(_line_id(), error.custom_id, "invalid_request", said)
        else:
            answer = await self._answer_to(line, batch)
            good, used = answer.status == 200, answer.body
            told = answer_line(_line_id(), line.custom_id, answer.status, answer.request_id, used)
        self._answered.append((batch["id"], number, good, told))
        await self._write()
        for _ in range(share):
            ahead.release()
        self._answers["answered" if good else "failed"] += 1
        self._progress[batch["id"]].answered()
        self._count_tokens(used)

    async def _write(self) -> None:
        """Return once all answers until now are in the database.

        They are written in groups: the lines that come while one group is written are the next.
        """
        group = self._answered
        async with self._writing:
            if not group:  # another line has written it
                return
            if group is self._answered:
                self._answered = []
            await _in_thread(self._store.add_answers, group)
            group.clear()  # else the next line of the group tries again

    async def _answer_to(self, line: Line, batch: Mapping[str, Any]) -> Answer:
        """Send a request until an answer can be kept."""
        failures = timeouts = 0
        progress = self._progress[batch["id"]]
        while True:
            slot, answer, body = await self.window.take(), None, line.body
            pace = self._pace(progress)
            if self._urgent_tier is not None and progress.late(self._clock(), *pace):
                body = {**body, "service_tier": self._urgent_tier}
            progress.under_way += 1
            try:
                answer = await self._send(batch["endpoint"], body)
            finally:
                progress.under_way -= 1
                if answer is None:
                    self.window.left()
                elif answer.status in REFUSED:
                    self.window.refused(slot, answer.retry_after_s)
                else:
                    self.window.answered()
            failures += answer.status in FAILED
            timeouts += answer.status == TIMED_OUT
            if answer.status not in REFUSED | FAILED:
                return answer
            if failures >= TRIES or timeouts >= TRIES_IN_TIME:
                return answer

    def _count_tokens(self, body: Any) -> None:
        usage = body.get("usage") if isinstance(body, dict) else None
        for name, kind in USED.items():
            tokens = usage.get(name) if isinstance(usage, dict) else None
            if isinstance(tokens, int) and tokens > 0:
                self._tokens[kind] += tokens

    async def _finish(self, batch: Mapping[str, Any], why: str | None) -> None:
        """Write the files; ``why``: the reason if it ended early."""
        name, problems = batch["id"], batch["errors"]
        if why is not None:
            try:
                await _in_thread(self._give_up, batch, why)
            except (FileNotFoundError, LineError) as error:  # or it would never end
                problems = _errors("invalid_file", str(error))
        counted = self._store.batch(name)
        assert counted is not None
        counts = counted["request_counts"]
        if not counts["total"]:  # it was cancelled before its lines were counted
            counts["total"] = counts["completed"] + counts["failed"]
        if why is None:  # marks that every request of the batch has an answer
            self._store.move(name, "finalizing")
        output = await _in_thread(self._store.write_answers, name, good=True)
        errors = await _in_thread(self._store.write_answers, name, good=False)
        ends: dict[str | None, str] = {EXPIRED: "expired", CANCELLED: "cancelled"}
        status = ends.get(why, "completed")
        self._store.move(
            name,
            status,
            output_file_id=output,
            error_file_id=errors,
            request_counts=counts,
            errors=problems,
        )
        await _in_thread(self._store.drop_answers, name)

    def _give_up(self, batch: Mapping[str, Any], why: str) -> None:
        """Make an error line of each request that has no answer."""
        done = self._store.answered(batch["id"])
        rows: list[Row] = []
        try:
            with self._store.open_file(batch["input_file_id"]) as opened:
                for number, text in numbered_lines(opened):
                    if number in done:
                        continue
                    custom_id: str | None
                    try:
                        custom_id = read_line(text, batch["endpoint"]).custom_id
                    except LineError as error:
                        custom_id = error.custom_id
                    told = error_line(_line_id(), custom_id, why, SAID[why])
                    rows.append((batch["id"], number, False, told))
                    if len(rows) == ROWS:
                        self._store.add_answers(rows)
                        rows.clear()
        finally:  # also after lines before an unreadable one
            self._store.add_answers(rows)


async def _in_thread(call: Callable[..., R], *args: Any, **options: Any) -> R:
    """The result; a cancelled caller waits for the thread, which cannot be stopped."""
    work = asyncio.create_task(asyncio.to_thread(call, *args, **options))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def _line_id() -> str:
    return f"batch_req_{token_hex(12)}"


def _errors(code: str, message: str) -> dict[str, Any]:
    one = {"code": code, "message": message, "param": None, "line": None}
    return {"object": "list", "data": [one]}
