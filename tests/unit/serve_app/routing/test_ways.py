"""Which way a request takes."""

import random
from itertools import pairwise

import pytest

from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.replica_load import Asked, ReplicaLoad
from serve_app.routing.ways import WayChooser


def room(**said: float) -> ReplicaLoad:
    usual: dict[str, float] = {
        "taken_unix_s": 100.0, "running": 50, "waiting": 0, "max_running": 47,
        "prompt_backlog_tokens": 0, "kv_free_tokens": 150_000, "arrivals": 1000,
        "prefill_tokens_per_s": 1900.0, "drain_per_s": 20.0, "mean_prompt_tokens": 257.0,
        "mean_output_tokens": 62.0, "most_running": 256, "most_decodes": 100,
    }  # fmt: skip
    return ReplicaLoad(**{**usual, **said})  # type: ignore[arg-type]


def ways(
    transfer_s: float = 0.03, direct: bool = True, handover_s: float = 0.075
) -> WayChooser[str]:
    chooser: HeadroomChooser[str] = HeadroomChooser(rng=random.Random(1))
    return WayChooser(chooser, lambda tokens: transfer_s, handover_s, direct=direct)


def told(one: WayChooser[str], **rooms: ReplicaLoad) -> WayChooser[str]:
    for name, its in rooms.items():
        one.chooser.update(name, its, 100.1)
    return one


POOL = room(running=2, prefill_tokens_per_s=7500.0, most_decodes=None)
ASKED = Asked(257.0, 500.0)


BUSY = room(running=95, prefill_tokens_per_s=320.0)
FULL = room(running=40, prefill_tokens_per_s=7500.0, prompt_backlog_tokens=9000)
LONG, SHORT = Asked(3000.0), Asked(40.0)


@pytest.mark.parametrize(
    ("one", "rooms", "asked", "at_s", "prefill"),
    [
        # A long prompt goes through, a short one into slack.
        (ways(), {"d": room(), "p": POOL}, LONG, 100.1, "p"),
        (ways(), {"d": room(), "p": POOL}, SHORT, 100.1, None),
        # Where decodes fill their steps all goes through.
        (ways(), {"d": BUSY, "p": POOL}, ASKED, 100.1, "p"),
        # A slow link keeps a prompt where it is, unless none may go direct.
        (ways(transfer_s=3.0), {"d": room(), "p": POOL}, ASKED, 100.1, None),
        (ways(transfer_s=3.0, direct=False), {"d": room(), "p": POOL}, ASKED, 100.1, "p"),
        # Overflow of the pool goes direct; a second later it has computed what was there.
        (ways(), {"d": room(), "p": FULL}, ASKED, 100.1, None),
        (ways(), {"d": room(), "p": FULL}, Asked(600.0), 101.3, "p"),
        # What the handover takes may make the way through the longer one.
        (ways(handover_s=5.0), {"d": room(), "p": POOL}, LONG, 100.1, None),
    ],
)
def test_which_way_a_prompt_takes(one, rooms, asked, at_s, prefill):
    assert told(one, **rooms).choose(["d"], ["p"], asked, at_s).prefill == prefill


def test_what_is_on_a_card_already_is_waited_for() -> None:
    one = told(ways(transfer_s=0.3, direct=False), d=room(), p=POOL)
    waits = [one.choose(["d"], ["p"], Asked(75.0), 100.1).wait_s for _ in range(3)]
    assert [b - a for a, b in pairwise(waits)] == pytest.approx([0.3, 0.3], abs=0.03)


def test_a_place_whose_card_is_free_is_worth_a_longer_wait_there() -> None:
    one = told(ways(transfer_s=3.0, direct=False), d=room(), e=room(running=90), p=POOL, q=POOL)
    taken = [one.choose(["d", "e"], ["p", "q"], ASKED, 100.1) for _ in range(2)]
    assert [way.decode for way in taken] == ["d", "e"]
    assert {way.prefill for way in taken} == {"p", "q"}
