"""Files and batches over HTTP, without Ray, whatever is sent."""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from controller.errors import ConfigError
from replicas.door.key_source import KeySource
from replicas.door.settings import KeysFrom
from serve_app.batches.app import batch_app
from serve_app.batches.arguments import settings_of
from serve_app.batches.store import Store

URL = "/v1/completions"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    async def no_work() -> None:
        await asyncio.Event().wait()

    app = batch_app(store, no_work, most_file_bytes=1 << 20)
    with TestClient(app) as made:
        yield made


def file_of(store: Store, purpose: str = "batch") -> str:
    return str(store.add_file("in.jsonl", purpose, BytesIO(b"{}\n"))["id"])


def asked(file_id: str, **changes: Any) -> dict[str, Any]:
    return {"input_file_id": file_id, "endpoint": URL, "completion_window": "24h", **changes}


def test_no_answer_is_without_the_apis_shape(
    store: Store, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: str) -> Any:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "file", full)
    quiet = TestClient(client.app, raise_server_exceptions=False)
    for method, path, status, kind in (
        ("GET", "/v1/nothing", 404, "not_found_error"),
        ("DELETE", "/v1/batches", 405, "invalid_request_error"),
        ("GET", "/v1/files/f", 500, "server_error"),
    ):
        answer = quiet.request(method, path)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (status, status, kind)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"metadata": {"k": 1}}, "metadata"),
        ({"metadata": {str(n): "v" for n in range(17)}}, "metadata"),
        ({"metadata": []}, "metadata"),
        ({"completion_window": "24"}, "completion_window"),
        ({"completion_window": "31d"}, "completion_window"),
        ({"endpoint": "/v1/models"}, "endpoint"),
        ({"endpoint": ["/v1/models"]}, "endpoint"),
        ({"input_file_id": "../lock"}, "input_file_id"),
        ({"input_file_id": "\ud800"}, "input_file_id"),
        ({"input_file_id": 3}, "input_file_id"),
    ],
)
def test_what_is_no_batch_is_named(
    client: TestClient, store: Store, changes: dict[str, Any], said: str
) -> None:
    body = asked(file_of(store)) | changes
    answer = client.post("/v1/batches", content=json.dumps(body))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, said)
    assert store.batches(None, 9) == []


@pytest.mark.parametrize("sent", [b"", b"[]", b"{", b"\xff", b"[" * 100_000], ids=range(5))
def test_a_body_that_is_no_object_is_refused(client: TestClient, sent: bytes) -> None:
    answer = client.post("/v1/batches", content=sent)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "body")


def test_a_body_is_not_read_without_end(client: TestClient, store: Store) -> None:
    body = json.dumps(asked(file_of(store), more="x" * (2 << 20)))
    assert client.post("/v1/batches", content=body).status_code == 413


def test_a_file_that_is_too_large_is_refused(client: TestClient, store: Store) -> None:
    sent = client.post(
        "/v1/files", data={"purpose": "batch"}, files={"file": ("a", b"x" * (3 << 20))}
    )
    assert (sent.status_code, store.files(None, 9)) == (413, [])


@pytest.mark.parametrize("limit", ["0", "10001", "-1", "x", "", "1" * 5000, "²"], ids=range(7))
def test_a_limit_that_is_none_is_named(client: TestClient, limit: str) -> None:
    for path in ("/v1/files", "/v1/batches"):
        answer = client.get(path, params={"limit": limit})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")


def test_pages_follow_each_other_and_know_their_end(client: TestClient, store: Store) -> None:
    files = [file_of(store, purpose) for purpose in ("batch", "batch_output", "batch")]
    newest = files[::-1]
    assert ids(client.get("/v1/files").json()) == newest
    page = client.get("/v1/files", params={"limit": 2}).json()
    assert (ids(page), page["has_more"]) == (newest[:2], True)
    assert (page["first_id"], page["last_id"]) == (newest[0], newest[1])
    page = client.get("/v1/files", params={"limit": 2, "after": newest[1]}).json()
    assert (ids(page), page["has_more"]) == (newest[2:], False)
    assert ids(client.get("/v1/files", params={"purpose": "batch"}).json()) == newest[::2]
    assert ids(client.get("/v1/files", params={"order": "asc"}).json()) == files
    page = client.get("/v1/files", params={"order": "asc", "after": files[0]}).json()
    assert ids(page) == files[1:]
    answer = client.get("/v1/files", params={"order": "up"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "order")
    for path in ("/v1/files", "/v1/batches"):  # the rest of a list is not lost in silence
        answer = client.get(path, params={"after": "file-gone"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "after")


def ids(told: dict[str, Any]) -> list[str]:
    return [one["id"] for one in told["data"]]


def test_a_file_that_a_batch_reads_stays(client: TestClient, store: Store) -> None:
    file_id = file_of(store)
    batch = client.post("/v1/batches", json=asked(file_id)).json()
    assert client.delete(f"/v1/files/{file_id}").status_code == 409
    store.move(batch["id"], "cancelled")
    assert client.delete(f"/v1/files/{file_id}").status_code == 200


def test_a_name_of_a_file_is_a_name_and_no_path(client: TestClient, store: Store) -> None:
    sent = client.post(
        "/v1/files", data={"purpose": "batch"}, files={"file": ("../../x.jsonl", b"{}\r\n")}
    ).json()
    assert (sent["filename"], sent["bytes"]) == ("../../x.jsonl", 4)
    assert client.get(f"/v1/files/{sent['id']}/content").content == b"{}\r\n"
    for path in ("/v1/files/..%2Flock", "/v1/files/../lock/content", "/v1/batches/..%2F"):
        assert client.get(path).status_code == 404
    sent = client.post("/v1/files", data={"purpose": "vision"}, files={"file": ("a", b"{}")})
    assert (sent.status_code, sent.json()["error"]["param"]) == (400, "purpose")
    assert client.post("/v1/files", data={"purpose": "batch"}).json()["error"]["param"] == "file"


def test_it_is_not_healthy_once_nothing_is_carried_out(store: Store) -> None:
    ended = threading.Event()

    async def breaks() -> None:
        await asyncio.to_thread(ended.wait)
        raise RuntimeError("a fault of ours")

    with TestClient(batch_app(store, breaks, most_file_bytes=1)) as client:
        assert client.get("/health").status_code == 200
        ended.set()
        while client.get("/health").status_code == 200:
            time.sleep(0.01)
        assert client.get("/health").status_code == 503


def test_without_a_key_only_the_health_is_told(store: Store, tmp_path: Path) -> None:
    async def no_work() -> None:
        await asyncio.Event().wait()

    secret = "of-16-letters-and-more"
    (tmp_path / "keys").write_text(f"alice {secret}\n")
    keys = KeySource(KeysFrom(file=str(tmp_path / "keys")))
    with TestClient(batch_app(store, no_work, most_file_bytes=1, keys=keys)) as client:
        for key in (None, "Bearer other", f"Basic {secret}", "Bearer", f"Bearer {secret}2"):
            answer = client.get("/v1/batches", headers={"Authorization": key} if key else {})
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
            assert answer.json()["error"]["code"] == 401
        assert client.get("/health").status_code == 200
        good = client.get("/v1/batches", headers={"Authorization": f"bearer {secret}"})
        assert good.status_code == 200


def test_a_key_that_stands_in_the_configuration_is_not_repeated() -> None:
    secret = {"security": {"keys": "sk-0123456789abcdef"}}
    with pytest.raises(ConfigError) as refused:
        settings_of({"serves": "http://h/v1", "folder": "/x", **secret})
    assert "sk-" not in str(refused.value)


def test_only_what_has_not_ended_can_be_cancelled(client: TestClient, store: Store) -> None:
    for status, code in (("validating", 200), ("in_progress", 200), ("finalizing", 409)):
        batch = store.add_batch(URL, "f", "24h", 10, None)
        store.move(batch["id"], status)
        answer = client.post(f"/v1/batches/{batch['id']}/cancel")
        assert answer.status_code == code
        told = client.get(f"/v1/batches/{batch['id']}").json()
        assert told["status"] == ("cancelling" if code == 200 else status)
    assert client.post("/v1/batches/none/cancel").status_code == 404


def test_an_upload_that_breaks_off_leaves_nothing(store: Store) -> None:
    class Broken(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        store.add_file("in.jsonl", "batch", Broken())
    assert store.files(None, 9) == store._fs.ls(store._root) == []
