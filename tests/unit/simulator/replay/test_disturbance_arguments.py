"""What the arguments that disturb a replay may be."""

import argparse

import pytest

from replicas.profiles.disturbances import (
    VLLM_GRAPH_SIZES,
    Disturbances,
    EncoderWork,
    Pauses,
    SlowPhases,
)
from simulator.replay.disturbance_arguments import add_disturbances, disturbances_of


def parsed(*argv: str) -> Disturbances:
    parser = argparse.ArgumentParser()
    add_disturbances(parser.add_argument_group())
    return disturbances_of(parser.parse_args(argv))


def test_nothing_is_disturbed_by_default() -> None:
    assert parsed() == Disturbances()


def test_kinds_combine_and_times_become_seconds() -> None:
    said = "--noise 0.1 --pauses 0.05:30 --pauses 0.001:1000 --slow 0.17:2:20 --encoder 0.3:80"
    assert parsed(*said.split(), *["--mixed-ms", "3", "--graph-sizes", "1,2,4"]) == Disturbances(
        noise_cv=0.1,
        pauses=(Pauses(0.05, 0.03), Pauses(0.001, 1.0)),
        slow=(SlowPhases(0.17, 2.0, 20.0),),
        encoder=EncoderWork(0.3, 0.08),
        mixed_s=0.003,
        graph_sizes=(1, 2, 4),
    )
    assert parsed("--graph-sizes", "vllm").graph_sizes == VLLM_GRAPH_SIZES


@pytest.mark.parametrize(
    ("argument", "value", "says"),
    [
        ("--pauses", "0.05", "0.05 is not allowed: SHARE:MEAN_MS"),
        ("--pauses", "2:30", "2:30: SHARE 2 is not allowed: a number from 0 to 1"),
        ("--pauses", "0.1:x", "0.1:x: MEAN_MS x is not allowed: a number"),
        ("--pauses", "0.1:2e9", "0.1:2e9: MEAN_MS 2e9 is not allowed: a number from 0 to 1e+09"),
        ("--slow", "0.1:2", "0.1:2 is not allowed: SHARE:FACTOR:MEAN_S"),
        ("--slow", "0.1:0.5:3", "0.1:0.5:3: FACTOR 0.5 is not allowed: a number from 1 to 1000"),
        ("--slow", "0.1:2:0", "0.1:2:0: MEAN_S 0 is not allowed: a number from 0.01 to 1e+06"),
        ("--encoder", "1:2:3", "1:2:3 is not allowed: SHARE:MS"),
        ("--mixed-ms", "nan", "nan is not allowed: a number from 0 to 1e+09"),
        (
            "--graph-sizes",
            "1,x",
            "1,x is not allowed: vllm or whole numbers with commas between them, as 1,2,4,8",
        ),
    ],
)
def test_a_wrong_value_is_told_what_is_allowed(
    argument: str, value: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed(argument, value)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"error: argument {argument}: {says}")
