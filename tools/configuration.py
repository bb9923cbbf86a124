"""``python -m tools.configuration``: docs/configuration.md, every key from the models that read it.

Examples are the values of docs/examples/configuration.yaml, which has every key.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from controller.classes import AdmissionConfig, ServiceClass
from controller.config import BatchingConfig, Block
from replicas.door.settings import Security
from replicas.engine.executor import EngineBlock
from replicas.engine.settings import EmulateSettings, FailoverConfig
from serve_app.auto_model import AutoModel
from serve_app.batches.arguments import BatchSettings
from serve_app.config import ScalingConfig
from serve_app.routing.settings import RouterConfig

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"
EXAMPLES = ROOT / "docs" / "examples" / "configuration.yaml"
BLOCKS: dict[str, tuple[type[Block], str]] = {
    "batching": (BatchingConfig, "How a replica's batch is filled, in an entry of `llm_configs`."),
    "classes.NAME": (
        ServiceClass,
        "Service classes, in an entry. A request names one by its `service_tier` (name or alias) or"
        " the header `x-llm-d-inference-objective`. One that would miss its deadline gets a 429"
        " with a `Retry-After` before its first byte ([overload](overload.md),"
        " [why](decisions/0018-who-waits-and-who-is-refused.md)). If classes differ in `itl_ms`,"
        " give them priorities, and `batching.sla` the strictest"
        " ([why](decisions/0027-classes-in-one-step.md)).",
    ),
    "admission": (
        AdmissionConfig,
        "Which requests may wait, in an entry. `longest_wait_s` changes while replicas run. A"
        " client may set its own [deadline](timeouts.md) for the first token. Without this"
        " block, classes and an SLA nothing is refused"
        " ([why](decisions/0038-a-bound-on-the-wait.md)).",
    ),
    "scaling": (
        ScalingConfig,
        "How many replicas, in an entry with `deployment_config.autoscaling_config`"
        " ([why](decisions/0022-when-replicas-come-and-go.md)).",
    ),
    "router": (
        RouterConfig,
        "Which replica gets a request, in an entry"
        " ([why](decisions/0015-where-most-room-is-left.md)). `gather_classes` needs"
        " `RAY_SERVE_INGRESS_REQUEST_ROUTER_FORWARD_BODY=1`"
        " ([why](decisions/0031-classes-are-gathered.md)).",
    ),
    "engine": (
        EngineBlock,
        "Where the model runs, in an entry"
        " ([why](decisions/0010-the-model-in-enginecores-process.md)).",
    ),
    "failover": (
        FailoverConfig,
        "What happens to open answers if an engine dies, in an entry"
        " ([more](kubernetes.md#an-engine-dies), [why](decisions/0052-an-engine-dies.md)).",
    ),
    "emulate": (
        EmulateSettings,
        "An emulated accelerator instead of a real one, in an entry ([configs/emulated.yaml]"
        "(../configs/emulated.yaml), [disturbances](replay-reference.md#disturbed-steps)).",
    ),
    "security": (Security, "Next to `llm_configs`: [security](security.md)."),
    "auto_model": (
        AutoModel,
        "Next to `llm_configs`: [one name for several models](auto-model.md).",
    ),
    "batches": (
        BatchSettings,
        "`args` of the application `serve_app.batches:build`: [batches.md](batches.md).",
    ),
}
# Additions to the descriptions in the models.
MORE = {
    "batching.policy": "`adaptive` uses measured step times and lengths"
    " ([control.md](control.md)), `static` is vLLM without control, `paper`"
    " is Algorithms 1 and 2 of arXiv 2503.05248",
    "batching.sla.itl_ms": "none: KV memory and bounds limit the batch, step times do not",
    "batching.sla.ttft_ms": "a request that will miss it lets others go first",
    "batching.max_running.min": "while fewer requests decode, each step computes at least one"
    " block of a prompt, even if the step misses the SLA",
    "batching.enforce": "`brimful enforce` switches control off and on while replicas run",
    "batching.paper.l0": "[why](decisions/0003-which-l0.md)",
    "batching.roles": "[prefill-decode.md](prefill-decode.md)",
}
OTHER = {  # it excludes keys.file
    f"{place}.keys.env": "BRIMFUL_KEYS" for place in ("security", "batches.security")
}
HEAD = """# Configuration

Reference, made from the code by `python -m tools.configuration`. An entry of `llm_configs` takes \
every key of Ray Serve LLM, and the blocks below. Every key is optional, unless it is marked \
*required*. `brimful check` names each wrong key, its value and what is allowed; `brimful apply` \
says which changes need new replicas.
"""
TAIL = """## Ray Serve LLM's keys with another default

- `deployment_config.graceful_shutdown_timeout_s`: 1800. How long a removed replica may serve its \
open streams; streams that are cut then end with an error event. Set it to your longest answer, \
and to no more than `RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S`. The replica keeps its GPUs until then, \
so a single replica is out of service for as long, and for a start, when it is redeployed \
([start a second one first](upgrade.md)). A node's drain needs a longer deadline than this and a \
start, as in `k8s/base`.
- `autoscaling_config`: `upscale_delay_s` 0, `downscale_delay_s` 60, figures every 2 s over 10 s, \
if the policy is ours and the entry says nothing ([why](decisions/\
0022-when-replicas-come-and-go.md)).
"""
NUMBERS = {float: "number", int: "whole number", bool: "`true`, `false`", str: "text"}
SIGNS = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}


def page() -> str:
    """docs/configuration.md from the code and the examples.

    Raises:
        KeyError: a key has no example.
    """
    return "\n".join([HEAD, *_sections(examples()), TAIL])


def examples() -> dict[str, Any]:
    """A value for every key, by block."""
    blocks: dict[str, Any] = yaml.safe_load(EXAMPLES.read_text())
    return blocks


def _keys(place: str, model: type[Block]) -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a block with its field; ``[]`` stands for each of a list."""
    for name, field in model.model_fields.items():
        inner = _inner(field)
        if inner is None or not isinstance(field.default, inner):
            yield f"{place}.{name}", field
        if inner is not None:
            listed = "[]" if get_origin(field.annotation) in (list, tuple) else ""
            yield from _keys(f"{place}.{name}{listed}", inner)


def _inner(field: FieldInfo) -> type[Block] | None:
    """The block that a key holds, or holds a list of."""
    kinds = [field.annotation, *get_args(field.annotation)]
    return next((kind for kind in kinds if _is_block(kind)), None)


def _is_block(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Block)


def _sections(values: dict[str, Any]) -> Iterator[str]:
    for place, (model, about) in BLOCKS.items():
        yield f"## {place}\n\n{about}\n\n| key | type | default | example | meaning |"
        yield "| --- | --- | --- | --- | --- |"
        for key, field in _keys(place, model):
            example = OTHER[key] if key in OTHER else _example(values, key.split("."))
            cells = (
                f"`{key}`",
                type_of(field),
                _default(field),
                f"`{_flow(example)}`",
                _meaning(key, field),
            )
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        yield ""


def type_of(field: FieldInfo) -> str:
    """The allowed values of a key, in words: kinds, and bounds of numbers."""
    kinds = list(dict.fromkeys(_kinds(field.annotation, field.metadata)))
    return " or ".join(kinds)


def _kinds(annotation: Any, bounds: Iterable[Any]) -> Iterator[str]:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _kinds(args[0], args[1:])
    elif origin is Literal:
        yield ", ".join(f"`{value}`" for value in args)
    elif origin in (list, tuple):
        yield "list"
    elif origin is dict:
        yield "mapping"
    elif args:
        for kind in args:
            if kind is not NoneType:
                yield from _kinds(kind, bounds)
    elif annotation in NUMBERS:
        yield " ".join([NUMBERS[annotation], *_bounds(bounds)])
    else:
        yield "block"


def _bounds(bounds: Iterable[Any]) -> Iterator[str]:
    for bound in bounds:
        for name, sign in SIGNS.items():
            if hasattr(bound, name):
                yield f"{sign} {getattr(bound, name):.12g}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    if field.default is None or field.default == ():
        return "none"
    if not isinstance(field.default, str | int | float | list | dict):
        return "none"  # a block without values
    return f"`{_flow(field.default)}`"


def _example(values: Any, path: list[str]) -> Any:
    for name in path:
        if name == "NAME":
            values = next(iter(values.values()))
        elif name.endswith("[]"):
            values = values[name.removesuffix("[]")][0]
        else:
            values = values[name]
    return values


def _flow(value: Any) -> str:
    if value is False or value is True:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}"
    text = yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)
    return text.removesuffix("\n").removesuffix("...").strip()


def _meaning(key: str, field: FieldInfo) -> str:
    said = (field.description or "", MORE.get(key, ""))
    return "; ".join(one for one in said if one)


def main() -> None:
    """Write the page anew."""
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
