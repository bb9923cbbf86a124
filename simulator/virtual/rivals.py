"""Names of the rivals, and their import from the benches (decision 42).

Rivals are in ``benchmarks``, which a checkout has and the wheel has not. They are imported by name
when a policy needs one, so the simulator has no import of the benches.
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
    "fairbatching",
    "slos_serve",
    "past_future",
    "new_token_ratio",
)
BENCHES = "benchmarks"
CHECKOUT = str(Path(__file__).parents[2])
_OPTIONS = "benchmarks.baselines.options:RIVALS"


def options_of(policy: str) -> type[Block] | None:
    """The constants of a named rival; None for other policies.

    Raises:
        ConfigError: the rivals are not installed.
    """
    if policy not in NAMED:
        return None
    options: type[Block] = of_benches(_OPTIONS, policy)[policy]
    return options


def of_benches(path: str, policy: str) -> Any:
    """The object ``module:name`` of the benches.

    Raises:
        ConfigError: there are no benches here.
    """
    if CHECKOUT not in sys.path:  # an editable installation only finds the wheel's packages
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
