"""From which end of the fleet a class is served, and what that does to a choice."""

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.gather import End, end_of, ends_of
from serve_app.routing.replica_load import Asked
from tests.unit.serve_app.routing.rooms import ASKED, NOW_S, chooser, room

CLASSES = {"gold": (50.0, 2.0), "silver": (100.0, 6.0), "batch": (None, 600.0)}
FRONT, BACK = End(True, 0.4), End(False, 0.4)


def many(places: int, affinity: bool = False, **fields: Any) -> HeadroomChooser[int]:
    """A chooser among so many replicas; a field may be a function of the replica."""
    made: HeadroomChooser[int] = HeadroomChooser(prefix_affinity=affinity, rng=random.Random(1))
    for k in range(places):
        of_k = {name: value(k) if callable(value) else value for name, value in fields.items()}
        made.update(k, room(**of_k), NOW_S)
    return made


def test_the_strictest_is_served_from_the_first_on_and_all_others_from_the_last() -> None:
    ends = ends_of(CLASSES)
    assert [name for name, end in ends.items() if end.first] == ["gold"]
    # An eighth of the time to first token, and no more than five seconds.
    assert [end.patience_s for end in ends.values()] == [0.25, 0.75, 5.0]


@pytest.mark.parametrize(
    "classes", [{}, {"a": (None, 2.0), "b": (None, 9.0)}, {"a": (50.0, 2.0), "b": (50.0, 600.0)}]
)
def test_where_all_have_the_same_time_between_tokens_nothing_is_gathered(
    classes: dict[str, tuple[float | None, float]],
) -> None:
    assert ends_of(classes) == {}


@pytest.mark.parametrize(
    "payload", [None, SimpleNamespace(), SimpleNamespace(service_tier="none"),
                SimpleNamespace(service_tier=7), SimpleNamespace(service_tier=None),
                SimpleNamespace(service_tier=["gold"])],
)  # fmt: skip
def test_a_request_that_names_no_class_in_its_body_has_no_end(payload: Any) -> None:
    ends = ends_of(CLASSES)
    assert end_of(payload, ends) is None
    silver = SimpleNamespace(service_tier="silver")
    assert (end_of(silver, ends), end_of(silver, {})) == (ends["silver"], None)


def test_where_all_wait_alike_each_goes_to_its_end() -> None:
    made = chooser({name: room() for name in "abc"})
    for _ in range(20):
        assert made.choose("abc", ASKED, NOW_S, end=FRONT).replica == "a"
        assert made.choose("abc", ASKED, NOW_S, end=BACK).replica == "c"
    free = {made.choose("abc", ASKED, NOW_S).replica for _ in range(100)}
    assert free == set("abc")


@pytest.mark.parametrize("places", [3, 8, 16, 64])
def test_a_long_prompt_is_gathered_as_well(places: int) -> None:
    """All wait 1.5 s alike, and those before the end are fuller: that is what gathering means."""
    made = many(places, running=lambda k: places - k, max_running=256)
    assert made.choose(range(places), Asked(1500), NOW_S, end=End(True, 0.25)).replica == 0


def test_the_cap_is_of_the_strictest_and_others_fill_a_replica_beyond_it() -> None:
    """A replica's cap follows ``batching.sla``, which names the strictest class."""
    full = room(running=20, most_running=256)
    made = chooser({"a": full, "b": full, "c": full})
    strict = made.choose("abc", ASKED, NOW_S, end=FRONT)
    loose = made.choose("abc", ASKED, NOW_S, end=BACK)
    assert strict.wait_s == pytest.approx(1.0) and loose.wait_s == pytest.approx(0.5)
    # One that does not say what it could run goes by its cap.
    old = chooser({name: room(running=20) for name in "abc"})
    assert old.choose("abc", ASKED, NOW_S, end=BACK).wait_s == pytest.approx(1.0)
    # The same for the rate of prompts with the SLA, and without.
    quick = chooser({name: room(most_prefill_tokens_per_s=5000.0) for name in "abc"})
    assert quick.choose("abc", ASKED, NOW_S, end=FRONT).wait_s == pytest.approx(0.5)
    assert quick.choose("abc", ASKED, NOW_S, end=BACK).wait_s == pytest.approx(0.1)


@given(
    st.lists(st.integers(0, 4000), min_size=1, max_size=9),
    st.booleans(),
    st.floats(0, 10),
    st.integers(0, 3),
)
def test_nobody_waits_longer_than_elsewhere_by_more_than_the_patience(
    backlogs: list[int], first: bool, patience_s: float, seed: int
) -> None:
    made: HeadroomChooser[int] = HeadroomChooser(rng=random.Random(seed))
    for k, tokens in enumerate(backlogs):
        made.update(k, room(prompt_backlog_tokens=tokens), NOW_S)
    end = End(first, patience_s)
    chosen = made.choose(range(len(backlogs)), Asked(500), NOW_S, end=end).replica
    waits = [tokens / 1000 + 0.5 for tokens in backlogs]
    # Waits that are closer than a twentieth are the same to it.
    assert waits[chosen] <= (min(waits) + patience_s) * 1.05 + 0.002
