"""Pages that follow the code say what it has."""

from tools import configuration


def test_the_page_of_keys_is_what_the_command_writes() -> None:
    assert configuration.PAGE.read_text() == configuration.page(), "python -m tools.configuration"
