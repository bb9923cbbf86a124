"""Pages that follow the code say what it has."""

import pytest

from replicas.workarounds.vllm_versions import TESTED
from tools import configuration


def test_the_page_of_keys_is_what_the_command_writes() -> None:
    assert configuration.PAGE.read_text() == configuration.page(), "python -m tools.configuration"


@pytest.mark.parametrize("place", configuration.BLOCKS)
def test_examples_are_allowed(place: str) -> None:
    name, _, several = place.partition(".")
    value = configuration.examples()[name]
    model, _ = configuration.BLOCKS[place]
    for one in value.values() if several else [value]:
        assert set(model.model_validate(one).model_fields_set) == set(model.model_fields)


def test_the_page_of_versions_has_each_that_is_tested() -> None:
    page = (configuration.ROOT / "docs" / "versions.md").read_text()
    for one in TESTED:
        assert f"| {one.release} | {one.engine} | {one.served} |" in page
