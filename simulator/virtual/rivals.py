"""The rivals' names, and how those that the benches bring are found (decision 42).

Rivals stand in ``benchmarks``, which a checkout has and the wheel has not. They are imported by
name where a policy asks for one, so no import leads from the simulator to the benches.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

from controller.config import Block
from controller.errors import ConfigError

NAMED = (
    "sarathi",
    "refiner",
    "qoserve",
    "past_future",
    "new_token_ratio",
)
BENCHES = "benchmarks"
CHECKOUT = str(Path(__file__).parents[2])
_OPTIONS = "benchmarks.baselines.options:RIVALS"


def options_of(policy: str) -> type[Block] | None:
    """The constants of a named rival; None: the policy is none.

    Raises:
        ConfigError: the rivals are not installed.
    """
    if policy not in NAMED:
        return None
    options: type[Block] = of_benches(_OPTIONS, policy)[policy]
    return options


def of_benches(path: str, policy: str) -> Any:
    """What ``module:name`` of the benches is.

    Raises:
        ConfigError: there are no benches here.
    """
    if CHECKOUT not in sys.path:  # an editable installation finds only the packages of the wheel
        sys.path.append(CHECKOUT)
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != BENCHES:
            raise
        raise ConfigError(
            [
                f"policy: {policy!r} is not allowed here: rivals stand in {BENCHES}/, which this"
                " installation has not; run it in a checkout of Brimful"
            ]
        ) from None
