"""What one request is promised, and the way of it to the engine."""

import math

import msgspec
import pytest

from controller.classes import ServiceClass, parse_classes
from controller.config import Sla
from controller.request_slo import RequestSlo, differ, of_class, of_sla, slo_of


@pytest.mark.parametrize(
    "one",
    [RequestSlo(), RequestSlo(0.05, 95.0, 2.0), RequestSlo(ttft_s=6.0), RequestSlo(itl_s=0.1)],
)
def test_it_gets_through_the_engines_message_as_it_was(one: RequestSlo) -> None:
    told = msgspec.msgpack.decode(msgspec.msgpack.encode(one.to_wire()))
    assert slo_of(told) == one


def test_of_a_class_and_of_an_sla() -> None:
    assert of_class(ServiceClass(itl_ms=50, ttft_ms=2000, percentile=95)) == RequestSlo(0.05, 95, 2)
    assert of_class(ServiceClass()) == RequestSlo(math.inf, 99, math.inf)
    assert of_sla(Sla(itl_ms=50)) == RequestSlo(0.05, 99, math.inf)
    assert of_sla(Sla(ttft_ms=500)) == RequestSlo(math.inf, 99, 0.5)


@pytest.mark.parametrize(
    ("itls_ms", "so"),
    [
        ((50, 100), True),
        ((50, None), True),
        ((50, 50), False),
        ((None, None), False),
        ((9,), False),
    ],
)
def test_classes_differ_in_their_time_between_tokens(itls_ms: tuple[float], so: bool) -> None:
    block = {f"c{k}": {"itl_ms": ms, "priority": k} for k, ms in enumerate(itls_ms)}
    block["c0"]["default"] = True
    assert differ(parse_classes(block)) is so
    assert not differ(None)
