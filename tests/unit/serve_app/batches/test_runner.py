"""Batches are carried out, whatever the server and the process do meanwhile."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fsspec.spec import AbstractBufferedFile

from serve_app.batches.runner import Runner
from serve_app.batches.sender import Answer
from serve_app.batches.store import Store

URL = "/v1/completions"
ENDS = ("completed", "failed", "expired", "cancelled")
Send = Callable[[str, Mapping[str, Any]], Awaitable[Answer]]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


def request(number: int, **body: Any) -> bytes:
    told = {"custom_id": f"r{number}", "method": "POST", "url": URL, "body": {"n": number, **body}}
    return json.dumps(told).encode() + b"\n"


def batch_of(store: Store, *lines: bytes, window_s: float = 1000) -> str:
    file = store.add_file("in.jsonl", "batch", BytesIO(b"".join(lines)))
    return str(store.add_batch(URL, file["id"], "24h", window_s, {"k": "v"})["id"])


async def ended(store: Store, batch_id: str, send: Send, **options: Any) -> dict[str, Any]:
    """The batch after a runner has carried it out."""
    running = asyncio.create_task(Runner(store, send, **options).run())
    try:
        while (told := store.batch(batch_id)) is None or told["status"] not in ENDS:
            assert not running.done()
            await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return told


def lines_of(store: Store, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    with store.open_file(file_id) as opened:
        return [json.loads(line) for line in opened]


async def echo(endpoint: str, body: Mapping[str, Any]) -> Answer:
    return Answer(200, {"endpoint": endpoint, **body}, request_id="q")


async def test_every_request_is_answered_in_the_order_of_the_file(store: Store) -> None:
    lines = b"\xef\xbb\xbf", *map(request, range(40))  # a byte-order mark is no part of the first
    told = await ended(store, batch_of(store, *lines), echo)
    assert (told["status"], told["error_file_id"]) == ("completed", None)
    assert told["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
    out = lines_of(store, told["output_file_id"])
    assert [line["custom_id"] for line in out] == [f"r{n}" for n in range(40)]
    assert out[3]["response"] == {
        "status_code": 200,
        "request_id": "q",
        "body": {"endpoint": URL, "n": 3},
    }
    assert told["metadata"] == {"k": "v"}
    for when in ("in_progress_at", "finalizing_at", "completed_at"):
        assert told["created_at"] <= told[when] <= told["expires_at"]


async def test_a_malformed_line_and_a_refused_request_are_error_lines(store: Store) -> None:
    async def refuses_one(endpoint: str, body: Mapping[str, Any]) -> Answer:
        return Answer(400, {"error": {"message": "no"}}) if body["n"] == 1 else Answer(200, {})

    lines = request(0), b"{oh\n", b"\n", request(1), request(2, stream=True), request(3)
    told = await ended(store, batch_of(store, *lines), refuses_one)
    assert told["status"] == "completed"
    assert told["request_counts"] == {"total": 5, "completed": 2, "failed": 3}
    errors = lines_of(store, told["error_file_id"])
    assert [line["custom_id"] for line in errors] == [None, "r1", "r2"]
    assert errors[0]["error"]["message"] == "line 2: the line is not JSON"
    assert errors[1]["response"]["status_code"] == 400


@pytest.mark.parametrize("status", [0, 401, 429, 503, 500, 502])
async def test_what_is_refused_or_fails_is_sent_again(store: Store, status: int) -> None:
    tries: dict[int, int] = {}

    async def later(endpoint: str, body: Mapping[str, Any]) -> Answer:
        tries[body["n"]] = tries.get(body["n"], 0) + 1
        if tries[body["n"]] < 3:
            return Answer(status, {"error": {}}, retry_after_s=0.0)
        return Answer(200, {})

    told = await ended(store, batch_of(store, *map(request, range(5))), later)
    assert told["request_counts"] == {"total": 5, "completed": 5, "failed": 0}
    assert set(tries.values()) == {3}


@pytest.mark.parametrize(("status", "tries"), [(500, 3), (408, 2)])
async def test_what_fails_again_is_an_error_line_with_its_reason(
    store: Store, status: int, tries: int
) -> None:
    """A request that needs longer than a clock of the server is sent once more, not for a day."""
    sent: list[int] = []

    async def fails(endpoint: str, body: Mapping[str, Any]) -> Answer:
        sent.append(body["n"])
        if body["n"]:
            return Answer(200, {})
        return Answer(status, {"error": {"message": "why"}}, retry_after_s=0.0)

    told = await ended(store, batch_of(store, request(0), request(1)), fails)
    assert sorted(sent) == [0] * tries + [1]
    (line,) = lines_of(store, told["error_file_id"])
    assert line["response"]["status_code"] == status
    assert line["response"]["body"]["error"]["message"] == "why"
    assert told["status"] == "completed"
    assert told["request_counts"] == {"total": 2, "completed": 1, "failed": 1}


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("unfinished", sqlite3.OperationalError("disk I/O error")),
        ("open_file", OSError("away")),
        ("open_file", TypeError("a fault of ours")),
        ("add_answers", sqlite3.OperationalError("database or disk is full")),
        ("write_answers", OSError("no space left")),
    ],
    ids=str,
)
async def test_what_fails_in_the_store_is_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception
) -> None:
    monkeypatch.setattr("serve_app.batches.runner.LOOKS_EVERY_S", 0.01)
    works, fails = getattr(store, method), [error] * 3

    def call(*args: Any, **options: Any) -> Any:
        if fails:
            raise fails.pop()
        return works(*args, **options)

    batch_id = batch_of(store, *map(request, range(40)))
    monkeypatch.setattr(store, method, call)
    told = await ended(store, batch_id, echo)
    assert (told["status"], fails) == ("completed", [])
    assert told["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
    assert len(lines_of(store, told["output_file_id"])) == 40


async def test_a_sender_that_fails_costs_no_slot(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.batches.runner.LOOKS_EVERY_S", 0.01)
    sent: list[int] = []

    async def breaks(endpoint: str, body: Mapping[str, Any]) -> Answer:
        sent.append(body["n"])
        if len(sent) in (3, 5, 9):
            raise RuntimeError("a fault of ours")
        return Answer(200, {})

    told = await ended(store, batch_of(store, *map(request, range(20))), breaks, most_open=2)
    assert told["request_counts"] == {"total": 20, "completed": 20, "failed": 0}


async def test_what_has_come_is_kept_by_who_is_told_to_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, add, sent = threading.Event(), store.add_answers, list[int]()

    def slow(rows: Any) -> None:
        go_on.wait()
        add(rows)

    async def counts(endpoint: str, body: Mapping[str, Any]) -> Answer:
        sent.append(body["n"])
        return Answer(200, {})

    monkeypatch.setattr(store, "add_answers", slow)
    batch_id = batch_of(store, *map(request, range(8)))
    running = asyncio.create_task(Runner(store, counts).run())
    while len(sent) < 8:  # noqa: ASYNC110 - the runner's work
        await asyncio.sleep(0.01)
    running.cancel()
    go_on.set()
    await asyncio.gather(running, return_exceptions=True)
    assert store.answered(batch_id) == set(range(1, 9))


async def test_another_process_goes_on_where_one_was_killed(tmp_path: Path) -> None:
    first = Store(tmp_path)
    sent: list[int] = []

    async def half(endpoint: str, body: Mapping[str, Any]) -> Answer:
        if body["n"] >= 10:
            await asyncio.Event().wait()
        sent.append(body["n"])
        return Answer(200, {})

    batch_id = batch_of(first, *map(request, range(20)))
    running = asyncio.create_task(Runner(first, half).run())
    while len(first.answered(batch_id)) < 10:  # noqa: ASYNC110 - another process's work
        await asyncio.sleep(0.01)
    second = Store(tmp_path)
    assert not second.lock()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    first.close()

    async def rest(endpoint: str, body: Mapping[str, Any]) -> Answer:
        sent.append(body["n"])
        return Answer(200, {})

    told = await ended(second, batch_id, rest)
    assert told["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
    assert sorted(sent) == list(range(20))


async def test_a_cancelled_batch_keeps_its_answers(store: Store) -> None:
    batch_id = batch_of(store, *map(request, range(12)))
    cut = asyncio.Event()

    async def slow(endpoint: str, body: Mapping[str, Any]) -> Answer:
        if body["n"] >= 5:
            store.move(batch_id, "cancelling", only_from=("in_progress",))
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cut.set()
                raise
        return Answer(200, {})

    told = await ended(store, batch_id, slow)
    assert told["status"] == "cancelled"
    assert cut.is_set()
    assert len(lines_of(store, told["output_file_id"])) == 5
    errors = lines_of(store, told["error_file_id"])
    assert [line["custom_id"] for line in errors] == [f"r{n}" for n in range(5, 12)]
    assert {line["error"]["code"] for line in errors} == {"batch_cancelled"}


async def test_what_is_not_answered_in_its_window_expires(store: Store) -> None:
    batch_id = batch_of(store, *map(request, range(3)), window_s=0)
    store.add_answers([(batch_id, 2, False, {"error": {"code": "invalid_request"}})])
    told = await ended(store, batch_id, echo)
    assert told["status"] == "expired"
    errors = lines_of(store, told["error_file_id"])
    codes = ["batch_expired", "invalid_request", "batch_expired"]
    assert [line["error"]["code"] for line in errors] == codes


async def test_files_of_buckets_which_read_whole_lines_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bucket(AbstractBufferedFile):  # type: ignore[misc]
        def _fetch_range(self, start: int, end: int) -> bytes:
            return Path(self.path).read_bytes()[start:end]

    fs = store._fs
    monkeypatch.setattr(type(fs), "open", fs.open.__func__)
    plain = type(fs).open

    def opens(self: Any, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            return Bucket(self, path, mode, size=self.size(path))
        return plain(self, path, mode, **options)

    monkeypatch.setattr(type(fs), "open", opens)
    told = await ended(store, batch_of(store, *map(request, range(3))), echo)
    assert told["request_counts"] == {"total": 3, "completed": 3, "failed": 0}


async def test_a_batch_cancelled_before_it_began_counts_its_lines(store: Store) -> None:
    batch_id = batch_of(store, *map(request, range(3)))
    store.move(batch_id, "cancelling")
    told = await ended(store, batch_id, echo)
    assert told["request_counts"] == {"total": 3, "completed": 0, "failed": 3}


@pytest.mark.parametrize(("lines", "code"), [((), "empty_file"), ((b"\n \n",), "empty_file")])
async def test_a_file_without_requests_fails(
    store: Store, lines: tuple[bytes, ...], code: str
) -> None:
    told = await ended(store, batch_of(store, *lines), echo)
    assert (told["status"], told["errors"]["data"][0]["code"]) == ("failed", code)


async def test_a_batch_that_would_miss_its_window_is_sent_as_the_urgent_class(store: Store) -> None:
    now_s, tiers = [0.0], []

    async def slow(endpoint: str, body: Mapping[str, Any]) -> Answer:
        tiers.append(body["service_tier"])
        now_s[0] += 20.0  # of a window of 2,400 s, whose rate is measured over 100
        return Answer(200, {})

    name = batch_of(store, *map(request, range(200)))
    batch = store.batch(name)
    assert batch is not None
    now_s[0] = batch["created_at"]
    batch = store.move(name, "validating", expires_at=batch["created_at"] + 2400)
    options = {"service_tier": "late", "urgent_tier": "online", "most_open": 1}
    told = await ended(store, name, slow, clock=lambda: now_s[0], **options)
    assert told["request_counts"]["completed"] == 200
    assert tiers[:5] == ["late"] * 5
    assert set(tiers[6:]) == {"online"}  # at 20 s each they take 4,000


@pytest.mark.parametrize("gone", [True, False])
async def test_a_batch_whose_file_cannot_be_read_ends_when_it_is_given_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr("serve_app.batches.store.LONGEST_LINE", 500)
    batch_id = batch_of(store, request(0), request(1, prompt="x" * 500))
    if gone:
        batch = store.batch(batch_id)
        assert batch is not None
        store._fs.rm_file(store._path(batch["input_file_id"]))
    store.move(batch_id, "cancelling")
    told = await ended(store, batch_id, echo)
    assert (told["status"], told["errors"]["data"][0]["code"]) == ("cancelled", "invalid_file")
    errors = lines_of(store, told["error_file_id"])
    assert [line["custom_id"] for line in errors] == ([] if gone else ["r0"])


@pytest.mark.parametrize("how", ["completed", "cancelled", "expired"])
async def test_a_batch_has_one_file_of_answers_wherever_its_process_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The process ends before the batch is told to have ended, then before its answers go."""
    lines = request(0), request(1), b"{\n"
    batch_id = batch_of(store := Store(tmp_path), *lines, window_s=0 if how == "expired" else 1000)
    if how == "expired":
        store.add_answers([(batch_id, 1, True, {}), (batch_id, 3, False, {})])

    async def some(endpoint: str, body: Mapping[str, Any]) -> Answer:
        if how != "completed" and body["n"]:
            if how == "cancelled":
                store.move(batch_id, "cancelling", only_from=("in_progress",))
            await asyncio.Event().wait()
        return Answer(200, {})

    for broken in ("move", "drop_answers"):
        with monkeypatch.context() as patched:
            fails = asyncio.Event()
            whole = getattr(store, broken)

            def killed(*args: Any, whole: Any = whole, fails: Any = fails, **changes: Any) -> Any:
                if "output_file_id" in changes or len(args) == 1:
                    fails.set()
                    raise SystemError
                return whole(*args, **changes)

            patched.setattr(store, broken, killed)
            running = asyncio.create_task(Runner(store, some).run())
            await fails.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        store.close()
        store = Store(tmp_path)
    told = store.batch(batch_id)
    assert told is not None
    good, bad = (2, 1) if how == "completed" else (1, 2)
    assert (told["status"], told["request_counts"]) == (
        how,
        {"total": 3, "completed": good, "failed": bad},
    )
    assert len(lines_of(store, told["output_file_id"])) == good
    assert len(lines_of(store, told["error_file_id"])) == bad
    listed = [file["id"] for file in store.files(None, 9)]
    ours = {told["output_file_id"], told["error_file_id"], told["input_file_id"]}
    assert sorted(listed) == sorted(ours)
    assert {path.rpartition("/")[2] for path in store._fs.ls(store._root, detail=False)} == ours
    assert store.answered(batch_id) == set()


def test_a_write_beside_what_another_process_wrote(tmp_path: Path) -> None:
    """Both replicas of an upgrade have the folder; a reader may not be of before the other's."""
    store, other = Store(tmp_path), Store(tmp_path)
    batch_id = batch_of(store, *map(request, range(300)))
    store.add_answers((batch_id, number, True, {"n": number}) for number in range(1, 301))
    answers = store._answers(batch_id, good=True)
    found = [next(answers)]
    batch_of(other, request(0))
    store.add_answers([(batch_id, 301, True, {"n": 301})])
    found += answers
    assert [json.loads(line)["n"] for line in found][:300] == list(range(1, 301))


async def test_nothing_is_written_once_the_runner_has_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes the work over, once the lock is given back, is alone with the files."""
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()
    writes = store.write_answers

    def slow(*args: Any, **options: Any) -> Any:
        begun.set()
        go_on.wait()
        try:
            return writes(*args, **options)
        finally:
            done.set()

    monkeypatch.setattr(store, "write_answers", slow)
    batch_of(store, request(0))
    running = asyncio.create_task(Runner(store, echo).run())
    await asyncio.to_thread(begun.wait)
    running.cancel()
    asyncio.get_running_loop().call_later(0.1, go_on.set)
    await asyncio.gather(running, return_exceptions=True)
    assert done.is_set()


async def test_of_large_requests_few_are_held_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve_app.batches.runner.MOST_AHEAD", 2000)
    open_: dict[bool, int] = {True: 0, False: 0}
    most = dict(open_)
    full = asyncio.Event()  # small ones end once as many are open as may be

    async def slow(endpoint: str, body: Mapping[str, Any]) -> Answer:
        large = len(body["p"]) > 100
        open_[large] += 1
        most[large] = max(most[large], open_[large])
        if open_[False] == 8:
            full.set()
        await (asyncio.sleep(0.01) if large else full.wait())
        open_[large] -= 1
        return Answer(200, {})

    lines = [request(n, p="x" * (900 if n < 6 else 1)) for n in range(24)]
    lines.append(request(24, p="x" * 9000))  # larger than all that may be held
    told = await ended(store, batch_of(store, *lines), slow, most_open=8)
    assert told["request_counts"]["completed"] == 25
    assert most == {True: 2, False: 8}


async def test_a_batch_that_has_all_its_answers_does_not_expire(store: Store) -> None:
    batch_id = batch_of(store, request(0), window_s=0)
    store.add_answers([(batch_id, 1, True, {"custom_id": "r0"})])
    counts = {"total": 1, "completed": 0, "failed": 0}
    store.move(batch_id, "finalizing", request_counts=counts)
    told = await ended(store, batch_id, echo)
    assert told["status"] == "completed"
    assert told["request_counts"] == {"total": 1, "completed": 1, "failed": 0}


def test_the_first_answer_to_a_line_stays(store: Store) -> None:
    for text in ("first", "second"):
        store.add_answers([("b", 1, True, {"text": text})])
    assert list(store._answers("b", good=True)) == [b'{"text": "first"}\n']
