"""The tokens that are kept free for what runs."""

import numpy as np
import pytest

from controller.law.cap import reserve
from controller.law.forecast import Ahead


def ahead(*tokens: float) -> Ahead:
    mean = np.array(tokens)
    return Ahead(np.ones(len(mean)), mean, np.zeros(len(mean)))


@pytest.mark.parametrize("k", [1.0, 8.0, 30.0])
def test_a_reserve_holds_what_those_here_grow_by_and_those_with_k_more(k: float) -> None:
    count, held, prompt = 10, 2000.0, 100.0
    running, newcomer = ahead(2100.0, 2600.0, 2000.0), ahead(110.0, 150.0, 180.0)
    kept = reserve(running, newcomer, count, held, prompt, k)
    then = float((running.mean + k * newcomer.mean).max()) - held - k * prompt
    assert kept.fixed + kept.each * count == pytest.approx(600.0)
    assert kept.fixed + kept.each * (count + k) == pytest.approx(max(then, 600.0))
