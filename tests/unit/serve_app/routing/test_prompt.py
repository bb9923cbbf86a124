"""How long a prompt is, from whatever a client may have sent."""

from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.routing.prompt import MOST_PIECES, MOST_READ, Prompt, PromptLengths, read_prompt

LONG = "x" * 100


def read(**body: Any) -> Prompt:
    found = read_prompt(SimpleNamespace(**body), prefix_chars=80)
    assert found is not None
    return found


CALL = {"type": "tool_use", "id": "t", "name": "read", "input": {"path": "a"}}
IMAGE = {"type": "image", "source": {"type": "base64", "data": LONG}}
RESULT = {
    "type": "tool_result",
    "content": [{"type": "text", "text": "four"}, IMAGE, {"text": "ab"}],
}
CHATS = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOLS = '[{"name": "f"}]'
DEEP: Any = {}
for _ in range(5000):
    DEEP = {"a": DEEP}
PARTS = [{"type": "text", "text": "four"}, {"type": "image_url", "image_url": {}}]


@pytest.mark.parametrize(
    ("body", "chars", "tokens"),
    [
        ({"messages": [{"content": "abc"}, {"role": "user", "content": PARTS}]}, 7, 0),
        ({"messages": [SimpleNamespace(content="ab")]}, 2, 0),
        ({"prompt": "four"}, 4, 0),
        ({"prompt": ["four", "more"]}, 8, 0),
        ({"prompt": [1, 2, 3]}, 0, 3),
        ({"prompt": [[1, 2], [3]]}, 0, 3),
        # Anthropic's messages.
        ({"system": "abc", "messages": [{"role": "user", "content": "de"}]}, 5, 0),
        ({"system": [{"type": "text", "text": "abc"}], "messages": [{"content": PARTS}]}, 7, 0),
        ({"messages": [{"content": [CALL, RESULT]}]}, len('read{"path": "a"}fourab'), 0),
        ({"messages": [{"content": [{"type": "thinking", "thinking": "abc"}]}]}, 3, 0),
        ({"messages": [{"content": "abc"}], "tools": [{"name": "f"}]}, 3 + len(TOOLS), 0),
        # Responses.
        ({"input": "abc", "instructions": "de"}, 5, 0),
        ({"input": [{"role": "user", "content": PARTS}], "instructions": None}, 4, 0),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, 3, 0),
        ({"input": [{"type": "function_call_output", "output": "abc"}]}, 3, 0),
        ({"input": [{"type": "function_call_output", "output": PARTS}]}, 4, 0),
        ({"input": [{"type": "reasoning", "summary": [{"text": "ab"}], "content": PARTS}]}, 6, 0),
        # Tools of chat, and embeddings.
        ({"messages": [{"content": None, "tool_calls": [CHATS]}]}, len("f{}"), 0),
        ({"input": ["four", "more"]}, 8, 0),
        ({"input": [1, 2, 3]}, 0, 3),
    ],
)
def test_characters_are_counted_over_all_messages_parts_and_prompts(
    body: dict[str, Any], chars: int, tokens: int
) -> None:
    found = read(**body)
    assert (found.chars, found.tokens) == (chars, tokens)


def test_what_is_nested_too_deeply_to_be_hashed_ends_no_choice() -> None:
    assert (
        len(read(prompt=LONG, model=DEEP, cache_salt=DEEP, chat_template_kwargs=DEEP).prefix) == 1
    )
    assert len(read(prompt=[1, DEEP] * 40).prefix) == 4


@pytest.mark.parametrize("system", ["", "s"])
def test_of_a_body_of_millions_of_parts_no_more_is_read_than_a_router_has_time_for(
    system: str,
) -> None:
    turn = {"role": "user", "content": [{"text": "a"}]}
    for body in ({"messages": [turn] * 300_000}, {"messages": [{"content": [turn] * 300_000}]}):
        assert 9_000 < read(**body, system=system).chars < MOST_READ
    assert read(prompt=list(range(300_000))).tokens == 300_000


def test_prompts_that_begin_alike_have_one_prefix() -> None:
    assert len(read(prompt=LONG).prefix) == 1
    assert read(prompt=LONG + "a").prefix == read(prompt=LONG + "b").prefix
    assert read(prompt="y" + LONG).prefix != read(prompt=LONG).prefix
    assert read(prompt="short").prefix == ()
    sizes = [len(read(prompt="x" * chars).prefix) for chars in (79, 80, 81, 159, 160, 80 * 2000)]
    assert sizes == [0, 1, 1, 1, 2, MOST_PIECES]
    chat = [{"content": LONG[:50]}, {"content": LONG}]
    assert read(messages=chat).prefix == read(messages=[*chat, {"content": "next"}]).prefix
    longer = read(messages=[*chat, {"content": LONG}]).prefix
    assert longer[:1] == read(messages=chat).prefix and len(longer) == 3
    assert len({*longer}) == 3  # each is of all before it, too
    ids = list(range(40))
    assert read(prompt=ids).prefix[:1] == read(prompt=[*ids[:20], 99]).prefix
    assert read(prompt=ids).prefix != read(prompt=ids[::-1]).prefix
    assert read(prompt=ids[:3]).prefix == ()


def test_a_client_s_hash_of_each_request_is_left_out() -> None:
    def claude(each: str, text: str = LONG) -> Prompt:
        own = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=1; cch={each}"}
        return read(system=[own, {"type": "text", "text": text}], messages=[{"content": LONG}])

    assert claude("00000") == claude("1f2e3")
    assert claude("00000").prefix != claude("00000", "y" * 100).prefix
    assert claude("00000").chars == 200


def test_system_messages_between_turns_are_where_vllm_has_them() -> None:
    turns = [{"role": "user", "content": LONG}, {"role": "assistant", "content": "a"}]
    between = [*turns, {"role": "system", "content": "new rules"}, {"role": "user", "content": "b"}]
    # Of Anthropic's API it merges them into the first one, so all after that is computed again.
    assert (
        read(system=LONG, messages=between).prefix[1:]
        != read(system=LONG, messages=turns).prefix[1:]
    )
    assert read(messages=between).prefix == read(messages=turns).prefix  # chat: in place


@pytest.mark.parametrize(
    "beside",
    [
        {"model": "adapter"},
        {"cache_salt": "tenant"},
        {"tools": [{"name": "f"}]},
        {"documents": [{"text": "d"}]},
        {"chat_template": "t"},
        {"reasoning_effort": "low"},
    ],
)
def test_nothing_is_shared_with_another_model_salt_or_tools(beside: dict[str, Any]) -> None:
    assert read(prompt=LONG, **beside).prefix != read(prompt=LONG).prefix
    assert read(prompt=LONG, **beside).prefix == read(prompt=LONG, **beside).prefix


def test_four_characters_are_a_token_until_more_is_known() -> None:
    lengths_ = PromptLengths()
    text = Prompt(800, 0, None, ())
    assert lengths_.tokens(text, mean_prompt_tokens=None) == 200
    for _ in range(49):
        lengths_.note(text)
    assert lengths_.tokens(text, mean_prompt_tokens=400) == 200
    lengths_.note(text)
    assert lengths_.tokens(text, mean_prompt_tokens=400) == 400
    assert lengths_.chars_per_token(1e9) == 0.5
    assert lengths_.chars_per_token(1e-9) == 12


def image(url: str) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": LONG}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"content": image("a")}, {"content": image("b")}),
        ({"role": "user", "content": LONG}, {"role": "system", "content": LONG}),
        (
            {"tool_calls": [{"function": {"name": "f", "arguments": LONG}}]},
            {"tool_calls": [{"function": {"name": "f", "arguments": "y" + LONG}}]},
        ),
    ],
)
def test_nothing_is_shared_after_another_image_role_or_call(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    last = {"role": "user", "content": LONG}
    assert read(messages=[one, last]).prefix == read(messages=[one, last]).prefix
    found = zip(read(messages=[one, last]).prefix, read(messages=[other, last]).prefix, strict=True)
    assert not any(a == b for a, b in found)


def test_a_turn_may_change_the_api() -> None:
    talk = [{"role": "user", "content": LONG}, {"role": "assistant", "content": LONG}]
    bodies: list[dict[str, Any]] = [
        {"messages": [{"role": "system", "content": LONG}, *talk]},
        {"system": LONG, "messages": talk},
        {"system": [{"type": "text", "text": LONG}], "messages": talk},
        {"instructions": LONG, "input": talk},
    ]
    found = [read(**body) for body in bodies]
    assert found == found[:1] * 4
    assert len(found[0].prefix) == 4
    assert read(input=LONG) == read(input=talk[:1])
