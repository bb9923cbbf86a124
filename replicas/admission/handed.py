"""What vLLM's app hands to ``AsyncLLM.generate``, as far as admission goes by it. Pure."""

import copy
from collections.abc import Mapping
from typing import Any

from controller.request_slo import KEY, RequestSlo


def promised(sampling_params: Any, slo: RequestSlo | None) -> Any:
    """The same with what its class is promised, for the engine; nobody else says that."""
    told = dict(sampling_params.extra_args or {})
    if slo is None and KEY not in told:
        return sampling_params
    told.pop(KEY, None)
    own = copy.copy(sampling_params)
    own.extra_args = told if slo is None else told | {KEY: slo.to_wire()}
    return own


def prompt_tokens(prompt: Any) -> int:
    """How many tokens a prompt has, of what vLLM's app hands to ``generate``; 0 where not known."""
    known = prompt if isinstance(prompt, Mapping) else vars(prompt) if _is_object(prompt) else {}
    ids = known.get("prompt_token_ids")
    if ids is not None:
        return len(ids)
    embeds = known.get("prompt_embeds")
    return len(embeds) if embeds is not None else 0


def _is_object(prompt: Any) -> bool:
    return hasattr(prompt, "__dict__")
