"""How a chunk is divided among prompts, so that short ones get past long ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config import Sla
from controller.models.arrays import Ints
from controller.models.requests import Requests, requests_of
from controller.policies.prompts import PrefillSplit, divided, long_chunks, taken
from tests.builders import engine


def queue_of(*left: int, cached: int = 0) -> Requests:
    """Prompts that wait, with so many tokens left beside those that are cached."""
    n = len(left)
    return requests_of([cached] * n, [cached + tokens for tokens in left], [0] * n, [100] * n)


def division(
    *prompts: int, chunk: int = 100, chunks: int | None = 4, **of_engine: int
) -> PrefillSplit:
    own = engine(**{"block_tokens": 1, **of_engine})
    return divided(np.array(prompts, dtype=np.int64), chunk, own, chunks)


@pytest.mark.parametrize(
    ("prompts", "share"),
    [
        ((), 100),
        ((400,), 100),
        ((401,), 25),
        ((401, 9, 400), 25),
        ((500,) * 3, 25),
        ((500,) * 4, 20),  # a fifth is left for others
        ((500,) * 9, 10),
        ((500,) * 200, 1),
    ],
)
def test_a_prompt_of_more_than_four_chunks_has_a_quarter_of_one_at_least(prompts, share):
    assert division(*prompts).share == share
    assert division(*prompts).shares == (share < 100)
    assert division(*prompts, chunks=None).share == 100


@pytest.mark.parametrize(
    ("sla", "chunks"),
    [
        ({"itl_ms": 50}, 4),
        ({"itl_ms": 50, "ttft_ms": 200}, 4),
        ({"itl_ms": 50, "ttft_ms": 2000}, 40),
        ({"itl_ms": 35, "ttft_ms": 1000}, 28),
        ({"itl_ms": 50, "ttft_ms": 8000}, 40),
        ({"itl_ms": 50, "ttft_ms": 2000, "delivery": "paced"}, None),
        ({"ttft_ms": 2000}, None),
        ({}, None),
    ],
)
def test_where_a_ttft_is_agreed_a_prompt_is_long_that_is_late_alone(sla, chunks):
    assert long_chunks(Sla(**sla)) == chunks


def test_long_is_what_is_said_and_its_share_is_a_quarter_all_the_same() -> None:
    assert not division(1000, chunks=10).shares
    assert (division(1001, chunks=10).long, division(1001, chunks=10).share) == (1000, 25)


def test_a_share_is_a_block_at_least_and_no_more_than_the_chunk() -> None:
    assert division(500, block_tokens=64).share == 64
    assert division(*[500] * 9, block_tokens=16).share == 16
    assert (division(500, block_tokens=128).share, division(500, block_tokens=128).most) == (
        100,
        100,
    )


def test_a_threshold_says_which_is_long_and_its_share_of_a_whole_step() -> None:
    own = {"long_prompt_tokens": 64, "max_num_batched_tokens": 256}
    one = division(65, chunk=100, **own)
    assert (one.long, one.most, one.share) == (64, 64, 25)
    assert division(64, **own).share == 64
    assert division(65, chunk=50, chunks=None, **own).most == 50


@pytest.mark.parametrize(
    ("prompts", "queue", "starts"),
    [
        ((), (60, 60, 60), 2),  # as vLLM begins them
        ((100,), (5,), 0),  # not long: it takes the chunk
        ((70,), (30, 30), 1),
        ((1000,), (30, 20, 30), 3),  # of 75
        ((1000,), (30, 45, 30), 3),
        ((1000,), (1000, 1000), 0),  # one long one after the other
        ((1000,), (1000, 30, 1000), 2),  # but for who waits behind one
        ((1000,), (1000, 1000, 1000, 30), 0),  # whom the chunk does not reach
        ((1000,) * 5, (30, 30, 30), 2),  # five have 16 each
        ((1000, 40), (30, 30), 2),
        ((1000, 90), (30, 30, 30), 2),  # 1,000 and 90 have 25 each
    ],
)
def test_short_ones_start_beside_long_ones(prompts, queue, starts):
    assert len(division(*prompts).starting(queue_of(*queue))) == starts
    assert len(division(*prompts).starting(queue_of(*queue, cached=5000))) == starts


@pytest.mark.parametrize(
    ("prompts", "newcomers", "most"),
    [
        ((1000,), (), 100),
        ((1000,), (30, 20), 50),
        ((1000, 1000), (30,), 35),
        ((1000,), (80,), 50),  # both alike, where the short one cannot have all
        ((1000,), (40, 40, 40), 25),
        ((1000,) * 3, (40,), 25),
        ((1000,) * 3, (90,), 25),
        ((1000,), (90, 1), 49),
        ((1000,), (1,) * 90, 25),  # its share
    ],
)
def test_one_takes_what_fills_the_chunk(prompts, newcomers, most):
    assert division(*prompts).of_one(queue_of(*newcomers)) == most
    assert division(*prompts).of_one(queue_of(*newcomers, cached=5000)) == most


LEFT = st.lists(st.integers(1, 3000), max_size=9)


@given(LEFT, LEFT, st.integers(1, 500), st.integers(1, 64), st.booleans())
def test_no_token_of_the_chunk_is_lost_and_who_starts_begins(
    prompts: list[int], queue: list[int], chunk: int, block_tokens: int, shares: bool
) -> None:
    own = division(*prompts, chunk=chunk, block_tokens=block_tokens, chunks=4 if shares else None)
    newcomers = own.starting(queue_of(*queue))
    most = own.of_one(newcomers) if own.shares else own.most
    assert min(own.share, chunk) <= most <= chunk
    served: Ints = np.minimum([*prompts, *newcomers.tokens.tolist()], most)
    wanted = sum(prompts) + int(newcomers.tokens.sum())
    assert served.sum() > min(wanted, chunk) - len(served) - 1
    # vLLM serves the half computed ones first, then the queue: each of these gets something.
    if len(newcomers):
        assert served[:-1].sum() < chunk
    # Nobody waits who would have begun without shares.
    plain = division(*prompts, chunk=chunk, block_tokens=block_tokens, chunks=None)
    assert len(newcomers) >= len(plain.starting(queue_of(*queue)))
    assert taken(np.array(prompts, dtype=np.int64), own.share) <= sum(prompts)
