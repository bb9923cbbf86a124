"""Steps of ``adaptive`` that may be late, since the percentile allows it."""

from tests.builders import limits, sample
from tests.unit.controller.policies.test_adaptive_step import MODEL, ask, decoding, half, prompts


def test_a_prompt_is_computed_at_once_where_late_tokens_are_left() -> None:
    step = half(50)
    for _ in range(60):
        step.observe(sample(decodes=2, kv_tokens=200, duration_s=MODEL.predict_s(2, 200, 0, 0)))
    # 20.4 ms for the decodes leave less than 300 tokens, and two tokens may be late.
    assert ask(step, decoding(2), prompts(1500)).token_budget == 1502
    # They are paid for: once more, and then no more.
    assert ask(step, decoding(2), prompts(1500, 200)).token_budget == 1702
    assert ask(step, decoding(2), prompts(1500)).token_budget < 300


def test_late_tokens_that_are_granted_while_control_is_off_are_not_paid_for() -> None:
    step = half(50)
    for _ in range(60):
        step.observe(sample(decodes=2, kv_tokens=200, duration_s=MODEL.predict_s(2, 200, 0, 0)))
    step.receive(limits(model=MODEL, enforce=False))
    for _ in range(3):
        assert ask(step, decoding(2), prompts(1500)).token_budget == 1502
    step.receive(limits(model=MODEL))
    assert ask(step, decoding(2), prompts(1500)).token_budget == 1502


def test_what_fits_a_step_takes_no_late_token() -> None:
    step = half(50)
    for _ in range(60):
        step.observe(sample(decodes=2, kv_tokens=200, duration_s=MODEL.predict_s(2, 200, 0, 0)))
    assert ask(step, decoding(2), prompts(100)).token_budget < 300
    assert ask(step, decoding(2), prompts(4000)).token_budget == 2048


def test_no_late_token_is_paid_for_what_vllm_does_not_take_or_has_computed() -> None:
    for asked, of_engine in (
        (prompts(1500), {"long_prompt_tokens": 64}),
        (prompts(1500, computed=1400), {}),
    ):
        step = half(50, **of_engine)
        for _ in range(60):
            step.observe(sample(decodes=2, kv_tokens=200, duration_s=MODEL.predict_s(2, 200, 0, 0)))
        for _ in range(9):
            assert ask(step, decoding(2), asked).token_budget < 300
        # The account still covers a step of two decodes, twice.
        big = prompts(*[60] * 20)
        assert ask(step, decoding(2), big).token_budget == 1202
        assert ask(step, decoding(2), big).token_budget == 1202


def test_a_gap_while_control_is_off_teaches_nothing() -> None:
    def until_s(*, enforce: bool) -> float:
        step = half(50)
        step.observe(sample(decodes=112, kv_tokens=0, duration_s=MODEL.predict_s(112, 0, 0, 0)))
        step.receive(limits(model=MODEL, enforce=enforce))
        step.resumed(3.0)
        assert step._chunks is not None
        return step._chunks.until_s

    assert until_s(enforce=True) < until_s(enforce=False)
