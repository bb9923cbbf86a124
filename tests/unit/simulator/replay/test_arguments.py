"""Arguments of ``brimful replay``: numbers, disturbances, fleets."""

import argparse

import pytest

from controller.errors import ConfigError
from replicas.profiles.disturbances import Disturbances, Pauses
from simulator.replay import arguments
from simulator.replay.arguments import add_arguments, read_order
from simulator.replay.values import MOST_DRAFTS


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    return parser.parse_args(argv)


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


def order(*words: str):
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return read_order(parser.parse_args(words))


def test_disturbances_are_the_block_of_an_emulated_accelerator() -> None:
    said = "{noise_cv: 0.1, pauses: [{share: 0.05, mean_s: 0.03}], graph_sizes: [1, 2, 4]}"
    assert order("--disturbances", said).disturbances == Disturbances(
        noise_cv=0.1, pauses=(Pauses(0.05, 0.03),), graph_sizes=(1, 2, 4)
    )
    with pytest.raises(ConfigError, match=r"disturbances\.pauses\[0\]\.share: 2 is not allowed"):
        order("--disturbances", "{pauses: [{share: 2, mean_s: 1}]}")


FLEET = ("--engines", "4", "--sla-itl-ms", "50", "--policy", "adaptive")


def test_a_search_with_several_engines_is_refused() -> None:
    with pytest.raises(ConfigError, match="find-capacity: is not allowed with --engines"):
        order(*FLEET, "--find-capacity")
