"""Check ``engine_kwargs`` by vLLM's own types and bounds, without loading a model."""

import enum
import inspect
import re
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, get_args

import vllm.config
from pydantic import ConfigDict, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from vllm.config import SchedulerConfig, SpeculativeConfig
from vllm.engine.arg_utils import AsyncEngineArgs

from controller.validation import join, nearest
from replicas.workarounds.vllm_moved import moved
from serve_app.checks.shapes import ENGINE
from serve_app.checks.values import call_problems, line, value_problems

SIZES = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_chunked_prefill")


def engine_problems(kwargs: Mapping[str, Any], where: str, *, local_paths: bool) -> list[str]:
    """Wrong types and values; ``kwargs`` holds known keys only.

    Args:
        local_paths: files that they name are on this machine.
    """
    given = {key: value for key, value in kwargs.items() if value is not None}
    found = []
    for key, value in given.items():
        found += _value(key, value, join(where, [key]))
    return found or (
        _parsers(given, where) + _sizes(given, where) + _served(given, where, local_paths)
    )


def _served(kwargs: Mapping[str, Any], where: str, local_paths: bool) -> list[str]:
    """vLLM's own rules between the arguments of its server, in its words; Ray does not ask it."""
    kinds = (moved("FrontendArgs"), AsyncEngineArgs)
    every = [one for kind in kinds for one in fields(kind) if one.default is not MISSING]
    defaults = {"api_server_count": None, **{one.name: one.default for one in every}}
    given = {k: v for k, v in kwargs.items() if local_paths or k != "chat_template"}
    found: list[str] = []
    while True:  # it stops at the first
        try:
            moved("validate_parsed_serve_args")(Namespace(**{**defaults, **given}))
            return found + (_template(given, where) if given.get("chat_template") else [])
        except (TypeError, ValueError) as error:
            text = str(error).removeprefix("Error: ")
            text = re.sub("--([a-z][a-z-]+)", lambda flag: flag[1].replace("-", "_"), text)
            named = [key for key in given if key in text or key.replace("_", " ") in text]
            key = min(named, key=text.find, default=None)
            if key is None:
                return [*found, f"{where}: {text}"]
            found.append(line(join(where, [key]), given.pop(key), text))


def _template(kwargs: Mapping[str, Any], where: str) -> list[str]:
    """A chat template that no chat could be written by, which vLLM finds out at each request."""
    from jinja2 import TemplateError, TemplateSyntaxError
    from transformers.utils.chat_template_utils import _compile_jinja_template
    from vllm.entrypoints.chat_utils import load_chat_template

    given = kwargs["chat_template"]
    try:
        _compile_jinja_template(load_chat_template(given))
    except (TemplateError, ValueError) as error:
        number = error.lineno if isinstance(error, TemplateSyntaxError) else None
        at = f"line {number}: " if number else ""
        return [line(join(where, ["chat_template"]), given, f"{at}{error}")]
    return []


def _parsers(kwargs: Mapping[str, Any], where: str) -> list[str]:
    """Names of parsers, which vLLM looks up once the model is loaded; plugins bring more."""
    # Imported here: they cost a second, and few configurations name one.
    known: dict[str, Callable[[], list[str]]] = {}
    if "tool_call_parser" in kwargs and not kwargs.get("tool_parser_plugin"):
        from vllm.tool_parsers import ToolParserManager

        known["tool_call_parser"] = ToolParserManager.list_registered
    if "reasoning_parser" in kwargs and not kwargs.get("reasoning_parser_plugin"):
        from vllm.reasoning import ReasoningParserManager

        known["reasoning_parser"] = ReasoningParserManager.list_registered
    return [
        line(join(where, [key]), kwargs[key], nearest(str(kwargs[key]), names()))
        for key, names in known.items()
        if kwargs[key] and kwargs[key] not in names()
    ]


def _value(key: str, value: Any, where: str) -> list[str]:
    annotation = ENGINE.keys[key]
    if annotation is SpeculativeConfig:  # vLLM adds the target model's configuration first
        return [] if isinstance(value, dict) else value_problems(dict[str, Any], value, where)
    members = [m for kind in _enums(annotation) for m in kind]
    if members and isinstance(value, str):
        names = [member.name for member in members]
        known = value.upper() in names or value in [member.value for member in members]
        return [] if known else [line(where, value, nearest(value.upper(), names))]
    kind = _bounded(key, annotation)
    found = call_problems(lambda: kind.validate_python(value), value, where)
    if found or not isinstance(value, bool | int | float | str):
        return found
    checked = kind.validate_python(value)
    if isinstance(checked, bool | int | float) and not _alike(value, checked):
        # vLLM does not convert it: "false" would count as true.
        return [line(where, value, f"must be of type {type(checked).__name__}")]
    return []


def _alike(value: Any, checked: Any) -> bool:
    whole = type(value) is int
    return type(value) is type(checked) or (whole and isinstance(checked, float | enum.Enum))


@cache
def _bounds() -> dict[str, FieldInfo]:
    """The bounds of an engine argument stand in the config class it goes to, by the same name."""
    found: dict[str, FieldInfo] = {}
    for kind in vars(vllm.config).values():
        fields = getattr(kind, "__pydantic_fields__", None)
        # SpeculativeConfig uses the same names for the draft model.
        if inspect.isclass(kind) and is_dataclass(kind) and kind is not SpeculativeConfig:
            found.update({k: v for k, v in (fields or {}).items() if v.metadata})
    return found


def _bounded(key: str, annotation: Any) -> TypeAdapter[Any]:
    info = _bounds().get(key)
    if info is not None:
        annotation = Annotated[annotation, *info.metadata]
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError:  # a config class, which has its own
        return TypeAdapter(annotation)


def _enums(annotation: Any) -> Iterator[type[enum.Enum]]:
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        yield annotation
    for member in get_args(annotation):
        yield from _enums(member)


def _sizes(kwargs: Mapping[str, Any], where: str) -> list[str]:
    """The scheduler's own agreement between the sizes, where all of its parts are given."""
    given = {key: kwargs[key] for key in SIZES if key in kwargs}
    if not {"max_num_seqs", "max_num_batched_tokens"} <= given.keys():
        return []
    given.setdefault("max_model_len", given["max_num_batched_tokens"])
    return call_problems(lambda: SchedulerConfig(is_encoder_decoder=False, **given), given, where)
