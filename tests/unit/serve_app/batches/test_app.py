"""Files and batches over HTTP, without Ray, whatever is sent."""

import asyncio
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from serve_app.batches.app import batch_app
from serve_app.batches.store import Store

URL = "/v1/completions"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state")


@pytest.fixture
def client(store: Store) -> Iterator[TestClient]:
    app = batch_app(store, asyncio.Event().wait, most_file_bytes=1 << 20)
    with TestClient(app) as made:
        yield made


def file_of(store: Store, purpose: str = "batch") -> str:
    return str(store.add_file("in.jsonl", purpose, BytesIO(b"{}\n"))["id"])


def asked(file_id: str, **changes: Any) -> dict[str, Any]:
    return {"input_file_id": file_id, "endpoint": URL, "completion_window": "24h", **changes}


def test_text_that_is_no_unicode_is_told_as_it_came(client: TestClient, store: Store) -> None:
    body = asked(file_of(store), metadata={"k": "\ud800"})
    made = client.post("/v1/batches", content=json.dumps(body))
    assert (made.status_code, made.json()["metadata"]) == (200, {"k": "\ud800"})
    assert len(client.get("/v1/batches").json()["data"]) == 1
