"""The name that stands for several models: each request goes to one, by rules in their order. Pure.

``auto_model`` next to ``llm_configs``: small requests go to the small model, and any that a rule
names to another. It is for the plain ingress; direct streaming has one model per application.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar

from pydantic import Field, PositiveInt, StringConstraints, field_validator

from controller.classes import AUTO as OWN_CLASS
from controller.config import Block
from controller.validation import join, shown
from replicas.admission.asked import KEYS_CLASSES, OBJECTIVE
from serve_app.routing.prompt import read_prompt

AUTO = "auto_model"
CHARACTERS_A_TOKEN = 4  # of English text by the usual tokenizers; the ingress has none
NO_INGRESS = (
    "with direct streaming an application has one model, and no ingress reads requests; unset"
    " RAY_SERVE_LLM_ENABLE_DIRECT_STREAMING, or leave the key out"
)
MEDIA = ("image_url", "input_image", "image", "input_audio", "audio_url", "video_url")


HeaderName = Annotated[str, StringConstraints(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]


class Rule(Block):
    """A rule: requests that meet all conditions set here go to this model."""

    removed: ClassVar[Mapping[str, str]] = {"idle_frac": "rules go by what is asked alone"}

    model: str = Field(description="the model_id")
    prompt_tokens: PositiveInt | None = Field(
        None, description="the prompt has at least this many tokens, estimated as characters / 4"
    )
    tools: bool | None = Field(None, description="true: the request has tools; false: it has none")
    media: bool | None = Field(
        None, description="true: the request has images, audio or video; false: it has none"
    )
    service_tier: str | None = Field(None, description="the request names this class")
    headers: dict[HeaderName, str] = Field(
        {}, description="the request has these headers with these values"
    )

    @field_validator("headers")
    @classmethod
    def _by_small_names(cls, headers: dict[str, str]) -> dict[str, str]:
        small = {name.lower(): value.strip() for name, value in headers.items()}
        if len(small) < len(headers):
            raise ValueError("a name is given twice; case does not matter")
        return small

    @property
    def conditions(self) -> dict[str, Any]:
        """The conditions that are set, by key; a header as ``headers.NAME``."""
        told = self.model_dump(exclude={"model", "headers"}, exclude_none=True)
        return told | {f"headers.{name}": value for name, value in self.headers.items()}

    def matches(self, asked: "RequestFacts") -> bool:
        """Whether all of it is true."""
        return (
            (self.prompt_tokens is None or asked.prompt_tokens >= self.prompt_tokens)
            and (self.tools is None or asked.tools == self.tools)
            and (self.media is None or asked.media == self.media)
            and (self.service_tier is None or asked.service_tier == self.service_tier)
            and all(asked.headers.get(name) == value for name, value in self.headers.items())
        )

    def implies(self, other: "Rule") -> bool:
        """Whether the other rule matches all requests that this one matches."""
        mine, theirs = self.conditions, other.conditions
        more = mine.get("prompt_tokens", 0) >= theirs.pop("prompt_tokens", 0)
        return more and theirs.items() <= mine.items()


class AutoModel(Block):
    """``auto_model`` of an application with several models."""

    name: str = Field("auto", min_length=1, description="model name that clients send")
    default: str = Field(description="model_id of the model if no rule matches")
    rules: tuple[Rule, ...] = Field((), description="the first rule that matches chooses the model")


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The parts of a request that rules look at.

    Args:
        prompt_tokens: estimated from the length of the text.
        headers: by their names in lower case.
    """

    prompt_tokens: int
    tools: bool = False
    media: bool = False
    service_tier: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, body: Mapping[str, Any], headers: Mapping[str, str]) -> "RequestFacts":
        """What a request's body and headers say."""
        prompt = read_prompt(SimpleNamespace(**body), 0)
        told = {name.lower(): value for name, value in headers.items()}
        return cls(
            prompt.chars // CHARACTERS_A_TOKEN + prompt.tokens if prompt else 0,
            bool(body.get("tools")),
            "file" in body or any(part in MEDIA for part in _kinds(body.get("messages"))),
            _class_of(body, told),
            told,
        )


def _class_of(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """The class that a request names (``replicas.admission.asked``), else its key's own."""
    said = headers.get(OBJECTIVE, body.get("service_tier"))
    if said in (None, OWN_CLASS) and KEYS_CLASSES in headers:
        return headers[KEYS_CLASSES].split(",")[0]
    return said


def choose(auto: AutoModel, asked: RequestFacts) -> str:
    """The model of a request."""
    rules = (rule.model for rule in auto.rules if rule.matches(asked))
    return next(rules, auto.default)


def problems(auto: AutoModel, models: Iterable[str], where: str) -> list[str]:
    """Problems: models that do not exist, and rules that match never or always."""
    known = list(models)
    found = []
    if auto.name in known:
        found.append(f"{where}.name: {auto.name!r} is not allowed: a model has this name")
    allowed = f"allowed: {', '.join(map(repr, known))}"
    named = {f"{where}.default": auto.default} | {
        join(where, ["rules", k, "model"]): rule.model for k, rule in enumerate(auto.rules)
    }
    wrong = {at: model for at, model in named.items() if model not in known}
    found += [f"{at}: {shown(model)} is not allowed; {allowed}" for at, model in wrong.items()]
    for k, rule in enumerate(auto.rules):
        at = join(where, ["rules", k])
        if not rule.conditions:
            found.append(f"{at}: this rule always matches; name the model as {where}.default")
        before = next((j for j in range(k) if rule.implies(auto.rules[j])), None)
        if before is not None:
            found.append(
                f"{at}: this rule never matches: rules[{before}] takes all of its requests"
            )
    return found


def _kinds(messages: Any) -> Iterator[Any]:
    for message in messages if isinstance(messages, list | tuple) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list | tuple) else ():
            yield part.get("type") if isinstance(part, Mapping) else None
