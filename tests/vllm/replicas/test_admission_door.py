"""Admission behind the door: one reading of a body, and classes by key."""

from pathlib import Path

import httpx
import pytest

from controller.classes import parse_admission
from replicas.admission.admission import Admission
from replicas.admission.gate import Gate
from replicas.admission.http import AdmissionMiddleware
from replicas.door.door import Door, Rules
from replicas.door.http import DoorMiddleware
from replicas.door.settings import parse_security
from tests.unit.replicas.admission.builders import CLASSES
from tests.vllm.replicas.test_admission_http import Engine, app_of, ask


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def gate(engine: Engine) -> Gate:
    made = Gate(Admission(CLASSES, parse_admission(None), 10, 0.0), named_classes=True)
    made.guard(engine)
    return made


async def test_behind_the_door_a_body_is_read_once_and_admission_goes_by_what_was_read(
    engine: Engine, gate: Gate, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("bob sk-bob-0123456789 classes=batch,silver")
    rules = Rules(parse_security({"keys": {"file": str(keys)}}))
    app = DoorMiddleware(AdmissionMiddleware(app_of(engine), gate), Door(rules))
    headers = {"authorization": "Bearer sk-bob-0123456789"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://r") as made:
        assert (await ask(made, headers)).status_code == 200
        served = await ask(made, headers, service_tier="silver")
        hidden = b'{"service\\u005ftier": "gold"}'  # JSON's other way to write it
        refused = await made.post("/v1/completions", content=hidden, headers=headers)
        gate.admission.configure(CLASSES, parse_admission({"max_body_mb": 0.0001}))
        long = await ask(made, headers, prompt="a" * 200)
    assert engine.priorities == [20, 10]
    assert served.json()["service_tier"] == "silver"
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "permission_error")
    assert long.status_code == 413
