"""What ``brimful serve`` may be given."""

import argparse

import pytest

from controller.errors import ConfigError
from serve_app import cli
from serve_app.launch.model_config import add_arguments, given_file


def parsed(*argv: str) -> tuple[argparse.Namespace, list[str]]:
    """Our arguments, and those that are left to vLLM."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args, more = parser.parse_known_args(argv)
    args.argv = list(argv)
    return args, more


def test_flags_of_vllm_are_left_over() -> None:
    args, more = parsed("some/model", "--itl-ms", "50", "--max-model-len", "4096", "-tp", "2")
    assert (args.what, args.itl_ms) == ("some/model", 50)
    assert more == ["--max-model-len", "4096", "-tp", "2"]
    assert given_file(args, more) is None


@pytest.mark.parametrize(
    ("flag", "value", "allowed"),
    [
        ("--replicas", "0", "a number from 1"),
        ("--replicas", "8:1", "the larger one last"),
        ("--replicas", "many", "a number from 1"),
        ("--itl-ms", "0", "ms above 0"),
        ("--ttft-ms", "fast", "ms above 0"),
    ],
)
def test_a_wrong_value_is_named(
    flag: str, value: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed("m", flag, value)
    said = capsys.readouterr().err
    assert flag in said
    assert value in said
    assert allowed in said


def test_a_file_says_itself_what_a_model_is_given() -> None:
    args, more = parsed("serve.yaml", "--itl-ms", "50", "--write", "x", "--max-num-seqs=4")
    with pytest.raises(ConfigError) as refused:
        given_file(args, more)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        "--itl-ms",
        "--write",
        "--max-num-seqs",
    ]


def test_the_model_comes_first() -> None:
    args, more = parsed("--max-model-len", "4096", "some/model")
    with pytest.raises(ConfigError, match="--max-model-len: MODEL comes first"):
        given_file(args, more)


def test_a_folder_that_is_not_there_is_no_name_on_the_hub() -> None:
    args, more = parsed("./no/such/model")
    with pytest.raises(ConfigError, match=r"\./no/such/model: no such folder"):
        given_file(args, more)


def test_no_other_command_takes_more(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["env", "--max-model-len", "4096"])
    assert "unrecognized arguments: --max-model-len 4096" in capsys.readouterr().err
