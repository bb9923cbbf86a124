"""The rivals by name: path, constants, metrics that each reads, true values that it knows."""

from benchmarks.fleet.rivals import (
    constants,
    dynamo_both,
    dynamo_load,
    dynamo_throughput,
)
from simulator.fleet.policies import Rival
from simulator.fleet.simulate import Scenario

_IN = "benchmarks.fleet.rivals"


def _line(scenario: Scenario) -> dict[str, float]:
    """Step times as a straight line of decodes and of prompt tokens."""
    step_s = scenario.profile.step_s
    base_s = step_s(0, 0, 0, 0)
    return {
        "fixed_s": base_s,
        "per_decode_s": (step_s(64, 64 * 1000, 0, 0) - base_s) / 64,
        "per_prefill_s": (step_s(0, 0, 512, 0) - base_s) / 512,
    }


RIVALS = {
    "dynamo-throughput": Rival(
        f"{_IN}.dynamo_throughput:DynamoThroughput",
        constants.DynamoThroughput,
        dynamo_throughput.READS,
    ),
    "dynamo-load": Rival(
        f"{_IN}.dynamo_load:DynamoLoad", constants.DynamoLoad, dynamo_load.READS, _line
    ),
    "dynamo-both": Rival(
        f"{_IN}.dynamo_both:DynamoBoth", constants.DynamoBoth, dynamo_both.READS, _line
    ),
}
