"""The ``security`` block of an application: what its HTTP door lets in."""

from typing import Any

from pydantic import Field, field_validator

from controller.config import Block
from controller.validation import parse
from replicas.door.paths import problem_of


class Security(Block):
    """What an application's door lets in; all of it may be left out."""

    extra_paths: list[str] = Field(
        [],
        description="paths that are served beside those that always are: '/tokenize', with a"
        " method 'POST /tokenize', all below one '/v1/audio/*'",
    )

    @field_validator("extra_paths")
    @classmethod
    def _paths_that_can_be_asked_for(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if problem := problem_of(path):
                raise ValueError(f"{path!r}: {problem}")
        return paths


def parse_security(data: Any, where: str = "security") -> Security:
    """The ``security`` block from plain data (None: all defaults).

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    return parse(Security, {} if data is None else data, where)
