"""The account of late tokens, token by token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.models.late_tokens import MEMORY_STEPS, LateTokens
from controller.models.step_time import StepModel
from controller.policies.chunk import ChunkSizer
from controller.records import StepSample

# 20 ms, 0.2 ms a decode, 0.1 ms a prompt token.
MODEL = StepModel(0.02, 2e-4, 1e-7, 1e-4, 0.0, 0.0)


def test_a_new_account_has_what_one_decode_brings_in_its_memory() -> None:
    account = LateTokens(99)  # 0.005 of 1,024 tokens
    assert account.allows(5)
    assert not account.allows(6)


def test_half_of_what_the_percentile_allows_comes_in_and_late_tokens_go_out() -> None:
    account = LateTokens(90)  # 0.05 of each token: 51.2
    account.observe(100, late=False)
    assert not account.allows(57)  # 51.2 x 1023/1024 + 5 = 56.15
    assert account.allows(56)
    account.observe(100, late=True)
    assert not account.allows(1)
    account = LateTokens(90)
    account.late_token()
    assert account.allows(50)
    assert not account.allows(51)


def test_a_granted_step_is_paid_for_once() -> None:
    granted, seen = LateTokens(90), LateTokens(90)
    for account in (granted, seen):
        account.observe(1000, late=False)  # 51.15 + 50 = 101.15
    granted.grant(60)
    assert not granted.allows(60)
    assert granted.allows(41)
    granted.observe(60, late=True)
    # 41.15 + 3, no further 60; the other one has 101.15 + 3 - 60.
    seen.observe(60, late=True)
    assert granted.allows(44)
    assert not granted.allows(45)
    assert seen.allows(44)
    assert not seen.allows(45)


def test_a_grant_covers_the_next_two_steps_and_no_third() -> None:
    def after(*steps: bool) -> LateTokens:
        account = LateTokens(90)
        account.observe(2000, late=False)  # 151
        account.grant(40)  # 111
        for late in steps:
            account.observe(40, late=late)  # 2 each
        return account

    assert after(False, True).allows(114)
    assert after(True, False).allows(114)
    assert not after(False, False, True).allows(80)
    assert not after(True, True).allows(80)


def test_the_older_of_two_grants_is_used_up_first() -> None:
    account = LateTokens(90)
    account.observe(2000, late=False)  # 151.15
    account.grant(30)
    account.observe(1, late=False)  # 121.08, and 30 are in flight
    account.grant(50)
    account.observe(40, late=True)  # the 30 and 10 of the 50 are used: 73.01
    account.observe(40, late=True)  # the 40 that are left cover these: 74.94
    assert account.allows(74)
    assert not account.allows(75)


def test_old_tokens_fade() -> None:
    account = LateTokens(90)
    for _ in range(20 * MEMORY_STEPS):
        account.observe(10, late=False)
    assert account.allows(int(0.05 * 10 * MEMORY_STEPS) - 1)
    assert not account.allows(int(0.05 * 10 * MEMORY_STEPS) + 1)


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.booleans(), st.floats(0.0, 1.0)),
        min_size=1,
        max_size=400,
    )
)
def test_grants_never_make_more_tokens_late_than_came_in(
    steps: list[tuple[int, bool, float]],
) -> None:
    account, granted, came = LateTokens(99), 0, 0.005 * MEMORY_STEPS
    for decodes, asks, _ in steps:
        takes = asks and account.allows(decodes)
        if takes:
            account.grant(decodes)
            granted += decodes
        account.observe(decodes, late=takes)
        came += 0.005 * decodes
    assert granted <= came + 1e-6


def seen(steps: int, decodes: int) -> ChunkSizer:
    """Steps that took what the model says."""
    sizer = ChunkSizer(0.05, 99)
    sizer.receive(MODEL)
    for _ in range(steps):
        kv = 100 * decodes
        took_s = MODEL.predict_s(decodes, kv, 0, 0)
        sizer.observe(StepSample(decodes, kv, 0, 0, took_s))
    return sizer


def test_no_step_may_be_late_before_the_model_is_known_or_while_the_sla_is_out_of_reach() -> None:
    assert not seen(50, 2).may_be_late(2)
    assert seen(51, 2).may_be_late(2)
    beyond = ChunkSizer(0.02, 99)
    beyond.receive(MODEL)
    for _ in range(60):
        beyond.observe(StepSample(2, 200, 0, 0, MODEL.predict_s(2, 200, 0, 0)))
    assert not beyond.may_be_late(2)


def test_late_steps_and_late_gaps_are_counted() -> None:
    sizer = seen(60, 2)
    assert sizer.may_be_late(5)
    sizer.observe(StepSample(2, 200, 1000, 0, 0.2))
    assert sizer.may_be_late(3)
    assert not sizer.may_be_late(4)
    sizer.resumed(0.2)
    assert not sizer.may_be_late(3)
    sizer.late_step(2)
    assert not sizer.may_be_late(1)


@pytest.mark.parametrize("decodes", [1, 3])
def test_a_chunk_without_room_is_not_made_longer(decodes: int) -> None:
    sizer = seen(60, decodes)
    for _ in range(100):
        sizer.chunk(200, 0, 0, least=16, most=2048)
    assert sizer.forced
    assert not sizer.may_be_late(1)


def test_what_is_late_by_the_share_of_the_sla_that_is_held_is_late() -> None:
    plain, held = seen(60, 2), seen(60, 2)
    held.hold_to(0.9)
    for sizer in (plain, held):
        sizer.observe(StepSample(2, 200, 1000, 0, 0.95 * 0.05))
    assert plain.may_be_late(5)
    assert held.may_be_late(3)
    assert not held.may_be_late(4)
