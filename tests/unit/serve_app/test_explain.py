"""What ``brimful explain`` says of one replica."""

from controller.records import BoundSteps, StepModel
from serve_app.explain import explain
from tests.builders import limits, moments_of, report


def said(report_: object, limits_: object) -> str:
    """All its lines."""
    return "\n".join(explain("r1", report_, limits_))  # type: ignore[arg-type]


def test_it_names_the_cap_what_set_it_and_what_bound_the_steps() -> None:
    seen = report(
        bound_steps=BoundSteps(memory=30, sla=60, load=10),
        lengths=moments_of([(100, 50)] * 4),
        model=StepModel(0.02, 2e-4, 1e-8, 1e-4, 0.0, 0.0),
    )
    text = said(seen, limits(max_running=40, reason="memory"))
    assert text.startswith("r1: cap 40, set by KV memory would overflow")
    assert "of 100 steps, bound by: memory 30%, sla 60%, load 10%" in text
    assert "in 100, out 50, held while running 125 tokens" in text
    assert "20.00 ms + 0.2000 per decode" in text


def test_it_says_when_the_sla_is_out_of_reach() -> None:
    seen = report(model=StepModel(0.02, 2e-4, 1e-8, 1e-4, 0.0, 0.0))
    text = said(seen, limits(capacity_per_s=0.0, sla_out_of_reach=True))
    assert "out of reach: a step of one decode takes 20.2 ms" in text
    assert "nothing is scaled by this replica" in text
    assert "out of reach" not in said(seen, limits(capacity_per_s=3.0))


def test_it_says_who_decides_alone_and_what_is_only_advice() -> None:
    text = said(report(mode="fallback"), limits(enforce=False))
    assert "decides alone (fallback)" in text
    assert "enforce: false" in text


def test_of_a_replica_that_did_nothing_yet_it_says_just_that() -> None:
    assert said(report(), limits(reason="start")).count("\n") == 0


def test_it_says_that_control_is_switched_off() -> None:
    assert "control is switched off: vLLM runs at its own limits" in said(
        report(enforced=False), limits()
    )
