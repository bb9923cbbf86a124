"""A turn's prompt begins with that of the turn before, in the bodies of Anthropic's client."""

import contextlib
import itertools
import json
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx2
from hypothesis import given
from hypothesis import strategies as st

from serve_app.routing.prompt import Prompt, read_prompt
from tests.property.strategies import examples

PIECE = 64
LEFT_OUT = "x-anthropic-billing-header: cch="
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
sent: list[Any] = []  # the bodies that the client sent


def _recorded(request: httpx2.Request) -> httpx2.Response:
    sent.append(json.loads(request.content))
    return httpx2.Response(400, json={"error": {"message": "enough"}})


HTTP = httpx2.Client(transport=httpx2.MockTransport(_recorded))
ANTHROPIC = anthropic.Anthropic(base_url="http://r", api_key="-", http_client=HTTP, max_retries=0)

texts = st.text(min_size=1, max_size=200)
# What an agent says, the tools that it runs, with which arguments and results, as texts or parts.
turns = st.lists(
    st.tuples(texts, st.lists(st.tuples(texts, texts, st.booleans()), max_size=3), st.booleans()),
    min_size=2,
    max_size=6,
)


def messages(system: Any, talk: list[Any]) -> Prompt:
    """The prompt of what a client sends."""
    tools: Any = [{"name": "read", "input_schema": SCHEMA}]
    with contextlib.suppress(anthropic.BadRequestError):
        ANTHROPIC.messages.create(
            model="m", max_tokens=9, system=system, messages=talk, tools=tools
        )
    found = read_prompt(SimpleNamespace(**sent.pop()), PIECE)
    assert found is not None
    return found


def grows(prompts: list[Prompt], said: list[int]) -> None:
    """Each begins with the one before, and is as long as what has been said by then."""
    for before, after in itertools.pairwise(prompts):
        assert after.prefix[: len(before.prefix)] == before.prefix
    for prompt, chars in zip(prompts, said, strict=True):
        # Names of tools, their schema, and JSON escapes.
        assert chars <= prompt.chars <= 2 * chars + 400 + 40 * len(prompts) ** 2
        # Whole pieces of it, with a character between two texts.
        assert len(prompt.prefix) >= chars // PIECE


def split(text: str, parts: bool) -> Any:
    """A text as clients may send it: as one, or as parts."""
    if not parts:
        return text
    return [
        {"type": "text", "text": one} for one in (text[: len(text) // 2], text[len(text) // 2 :])
    ]


@given(texts, turns, st.booleans())
@examples(0.15)
def test_of_messages(system: str, drawn: Any, marked: bool) -> None:
    talk: list[Any] = []
    prompts, said, chars = [], [], len(system)
    for number, (text, tools, in_parts) in enumerate(drawn):
        talk.append({"role": "user", "content": split(text, in_parts)})
        chars += len(text)
        own = {"type": "text", "text": f"{LEFT_OUT}{number}"}  # of each request another one
        rules = [own, {"type": "text", "text": system}]
        if marked and isinstance(talk[-1]["content"], list):
            # Where its cache is to reach to, which moves with every turn.
            for message in talk:
                for block in message["content"] if isinstance(message["content"], list) else ():
                    block.pop("cache_control", None)
            talk[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        prompts.append(messages(rules, talk))
        said.append(chars)
        calls = [
            {"type": "tool_use", "id": f"t{k}", "name": "read", "input": {"path": path}}
            for k, (path, _, _) in enumerate(tools)
        ]
        thought = {"type": "thinking", "thinking": text, "signature": "s"}
        talk.append(
            {"role": "assistant", "content": [thought, {"type": "text", "text": text}, *calls]}
        )
        chars += 2 * len(text) + sum(len(path) for path, _, _ in tools)
        if tools:
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": f"t{k}",
                    "content": split(text, parts),
                }
                for k, (_, text, parts) in enumerate(tools)
            ]
            talk.append({"role": "user", "content": results})
            chars += sum(len(text) for _, text, _ in tools)
    grows(prompts, said)
