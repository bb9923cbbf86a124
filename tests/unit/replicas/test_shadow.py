"""What control would have moved, where it only advises."""

from dataclasses import replace

from controller.records import Advised, StepLimits
from replicas.engine.shadow import Shadow
from tests.builders import ENGINE, batching, engine, governor, sample, state

DRAFTING = engine(tokens_per_decode=4)


def test_starts_above_the_cap_and_prompt_tokens_beyond_the_chunk_are_moved() -> None:
    shadow = Shadow()
    shadow.computed(StepLimits(max_running=12, token_budget=138), state(running=10))
    shadow.scheduled(sample(decodes=10, prefill_tokens=500, started=(200, 200, 100)), ENGINE)
    assert shadow.advised == Advised(3, 1, 500, 500 - 128)
    shadow.computed(StepLimits(max_running=12, token_budget=138), state(running=10))
    shadow.scheduled(sample(decodes=10, prefill_tokens=60, started=(60,)), ENGINE)
    assert shadow.advised == Advised(4, 1, 560, 372)
    shadow.computed(StepLimits(max_running=12, token_budget=138), state(running=10))
    shadow.scheduled(sample(decodes=10, prefill_tokens=100), DRAFTING)
    assert shadow.advised == Advised(4, 1, 660, 372 + 2)
    shadow.scheduled(sample(decodes=10, prefill_tokens=900), ENGINE)  # nothing was computed for it
    assert shadow.advised == Advised(4, 1, 660, 374)


def test_drafts_take_what_they_are_of_the_budget_and_not_what_they_may_be() -> None:
    shadow = Shadow()
    few = replace(state(running=10), drafts=5)
    shadow.computed(StepLimits(max_running=12, token_budget=115), few)
    shadow.scheduled(sample(decodes=10, prefill_tokens=110), DRAFTING)
    assert shadow.advised == Advised(0, 0, 110, 10)


def test_a_replica_that_is_led_moves_nothing_and_counts_nothing() -> None:
    for enforce, counted in ((True, 0), (False, 700)):
        g = governor(batching(policy="static", enforce=enforce))
        g.before_step(state(running=10, waiting=2), 0.0)
        g.scheduled(sample(decodes=10, prefill_tokens=700, started=(700,)))
        assert g.report(state(10, 2, 0), 1.0, "r", "g").advised.prompt_tokens == counted


def test_what_would_have_been_applied_is_compared_with() -> None:
    """Whatever a policy asks for, a decode has its token and a prompt one block."""
    g = governor(batching(policy="static", enforce=False))
    g.limiter.limits = lambda *_: StepLimits(12, 5)  # type: ignore[method-assign]
    g.before_step(state(running=10, waiting=2), 0.0)
    g.scheduled(sample(decodes=10, prefill_tokens=700, started=(700,)))
    report = g.report(state(10, 2, 0), 1.0, "r", "g")
    assert report.advised.tokens_moved == 700 - g.engine.block_tokens
    assert report.overruled == 0
