"""What the batch application may be given. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from controller.config import Block
from controller.validation import parse
from replicas.door.settings import KeysFrom
from serve_app.console.arguments import SECURITY, keys_of


class BatchSecurity(Block):
    """Who may send files and batches."""

    keys: KeysFrom | None = Field(
        None, description="API keys that are accepted; none: no key is needed"
    )


class BatchSettings(Block):
    """``args`` of ``serve_app.batches:build``."""

    removed: ClassVar[Mapping[str, str]] = {
        "most_open": "at most 256 requests are sent at once",
        "most_file_mb": "a file has 512 MB at most",
    }

    serves: str = Field(description="OpenAI-compatible base URL that requests are sent to")
    folder: str = Field(
        description="absolute path of the folder with the database of files and batches"
    )
    storage: str | None = Field(
        None,
        description="where files are kept, as an fsspec URL (s3://bucket/path); none: in `folder`",
    )
    service_tier: str | None = Field(
        None, min_length=1, description="the class of requests that name none"
    )
    urgent_tier: str | None = Field(
        None,
        min_length=1,
        description="the class of a batch's requests while the present rate would miss its"
        " completion window; none: service_tier",
    )
    api_key_env: str | None = Field(
        None,
        min_length=1,
        description="environment variable with the API key that requests are sent with",
    )
    security: BatchSecurity = BatchSecurity()

    @field_validator("serves")
    @classmethod
    def _is_an_address(cls, serves: str) -> str:
        parts = urlsplit(serves)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.query:
            raise ValueError("an address such as http://127.0.0.1:8000/v1")
        return serves.rstrip("/")

    @field_validator("urgent_tier")
    @classmethod
    def _is_another(cls, urgent: str | None, others: ValidationInfo) -> str | None:
        if urgent is not None and others.data.get("service_tier") in (None, urgent):
            raise ValueError("a class other than service_tier, which must be set too")
        return urgent

    @field_validator("folder")
    @classmethod
    def _is_absolute(cls, folder: str) -> str:
        if not Path(folder).is_absolute():
            raise ValueError(
                "an absolute path, because each replica has a working folder of its own"
            )
        return folder


def settings_of(args: Any, where: str = "args") -> BatchSettings:
    """The settings.

    Raises:
        ConfigError: naming each wrong key, its value and what is allowed.
    """
    if isinstance(args, Mapping):
        keys_of({SECURITY: args.get(SECURITY)}, where)  # the message repeats no key
    return parse(BatchSettings, args, where)
