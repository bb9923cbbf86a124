"""``--engines``, ``--roles`` and the link: what is refused, with one error each."""

import argparse

import pytest

from controller.errors import ConfigError
from controller.roles import Transfer
from simulator.replay.arguments import add_arguments, read_order


def order(*words: str):
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return read_order(parser.parse_args(words))


FLEET = ("--engines", "4", "--sla-itl-ms", "50", "--policy", "adaptive")


@pytest.mark.parametrize(
    ("words", "name", "prefill"),
    [
        ((), "aggregated", 0),
        (("--roles", "aggregated"), "aggregated", 0),
        (("--roles", "1:3"), "1:3", 1),
        (("--roles", "auto"), "auto", None),
    ],
)
def test_a_fleet(words: tuple[str, ...], name: str, prefill: int | None) -> None:
    roles = order(*FLEET, *words).roles
    assert (roles.name, roles.prefill, roles.engines) == (name, prefill, 4)
    assert roles.transfer == Transfer(327_680, 25e9, 0.005)


def test_a_link() -> None:
    words = ("--kv-bytes-per-token", "1000", "--link-gbit-s", "8", "--link-latency-ms", "0")
    assert order(*FLEET, *words).roles.transfer == Transfer(1000, 1e9, 0)


def test_one_engine_has_no_roles() -> None:
    assert order().roles is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--roles", "auto"), "roles: needs --engines"),
        (("--link-gbit-s", "8"), "link-gbit-s: needs --engines"),
        (("--engines", "4", "--roles", "2:3"), "2:3 is not allowed with --engines 4"),
        (("--engines", "4", "--roles", "0:4"), "'0:4' is not allowed: auto, aggregated, or P:D"),
        (("--engines", "4", "--roles", "many"), "'many' is not allowed"),
        (("--engines", "4", "--roles", "auto"), "auto needs --sla-itl-ms"),
        ((*FLEET, "--find-capacity"), "find-capacity: is not allowed with --engines"),
        ((*FLEET, "--policy", "request-level"), "policy request-level: is not allowed"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        order(*words)
    assert said in str(error.value)


@pytest.mark.parametrize("words", [("--engines", "0"), ("--engines", "65"), ("--link-gbit-s", "0")])
def test_numbers_out_of_range(words: tuple[str, ...]) -> None:
    with pytest.raises(argparse.ArgumentError):
        order(*words)
