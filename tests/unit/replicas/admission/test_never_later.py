"""What no later moment would change is no reason to refuse."""

from replicas.admission.drain import EngineView
from tests.unit.replicas.admission.builders import admission, asked
from tests.unit.replicas.admission.test_admission import fill, reason


def test_a_replica_that_is_empty_refuses_nothing_that_later_would_be_refused_again() -> None:
    made = admission(slots=2, max_waiting=3)
    made.learn(EngineView(free_slots=2, requests_per_s=0.1, prompt_tokens_per_s=10.0))
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
