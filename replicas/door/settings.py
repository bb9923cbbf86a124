"""The ``security`` block of an application: what its auth middleware admits."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, field_validator, model_validator

from controller.config import Block
from controller.errors import ConfigError
from controller.validation import parse
from replicas.door.paths import problem_of

ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]+")


class KeysFrom(Block):
    """Where the keys are: never in the configuration, which Ray shows to its users."""

    file: str | None = Field(
        None,
        min_length=1,
        description="path of a file with keys, the same on every node; a"
        " changed file is read again",
    )
    env: str | None = Field(
        None,
        min_length=1,
        description="name of an environment variable of Ray's processes with the keys",
    )

    @model_validator(mode="after")
    def _one_place(self) -> "KeysFrom":
        if (self.file is None) == (self.env is None):
            raise ValueError("either file or env")
        return self


class Limits(Block):
    """Bounds on one request; vLLM's own bounds hold as well."""

    removed: ClassVar[Mapping[str, str]] = {
        "max_n": "max_sequences bounds n times the prompts of a request",
        "max_prompts": "max_sequences bounds n times the prompts of a request",
        "max_logprobs": "engine_kwargs.max_logprobs bounds them",
    }

    max_body_mb: float = Field(
        8.0,
        gt=0,
        le=1024,
        description="largest body of a request, MB; each body is parsed twice, here and by the app",
    )
    max_sequences: int = Field(
        2048,
        ge=1,
        description="most sequences of one request: n times its prompts, or texts to embed",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="largest max_tokens, max_completion_tokens or max_output_tokens; also the"
        " default of requests that set none; none: the model's length",
    )


class Security(Block):
    """What the auth middleware admits; all keys may be left out."""

    keys: KeysFrom | None = Field(
        None, description="API keys that are accepted; none: no key is needed"
    )
    limits: Limits = Limits()
    trust_remote_code: list[str] = Field(
        [], description="models (model_id) whose own code may run (engine_kwargs.trust_remote_code)"
    )
    extra_paths: list[str] = Field(
        [],
        description="further paths that are served: '/tokenize', with a method 'POST"
        " /tokenize', all below a path '/v1/audio/*'",
    )

    cors_origins: list[str] = Field(
        [],
        description="origins whose web pages may send requests and read answers: "
        "'https://chat.example.com'; '*': all; empty: none",
    )

    @field_validator("cors_origins")
    @classmethod
    def _origins_as_browsers_send_them(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            if origin != "*" and not ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r}: an origin as browsers send it, in lower case and without a path"
                    " ('https://chat.example.com', 'http://localhost:3000'), or '*'"
                )
        return origins

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
    if isinstance(data, str):  # the text may be a key
        raise ConfigError([f"{where}: must be a mapping; its value is not shown here"])
    keys = data.get("keys") if isinstance(data, dict) else None
    if keys is not None and not (isinstance(keys, dict) and set(keys) <= {"file", "env"}):
        # The value may be a key, so it is not repeated.
        raise ConfigError(
            [
                f"{where}.keys: must be a mapping with `file` or `env`, which name where the"
                " keys are; keys may not be in the configuration, because Ray shows it"
            ]
        )
    return parse(Security, {} if data is None else data, where)
