"""Pages that are made from the code are what their commands write."""

from pathlib import Path

import pytest

from tools import configuration, modules


def test_the_page_of_modules_is_what_the_command_writes() -> None:
    assert modules.PAGE.read_text() == modules.page(), "python -m tools.modules"


def test_a_module_without_a_docstring_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modules, "ROOT", tmp_path)
    path = tmp_path / "silent.py"
    path.write_text("x = 1\n")
    with pytest.raises(ValueError, match=r"silent\.py"):
        modules.first_lines(path)


def test_the_page_of_keys_is_what_the_command_writes() -> None:
    assert configuration.PAGE.read_text() == configuration.page(), "python -m tools.configuration"


@pytest.mark.parametrize("place", configuration.BLOCKS)
def test_examples_are_allowed(place: str) -> None:
    name, _, several = place.partition(".")
    value = configuration.examples()[name]
    model, _ = configuration.BLOCKS[place]
    for one in value.values() if several else [value]:
        assert set(model.model_validate(one).model_fields_set) == set(model.model_fields)
