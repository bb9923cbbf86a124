"""What a number on a command line may be."""

import argparse

import pytest

from serve_app.flag_number import ABOVE_0, number


@pytest.mark.parametrize("text", ["0", "nan", "many", "61"])
def test_another_number_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        number("above 0, up to 60", ABOVE_0, 60)(text)
    assert str(caught.value) == f"{text!r} is not allowed: above 0, up to 60"


def test_bounds_are_allowed_and_no_bound_allows_all_that_is_finite() -> None:
    assert number("1 to 60", 1, 60)("1") == 1.0
    assert number("1 to 60", 1, 60)("60") == 60.0
    assert number("from 0", 0)("1e308") == 1e308
    with pytest.raises(argparse.ArgumentTypeError):
        number("from 0", 0)("inf")
