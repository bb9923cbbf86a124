"""Numbers on a command line: a type for argparse."""

import argparse
import math
from collections.abc import Callable

ABOVE_0 = math.ulp(0.0)


def number(allowed: str, least: float, most: float = math.inf) -> Callable[[str], float]:
    """A finite number from ``least`` to ``most``, which an error calls ``allowed``."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or value == math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is not allowed: {allowed}")
        return value

    return number
