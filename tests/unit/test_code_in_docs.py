"""Code in README and docs: YAML passes ``brimful check``, commands and targets exist."""

import argparse
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from serve_app.checks.command import quick_file
from serve_app.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
# Words after which a shell begins another command.
ENDS = {"|", "&&", "||", ";", "&"}


def blocks(*languages: str) -> list[tuple[str, str]]:
    """(page, text) of each fenced block in one of the languages."""
    found = []
    for page in sorted(PAGES):
        for language, text in BLOCK.findall(page.read_text()):
            if language in languages:
                found.append((page.name, text))
    return found


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """(page, arguments) of each call of a program in the shell blocks."""
    for page, text in blocks("sh", "console"):
        lines = text.replace("\\\n", " ").splitlines()
        for line in lines:
            words = shlex.split(line.removeprefix("$ "), comments=True)
            for at, word in enumerate(words):
                if word == program and (at == 0 or words[at - 1] in ENDS):
                    end = next((i for i, w in enumerate(words) if i > at and w in ENDS), None)
                    yield page, words[at + 1 : end]


@pytest.mark.parametrize(("page", "text"), [b for b in blocks("yaml") if "applications:" in b[1]])
def test_a_serve_config_passes_the_quick_check(page: str, text: str, tmp_path: Path) -> None:
    for name in ("small", "large", "vision"):  # entries that a page names as files
        loading = {"model_id": name, "model_source": f"org/{name}"}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"model_loading_config": loading}))
    (tmp_path / "serve.yaml").write_text(text)
    assert quick_file(tmp_path / "serve.yaml").problems == [], page


@pytest.mark.parametrize(("page", "arguments"), [*commands("brimful")])
def test_a_command_has_the_options_that_a_page_gives_it(page: str, arguments: list[str]) -> None:
    module = importlib.import_module(COMMANDS[arguments[0]][0])
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    given = [a for a in arguments[1:] if a != "..."]
    if getattr(module, "TAKES_MORE", False):
        parser.parse_known_args(given)
    else:
        parser.parse_args(given)
