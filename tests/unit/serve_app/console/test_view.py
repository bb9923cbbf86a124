"""The JSON that the page gets."""

import json
from typing import Any

from serve_app.console.view import MODEL_COLUMNS, Deployment, View
from tests.builders import batching, engine, histogram_of
from tests.unit.serve_app.snapshots import busy, fleet, snapshot_of

GROUP = "org/model-0a1b2c3d"
SLA = batching(policy="adaptive", sla={"itl_ms": 40, "ttft_ms": 500, "percentile": 95})
LARGE = engine(kv_tokens=3_000_000)
SERVED = Deployment(
    "llm", "BrimfulServer:org--model", "org--model", False, "UPDATING", 2, 3, ("a", "b")
)


def two(seq: int = 1, **changes: Any) -> dict[str, Any]:
    """Two replicas of one group; ``changes`` are of the second."""
    plain = {"group": GROUP, "engine": LARGE, "seq": seq, "arrival_rate_per_s": 2.0}
    return snapshot_of(
        (busy(**plain, replica_id="a"), SLA), (busy(**{**plain, "replica_id": "b", **changes}), SLA)
    )


def test_a_model_is_shown_as_a_whole() -> None:
    view = View()
    tokens = [0.02] * 100
    view.look(two(), [SERVED], 100.0)
    first = sum(one["capacity_per_s"] for one in view.fleet["replicas"])
    view.look(
        two(seq=2, itl=histogram_of([0.02] * 90 + [1.2] * 10 + tokens), late_itl=3), [SERVED], 101.0
    )
    (model,) = view.fleet["models"]
    capacity = sum(one["capacity_per_s"] for one in view.fleet["replicas"])
    assert model == {
        "group": GROUP,
        "policy": "adaptive",
        "on": True,
        "application": "llm",
        "model": "org--model",
        "emulated": False,
        "status": "UPDATING",
        "replicas": 2,
        "wanted": 3,
        "running": 2048,
        "waiting": 26_690,
        "demand_per_s": 4.0,
        "capacity_per_s": round(capacity, 3),
        "out_of_reach": 0,
        "sla": {"itl_ms": 40, "ttft_ms": 500, "percentile": 95},
        "attained": {"itl": 0.97, "ttft": None},
        "stalls": 0,
        "stall_s": 0.8,
    }
    assert view.model(GROUP, 0.0) == {
        "group": GROUP,
        "series": {
            "unix_s": [100.0, 101.0],
            "demand_per_s": [4.0] * 2,
            "capacity_per_s": [round(first, 3), round(capacity, 3)],
            "replicas": [2, 2],
            "wanted": [3, 3],
            "itl": [None, 0.97],
            "ttft": [None, None],
        },
    }
    assert next(iter(view.model(GROUP, 100.0)["series"].values())) == [101.0]
    assert tuple(view.model(GROUP, 0.0)["series"]) == MODEL_COLUMNS


def test_a_deployment_of_which_nobody_reported_is_there_too() -> None:
    view = View()
    coming = Deployment("new", "BrimfulServer:x", "x", False, "UPDATING", 0, 4, ("z",))
    view.look(two(), [SERVED, coming], 1.0)
    assert view.fleet["models"][1] == {
        "group": None,
        "replicas": 0,
        "application": "new",
        "model": "x",
        "emulated": False,
        "status": "UPDATING",
        "running": 0,
        "wanted": 4,
    }


def test_every_kind_of_replica_can_be_shown() -> None:
    view = View()
    view.look(fleet(), [], 1.0)
    text = json.dumps(view.fleet, allow_nan=False)
    assert len(json.loads(text)["replicas"]) == 9
    for one in view.fleet["replicas"]:
        known = view.replica(one["group"], one["replica"], 0.0)
        assert json.dumps(known, allow_nan=False)
    assert view.fleet["switched_off"].startswith("Control is switched off for switched")
