"""What a replica's figures say of how long a request would wait there."""

from dataclasses import replace
from typing import Any

import pytest

from controller.config import BatchingConfig
from controller.models.step_time import fit
from replicas.server.routing_stats import KEY, routing_stats
from serve_app.routing.replica_load import KEY as READ_KEY
from serve_app.routing.replica_load import Asked, LoadDefaults, ReplicaLoad, forecast, read_room
from tests.builders import moments_of, report, sample, stats_of

ROOM = ReplicaLoad(
    taken_unix_s=100.0,
    running=10,
    waiting=0,
    max_running=20,
    prompt_backlog_tokens=0,
    kv_free_tokens=100_000,
    arrivals=50,
    prefill_tokens_per_s=1000.0,
    drain_per_s=2.0,
    mean_prompt_tokens=100.0,
    mean_output_tokens=100.0,
)
ASKED = Asked(500)


@pytest.mark.parametrize(
    ("fields", "asked", "sent", "waits_s"),
    [
        # A prompt waits for the backlog and for itself.
        ({}, ASKED, (0, 0), 0.5),
        ({"prompt_backlog_tokens": 2000}, ASKED, (0, 0), 2.5),
        ({"prompt_backlog_tokens": 2000}, ASKED, (2, 500), 3.0),
        # Above the cap as many have to end as are in excess.
        ({"running": 19}, ASKED, (0, 0), 0.5),
        ({"running": 20}, ASKED, (0, 0), 0.5 + 1 / 2),
        ({"running": 20, "waiting": 5}, ASKED, (1, 0), 0.5 + 7 / 2),
        # So they have where KV memory is short: 100 + 100/2 tokens each; 500 + 100 are needed.
        ({"kv_free_tokens": 600}, ASKED, (0, 0), 0.5),
        ({"kv_free_tokens": 300}, ASKED, (0, 0), 0.5 + 2 / 2),
        ({"kv_free_tokens": 360}, Asked(500, max_tokens=10), (0, 0), 0.5 + 1 / 2),
        # Slow, and without a leader.
        ({"prefill_tokens_per_s": 500.0}, ASKED, (0, 0), 1.0),
        ({"led": False}, ASKED, (0, 0), 1.5 * 0.5),
    ],
)
def test_how_long_a_prompt_waits(fields, asked, sent, waits_s):
    found = forecast(
        replace(ROOM, **fields), asked, LoadDefaults(), sent_requests=sent[0], sent_tokens=sent[1]
    )
    assert found.wait_s == pytest.approx(waits_s)


STEPS = [
    sample(decodes=b, kv_tokens=0, prefill_tokens=p, duration_s=0.02 + 2e-4 * b + 1e-4 * p)
    for b in range(1, 60)
    for p in (0, 50, 200)
]


def published(adaptive: bool = True, **fields: Any) -> ReplicaLoad:
    config = BatchingConfig.model_validate(
        {"policy": "adaptive" if adaptive else "static", "sla": {"itl_ms": 50}}
    )
    known: dict[str, Any] = {
        "model": fit(stats_of(STEPS)),
        "lengths": moments_of([(100, 100)] * 10),
        **fields,
    }
    room = read_room({KEY: routing_stats(report(**known), config, 123.4567)})
    assert room is not None
    return room


def test_what_a_replica_publishes_is_what_the_router_reads() -> None:
    assert KEY == READ_KEY
    room = published(prompt_backlog_tokens=700)
    assert (room.taken_unix_s, room.running, room.waiting) == (123.457, 10, 5)
    assert (room.max_running, room.arrivals, room.kv_free_tokens) == (256, 20, 18_000)
    assert (room.prompt_backlog_tokens, room.led) == (700, True)
    assert (room.mean_prompt_tokens, room.mean_output_tokens) == (100, 100)


def test_its_prefill_rate_is_what_fits_in_a_step_beside_its_decodes() -> None:
    # (50 - 20 - 0.2 x 10) ms / 0.1 ms a token = 280 tokens in a step of 50 ms.
    assert published().prefill_tokens_per_s == pytest.approx(280 / 0.05, rel=0.02)
    # Without an SLA to keep: 2048 - 10 tokens in a step of 20 + 2 + 203.8 ms.
    rate = 2038 / 0.2258
    assert published(adaptive=False).prefill_tokens_per_s == pytest.approx(rate, rel=0.02)
    assert published(enforced=False).prefill_tokens_per_s == pytest.approx(rate, rel=0.02)


def test_a_fallback_is_said_and_what_is_unknown_is_left_out() -> None:
    assert not published(mode="fallback").led
    assert published(mode="local").led
    new = published(model=None, lengths=moments_of([]))
    assert new.prefill_tokens_per_s is new.drain_per_s is new.mean_prompt_tokens is None


def test_while_control_is_off_the_engines_own_size_is_the_cap() -> None:
    assert published(max_running=4).max_running == 4
    assert published(max_running=4, enforced=False).max_running == 256
