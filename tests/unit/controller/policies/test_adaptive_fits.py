"""``adaptive`` where nothing can bind: requests are not looked at one by one."""

from typing import Any

import pytest

from controller.models.requests import Requests, requests_of
from controller.policies.adaptive import AdaptiveStep
from controller.policies.base import Batch
from controller.records import StepLimits
from tests.builders import batching, engine, limits, state

LONGEST, BLOCK = 500, 16
HERE = 40  # of which some run and some wait
ENOUGH = HERE * (LONGEST + BLOCK)  # tokens of KV memory


def nobody_asks() -> Batch:
    raise AssertionError("the requests themselves were asked for")


def half(itl_ms: float | None = None, b_max: int | None = None, **of_engine: Any) -> AdaptiveStep:
    config = batching(policy="adaptive", sla={"itl_ms": itl_ms}, max_running={"max": b_max})
    known = {"max_model_len": LONGEST, "kv_tokens": ENOUGH, "max_num_seqs": 100, **of_engine}
    return AdaptiveStep(config, engine(block_tokens=BLOCK, **known))


def test_where_memory_holds_all_at_their_longest_the_engine_runs_as_it_was_started() -> None:
    asked = half().limits(state(30, 10, 0), nobody_asks, limits())
    assert asked == StepLimits(100, 2048, reason="load")
    many = half(kv_tokens=10 * ENOUGH).limits(state(0, 100, 0), nobody_asks, limits())
    assert many == asked


@pytest.mark.parametrize(
    ("given", "running", "waiting", "used"),
    [
        ({"kv_tokens": ENOUGH - 1}, 30, 10, 0),
        ({}, 30, 11, 0),
        ({}, 30, 10, 1),  # which a session may hold that neither runs nor waits
        ({"max_model_len": LONGEST + 1}, 30, 10, 0),
        ({"max_model_len": None}, 30, 10, 0),
        ({"b_max": 39}, 30, 10, 0),
        ({"long_prompt_tokens": 64}, 30, 10, 0),
        ({"itl_ms": 50}, 30, 10, 0),
    ],
)
def test_where_something_may_bind_they_are_looked_at(
    given: dict[str, Any], running: int, waiting: int, used: int
) -> None:
    with pytest.raises(AssertionError, match="the requests themselves were asked for"):
        half(**given).limits(state(running, waiting, used), nobody_asks, limits())


def test_no_more_of_the_queue_are_looked_at_than_may_begin() -> None:
    asked: list[int] = []
    queue = requests_of([0] * 500, [20] * 500, [0] * 500, [400] * 500)

    def waiting(n: int) -> Requests:
        asked.append(n)
        return queue.first(n)

    one = half(kv_tokens=10**7, max_num_seqs=256, max_model_len=None)
    one.limits(state(0, 500, 0), lambda: Batch(queue.first(0), waiting), limits())
    assert asked == [64, 128]  # 103 prompts of 20 tokens begin in 2,048
