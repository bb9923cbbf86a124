"""The console behind HAProxy, beside the application that it shows."""

from typing import Any

import pytest
import requests

from tests.ray.conftest import PORT, wait_reported
from tests.ray.control import replicas, until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("emulated")]

URL = f"http://127.0.0.1:{PORT}/console"


def get(path: str, **query: str) -> requests.Response:
    return requests.get(URL + path, params=query, timeout=30)


def fleet() -> dict[str, Any]:
    answer = get("/api/fleet")
    return answer.json() if answer.ok else {}


def known_to_ray_serve() -> bool:
    return any(model["wanted"] for model in fleet().get("models", []))


async def test_it_shows_what_the_controller_and_ray_serve_know() -> None:
    wait_reported("emulated", 1)
    await until("the replica, and whose it is", known_to_ray_serve)
    shown = fleet()
    (model,) = shown["models"]
    (name,) = replicas("emulated")
    assert (model["application"], model["model"]) == ("emulated", "tiny-emulated")
    assert (model["emulated"], model["replicas"], model["wanted"]) == (True, 1, 1)
    (row,) = shown["replicas"]
    assert (row["replica"], row["control"], shown["error"]) == (name, "on", None)
    known = get("/api/series", group=row["group"], replica=row["replica"]).json()
    assert known["facts"][0].startswith("It runs at most")
    assert known["series"]["unix_s"]


async def test_the_page_is_reached_with_a_slash_and_without() -> None:
    await until("the console's route", lambda: bool(fleet()))
    pages = [get(end) for end in ("", "/")]
    assert [page.status_code for page in pages] == [200, 200]
    assert pages[0].text == pages[1].text
    assert "default-src 'none'" in pages[0].headers["content-security-policy"]
