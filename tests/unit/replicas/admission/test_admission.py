"""Which requests are admitted or refused, and how fast waiting ones are served."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.classes import MOST_PRIORITY
from controller.config import Sla
from controller.models.step_time import StepModel
from replicas.admission.drain import DrainRate, EngineView, engine_view
from replicas.admission.waiting import level_of
from tests.builders import report
from tests.unit.replicas.admission.builders import admission, asked

FULL = EngineView(free_slots=0, requests_per_s=10.0, prompt_tokens_per_s=10_000.0)


def full():
    """Nothing is free of an engine that serves ten a second."""
    made = admission(slots=100)
    made.waiting.learn(FULL)
    return made


def fill(made, count: int, name: str = "silver", tokens: int = 100, now_s: float = 0.0):
    return [made.let_in(asked(name, now_s), tokens, now_s) for _ in range(count)]


def golden(made, count: int, per_s: int) -> None:
    """So many that go at once have come, so many a second of the ten that are served."""
    for i in range(count):
        now_s = i / per_s
        made.waiting.end(made.let_in(asked("gold", now_s), 100, now_s), now_s)


def reason(made, name: str = "silver", tokens: int = 100, now_s: float = 0.0, **other) -> str:
    answer = made.check(asked(name, now_s, **other), tokens, now_s, 0.0)
    return answer.reason if answer else "let in"


def test_where_nothing_is_known_only_the_bound_holds() -> None:
    assert admission(slots=7).most_waiting == 14  # twice the slots
    made = admission(slots=2, max_waiting=3)
    first, *_ = fill(made, 4, "gold")
    assert reason(made, "gold") == "let in"
    fill(made, 1, "gold")
    assert reason(made, "gold") == "queue_full"  # two may run at once, and three wait
    made.started(first, 0.0)
    assert reason(made, "gold") == "queue_full"
    made.waiting.end(first, 0.0)
    assert reason(made, "gold") == "let in"


GOLD_10 = {"name": "gold", "priority": 10}


@pytest.mark.parametrize(
    ("waiting", "said", "found"),
    [
        # Its turn is the seventh: 0.7 s, 0.96 with a margin.
        ((6, "silver"), {"name": "gold"}, "let in"),
        ((6, "silver"), GOLD_10, "let in"),
        ((6, "silver"), {**GOLD_10, "deadline_s": 0.9}, "deadline"),
        ((6, "silver"), {"name": "gold", "deadline_s": 0.09}, "deadline"),
        # Before its prompt is read it is refused by the rest.
        ((20, "gold"), {"name": "gold", "tokens": 0}, "deadline"),
        # A class that is not sheddable is never shed: 0.96 s of 1.0 s.
        ((6, "silver"), {"name": "silver"}, "shed"),
        ((6, "silver"), GOLD_10, "let in"),
        # Those below do not stand in the way.
        ((50, "batch"), {"name": "batch"}, "deadline"),
        ((50, "batch"), {"name": "gold"}, "let in"),
        # Who would be sent away while it waits is refused at once.
        ((9, "silver"), {**GOLD_10, "deadline_s": 60.0, "timeout_s": 2.0}, "let in"),
        ((9, "silver"), {**GOLD_10, "deadline_s": 60.0, "timeout_s": 0.9}, "deadline"),
    ],
)
def test_who_is_let_in_of_a_full_engine_of_ten_a_second(waiting, said, found):
    made = full()
    fill(made, *waiting)
    assert reason(made, **said) == found


def test_time_spent_before_counts() -> None:
    made = full()
    late = asked("gold", arrived_s=0.0)
    assert made.check(late, 100, 0.5, 0.0) is None
    assert made.check(late, 100, 0.95, 0.0) is not None


def test_prompt_tokens_count_not_requests_alone() -> None:
    made = admission(slots=100)
    made.waiting.learn(EngineView(free_slots=50, requests_per_s=10.0, prompt_tokens_per_s=10_000.0))
    made.started(*fill(made, 1, "gold"), 0.0)
    assert reason(made, "gold", tokens=9_999) == "let in"
    assert reason(made, "gold", tokens=10_001) == "deadline"
    fill(made, 1, "gold", tokens=5_000)
    assert reason(made, "gold", tokens=5_001) == "deadline"


def test_shedding_is_in_bands_the_lowest_first() -> None:
    made = admission(slots=10, shed_at=0.6, max_waiting=90)
    made.waiting.learn(EngineView(free_slots=10, requests_per_s=1e6))
    seen = {}
    for waiting in range(100):
        for name in ("gold", "silver", "batch"):
            if reason(made, name) == "shed":
                seen.setdefault(name, waiting)
        fill(made, 1, "gold")
    assert seen == {"batch": 60, "silver": 80}
    assert reason(made, "gold") == "queue_full"


def test_a_queue_full_of_those_below_has_room_for_those_above() -> None:
    made = admission(slots=2, max_waiting=8, shed_at=1.0)
    fill(made, 10, "batch")
    assert reason(made, "batch") == "queue_full"
    assert reason(made, "gold") == "let in"
    fill(made, 9, "gold")
    assert reason(made, "gold") == "let in"
    fill(made, 1, "gold")
    assert reason(made, "gold") == "queue_full"


def test_however_many_priorities_clients_name_the_queue_is_bounded() -> None:
    made = admission(slots=2, max_waiting=8)
    for rank in range(19):
        made.let_in(asked("gold", priority=-rank), 1, 0.0)
    assert reason(made, "gold", priority=-100) == "let in"
    made.let_in(asked("gold", priority=-19), 1, 0.0)
    assert reason(made, "gold", priority=-100) == "queue_full"


def test_who_waits_behind_others_is_in_time_even_if_they_come_three_times_as_often() -> None:
    made = full()
    golden(made, 60, 2)
    now_s = 29.5
    fill(made, 3, now_s=now_s)
    expected_s = made.waiting.wait_s(10, 100, now_s)
    assert expected_s == pytest.approx(4 / 8, rel=0.05)
    # With the root of the turns as a margin: 4 and 2, and of the first in the queue 1 and 1.
    assert made.waiting.wait_s(10, 100, now_s, surge=3.0) == pytest.approx(6 / 4, rel=0.15)
    assert made.waiting.wait_s(0, 100, now_s, surge=3.0) == pytest.approx(0.2)  # none above it
    assert made.waiting.wait_s(10, 100, now_s, surge=30.0) == pytest.approx(6 / 0.5)
    assert reason(made, deadline_s=1.2, sheddable=False, now_s=now_s) == "deadline"
    assert reason(made, deadline_s=1.9, sheddable=False, now_s=now_s) == "let in"
    # What is told, and measured against the real wait, is what is expected.
    entry = made.let_in(asked("silver", now_s), 100, now_s)
    assert entry.predicted_s == pytest.approx(expected_s, rel=0.05)


def test_when_to_come_again_goes_by_how_soon_what_waits_is_expected_to_shrink() -> None:
    made = full()
    golden(made, 60, 2)
    fill(made, 30, now_s=29.5)
    late = asked(arrived_s=29.5, deadline_s=2.0, sheddable=False)
    answer = made.check(late, 100, 29.5, 0.0)
    assert answer is not None
    # Judged by 31 and a margin at 4 a second; what is beyond 2 s of that goes at 8 a second.
    assert answer.retry_s == pytest.approx(23 / 8, rel=0.15)


def test_one_that_waited_too_long_gets_503() -> None:
    made = admission()
    (entry,) = fill(made, 1)
    answer = made.timed_out(entry, asked(), 31.0, 0.0)
    made.waiting.end(entry, 31.0)
    assert (answer.status, answer.reason) == (503, "queue_timeout")
    assert made.counts.late["silver"] == 1
    assert made.waiting.requests == 0


def test_those_refused_together_are_told_to_come_one_after_the_other() -> None:
    made = full()
    fill(made, 100, "gold")
    told = [made.check(asked("gold"), 100, 0.0, 0.0).retry_s for _ in range(400)]
    assert told[0] == pytest.approx(9.1, abs=0.2)  # until what waits has shrunk
    assert told[-1] == pytest.approx(399 / 5, abs=0.3)  # five a second, half of the drain
    assert told == sorted(told)


def test_a_replica_that_is_empty_refuses_nothing_that_later_would_be_refused_again() -> None:
    made = admission(slots=2, max_waiting=3)
    made.waiting.learn(EngineView(free_slots=2, requests_per_s=0.1, prompt_tokens_per_s=10.0))
    assert reason(made, "gold", tokens=10_000) == "let in"  # it is late, now and at any time
    assert reason(made, "silver", tokens=10_000) == "let in"
    for own in range(20):  # more prompts than there are places
        assert made.check(asked("silver"), 100, 0.0, 0.0, own) is None
        made.let_in(asked("silver"), 100, 0.0)
    assert reason(made, "gold") == "queue_full"


def test_a_request_with_more_prompts_than_there_are_places_is_judged_by_its_first() -> None:
    made = admission(slots=2, max_waiting=3)
    made.started(*fill(made, 1, "gold"), 0.0)
    many, few = asked("gold", prompts=6), asked("gold", prompts=5)
    fill(made, 4, "gold")
    assert made.check(many, 1, 0.0, 0.0, own=4) is None
    assert made.check(few, 1, 0.0, 0.0, own=4) is not None
    assert made.check(many, 1, 0.0, 0.0) is not None


# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 0.0002, 0.0, 0.0001, 0.0, 0.0)


def busy(rate: DrainRate, seconds: int, per_s: int, start_s: float = 0.0) -> None:
    for second in range(seconds):
        for one in range(per_s):
            rate.pass_time(start_s + second + (one + 1) / per_s, waiting=True)
            rate.started(100)


def test_it_is_the_rate_of_the_last_seconds() -> None:
    rate = DrainRate(0.0)
    busy(rate, 30, 4)
    assert rate.requests_per_s == pytest.approx(4.0, rel=0.05)
    assert rate.tokens_per_s == pytest.approx(400.0, rel=0.05)
    busy(rate, 30, 20, start_s=30.0)
    assert rate.requests_per_s == pytest.approx(20.0, rel=0.05)


def test_an_idle_replicas_clock_stands_still() -> None:
    rate = DrainRate(0.0)
    busy(rate, 30, 4)
    rate.pass_time(10_000.0, waiting=False)
    assert rate.requests_per_s == pytest.approx(4.0, rel=0.05)


def test_prompts_take_what_the_budget_and_the_sla_leave() -> None:
    known = report(model=MODEL, decoding=100, kv_used_tokens=0)  # 40 ms without a prompt
    most = known.engine.max_num_batched_tokens - 100
    free = engine_view(known, Sla())
    assert free.prompt_tokens_per_s == pytest.approx(most / (0.04 + 0.0001 * most))
    tight = engine_view(known, Sla(itl_ms=50))  # 100 tokens in 50 ms
    assert tight.prompt_tokens_per_s == pytest.approx(100 / 0.05)
    assert tight.step_s == pytest.approx(0.05)
    drafting = replace(known, drafts=300)
    most -= 300
    free = engine_view(drafting, Sla())
    assert free.prompt_tokens_per_s == pytest.approx(most / (0.04 + 0.0001 * most))
    none = engine_view(known, Sla(itl_ms=30))
    assert (none.prompt_tokens_per_s, none.step_s) == (None, pytest.approx(0.04))


priorities = st.integers(-MOST_PRIORITY, MOST_PRIORITY)


@given(st.sets(priorities, min_size=1, max_size=5), st.lists(priorities, min_size=2, max_size=50))
def test_levels_keep_the_order_of_priorities_and_the_classes_own(classes, named) -> None:
    known = sorted(classes)
    assert [level_of(one, known) for one in known] == known
    named = sorted(named)
    levels = [level_of(one, known) for one in named]
    assert levels == sorted(levels)
    assert all(level <= one for level, one in zip(levels, named, strict=True))
    assert len({level_of(one, known) for one in range(-1000, 1000)}) <= 32 * (len(known) + 1)
