"""Which requests a decode engine prefills itself, and what a prefill engine is asked."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.llm._internal.serve.core.configs.openai_api_models import (
    ChatCompletionRequest,
    CompletionRequest,
)
from ray.llm._internal.serve.engines.vllm.kv_transfer.base import clamp_request_to_single_token

from replicas.server.pd_requests import forbidden, is_local, plain

MESSAGES = [{"role": "user", "content": "hi"}]


def completion(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate({"model": "m", "prompt": "a", **fields})


def chat(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest.model_validate({"model": "m", "messages": MESSAGES, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": ["a", "b"]},
        {"prompt": [[1, 2], [3]]},
        {"prompt_logprobs": 0},
        {"echo": True, "logprobs": 0},
        {"n": 2},
        {"use_beam_search": True},
        {"truncate_prompt_tokens": -1},
    ],
    ids=str,
)
def test_what_another_engines_kv_does_not_suffice_for_is_local(fields: dict[str, Any]) -> None:
    assert is_local(completion(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": ["a"]},
        {"prompt": [1, 2]},
        {"prompt": [[1, 2]]},
        {"echo": True},
        {"logprobs": 1},
        {"truncate_prompt_tokens": 1},
    ],
    ids=str,
)
def test_the_rest_is_prefilled_elsewhere(fields: dict[str, Any]) -> None:
    assert not is_local(completion(**fields))


@pytest.mark.parametrize("make", [completion, chat])
@pytest.mark.parametrize("fields", [{}, {"truncate_prompt_tokens": 100}], ids=str)
def test_a_remote_prefill_is_of_the_very_prompt(make: Any, fields: dict[str, Any]) -> None:
    """What the two requests leave of a prompt of any length is the same."""
    request = make(max_tokens=40, **fields)
    asked = plain(make(**fields))
    clamp_request_to_single_token(asked)
    model = SimpleNamespace(max_model_len=200)
    cut = [one.build_tok_params(model)._truncation_slice(None, 150) for one in (request, asked)]
    assert is_local(request) or cut[0] == cut[1]
    last = make(max_tokens=40, truncate_prompt_tokens=-1).build_tok_params(model)
    first = make(max_tokens=1, truncate_prompt_tokens=-1).build_tok_params(model)
    assert last._truncation_slice(None, 300) != first._truncation_slice(None, 300)


@pytest.mark.parametrize("make", [completion, chat])
def test_a_client_may_not_say_where_kv_is(make: Any) -> None:
    assert forbidden(make()) is None
    assert forbidden(make(kv_transfer_params={})) == "kv_transfer_params"
    hidden = make(vllm_xargs={"kv_transfer_params": "x"})
    assert forbidden(hidden) == "vllm_xargs.kv_transfer_params"


@pytest.mark.parametrize("make", [completion, chat])
def test_a_prefill_engine_is_asked_for_nothing_of_the_answers_text(make: Any) -> None:
    asked = plain(make(min_tokens=5, stop=["x"], response_format={"type": "json_object"}))
    sampling = asked.to_sampling_params(1, {})
    assert (sampling.min_tokens, sampling.stop, sampling.structured_outputs) == (0, [], None)
