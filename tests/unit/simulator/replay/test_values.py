"""What arguments of ``brimful replay`` may be."""

import argparse
import math

import pytest

from controller.errors import ConfigError
from simulator.replay import arguments
from simulator.replay.values import MOST_DRAFTS


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    return parser.parse_args(argv)


def test_what_is_allowed_is_taken_as_it_stands() -> None:
    said = "--rate inf --max-tokens 7 --seed 4294967295 --acceptance 1 --burstiness 0"
    args = parsed(*said.split())
    assert (args.rate, args.max_tokens, args.seed) == (math.inf, 7, 2**32 - 1)
    assert (args.acceptance, args.burstiness) == (1.0, 0.0)
    args = parsed("--rate", "own", "--max-tokens", "context")
    assert (args.rate, args.max_tokens) == ("own", "context")


@pytest.mark.parametrize(
    ("argument", "value", "allowed"),
    [
        ("--kv-tokens", "99999999999", "a whole number from 1 to 100,000,000"),
        ("--rate", "1e-300", "0.001 to 1,000,000, inf or own"),
        ("--rate", "nan", "0.001 to 1,000,000, inf or own"),
        ("--rate", "1000001", "0.001 to 1,000,000, inf or own"),
        ("--max-tokens", "some", "spread, exact, context or a whole number from 1"),
        ("--seed", "-1", "a whole number from 0 to 4,294,967,295"),
        ("--acceptance", "1.1", "a number from 0 to 1"),
        ("--max-median-delay-s", "inf", "a number from 0"),
        ("--requests", "0", "a whole number from 1 to 10,000,000"),
        ("--burstiness", "1e300", "a number from 0 to 100"),
        ("--noise", "1e300", "a number from 0 to 10"),
        ("--requests", "99999999999", "a whole number from 1 to 10,000,000"),
        ("--speculate", "65", f"a whole number from 1 to {MOST_DRAFTS}"),
        ("--speculate-by-batch", "5", "FROM:K, whole numbers from 1 and from 0 to 64"),
        ("--speculate-by-batch", "1:65", "FROM:K, whole numbers from 1 and from 0 to 64"),
        ("--draft-ms", "-1", "a number from 0 to 10000"),
    ],
)
def test_what_would_take_hours_or_all_memory_is_one_clear_error(
    argument: str, value: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(argument, value)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"error: argument {argument}: {value} is not allowed: {allowed}")


def test_a_sweep_over_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="sweep: no chunk of the grid is as large as a cap"):
        arguments.read_order(parsed("--sweep", "--sweep-caps", "512", "--sweep-chunks", "128"))


def test_drafts_by_batch_size_are_ranges_as_vllm_takes_them() -> None:
    args = ("--speculate", "5", "--draft-ms", "2", "--speculate-by-batch", "1:5", "17:2", "65:0")
    (plan,) = arguments.read_order(parsed(*args)).plans
    assert plan.speculation is not None
    assert plan.speculation.by_batch == ((1, 16, 5), (17, 64, 2), (65, 65, 0))
    assert plan.speculation.draft_s == 0.002


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("--speculate-by-batch", "1:2"), "need --speculate, the most drafts of a step"),
        (("--draft-ms", "1"), "need --speculate, the most drafts of a step"),
        (("--speculate", "3", "--speculate-by-batch", "2:1"), "2:1 is not allowed: FROM from 1 on"),
        (
            ("--speculate", "3", "--speculate-by-batch", "1:3", "9:2", "9:1"),
            "1:3 9:2 9:1 is not allowed: FROM from 1 on, ascending",
        ),
    ],
)
def test_drafts_by_batch_size_that_mean_nothing_are_refused(
    args: tuple[str, ...], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        arguments.read_order(parsed(*args))
