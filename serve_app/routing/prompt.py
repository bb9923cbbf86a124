"""Length and beginning of a request's prompt, from what the client sent. Pure.

Nothing is validated here: the replica does that. What cannot be read counts as empty.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DEFAULT_CHARS_PER_TOKEN = 4.0
LEAST_CHARS_PER_TOKEN, MOST_CHARS_PER_TOKEN = 0.5, 12.0
LEARNED_AFTER = 50  # prompts
CHARS_OF_ID = 4  # characters that a token id stands for in a piece
MOST_PIECES = 1024  # of one prompt
# Messages, parts and texts that are read, about 40 ms: no key has been checked yet.
MOST_READ = 50_000
# The texts of a message, an item of input or a part, in one order for all turns: reasoning, text, a
# tool's call and its result. The data of pictures is left out.
SAID = (
    *("thinking", "reasoning", "reasoning_content", "summary", "content", "text"),
    *("tool_calls", "function", "name", "arguments", "input", "output"),
)
LAST_FIRST = SAID[::-1]
Mark = tuple[Any]  # a role, or a part of a message that has no text
BESIDE = (
    *("model", "cache_salt", "documents", "reasoning_effort", "previous_response_id"),
    *("chat_template", "chat_template_kwargs"),
)
BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# Clients put a hash of each request there, which vLLM leaves out.
LEFT_OUT = "x-anthropic-billing-header"
ASKED_BY = "brimful_asked_by"  # key of kv_transfer_params, which no client may set


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request asks for.

    Args:
        chars: characters of text, over all messages or prompts.
        tokens: of prompts given as token ids.
        max_tokens: bound on the answer, if the client set one.
        prefix: a hash of all text up to the end of each whole piece; empty: too short to share.
    """

    chars: int
    tokens: int
    max_tokens: int | None
    prefix: tuple[int, ...]


def read_prompt(payload: Any, prefix_chars: int) -> Prompt | None:
    """The prompt in a parsed body: of completions, chat, messages, responses or embeddings.

    Args:
        payload: has the body's fields as attributes; None: the body is unknown here.
        prefix_chars: characters of a piece for comparing beginnings; 0: they are not compared.

        Returns:
            None without ``messages``, ``prompt`` and ``input``. What is nested too deeply counts as
            empty.
    """
    bound = next(
        (one for name in BOUNDS if (one := getattr(payload, name, None)) is not None), None
    )
    max_tokens = bound if isinstance(bound, int) and bound > 0 else None
    tools = getattr(payload, "tools", None)
    before = [_dumped(tools)] if tools else []
    seed = _beside(payload, before) if prefix_chars else 0
    held = (getattr(payload, name, None) for name in ("messages", "prompt", "input"))
    prompt = next((one for one in held if one and isinstance(one, str | list)), None)
    if prompt is None:
        return None
    if isinstance(prompt, list) and isinstance(prompt[0], int):
        pieces = _chain(prompt, prefix_chars // CHARS_OF_ID, seed)
        return Prompt(0, len(prompt), max_tokens, pieces)
    if isinstance(prompt, list):
        prompt = prompt[:MOST_READ]
    tokens = sum(len(one) for one in prompt if isinstance(one, list))
    said = [*before, *_spoken(payload, prompt)]
    chars = sum(len(one) for one in said if isinstance(one, str))
    whole = "\0".join(map(_marked, said)) if prefix_chars else ""
    return Prompt(chars, tokens, max_tokens, _chain(whole, prefix_chars, seed))


def asked_by(payload: Any) -> str | None:
    """The replica that asks for the prompt's KV only; None: a whole request from a client."""
    params = getattr(payload, "kv_transfer_params", None)
    asking = params.get(ASKED_BY) if isinstance(params, dict) else None
    return asking if isinstance(asking, str) else None


def _spoken(payload: Any, prompt: str | list[Any]) -> Iterator[str | Mark]:
    """All texts and marks of a prompt in the order in which vLLM renders them.

    ``instructions`` of responses and ``system`` of messages come first. With ``system``, system
    messages from between the turns come first as well (``AnthropicServingMessages``).
    """
    system, later = getattr(payload, "system", None), prompt
    if system and isinstance(prompt, list):
        system = [system, [one for one in prompt if _field(one, "role") == "system"]]
        later = [one for one in prompt if _field(one, "role") != "system"]
    for first in (getattr(payload, "instructions", None), system):
        if first:
            yield ("system",)  # as in chat
        for text in _texts(first):
            if not (isinstance(text, str) and text.startswith(LEFT_OUT)):
                yield text
    if isinstance(prompt, str) and getattr(payload, "input", None) is prompt:
        yield ("user",)  # as in the next turn's list
    yield from _texts(later)


def _texts(value: Any) -> Iterator[str | Mark]:
    """All text in a text, a message, an item, or a list of these, in order.

    Other differences are marks: a role, or a part without text, such as a picture.
    """
    below = [value]
    for _ in range(MOST_READ):
        if not below:
            return
        one = below.pop()
        if isinstance(one, str | tuple):
            yield one
        elif isinstance(one, list):
            below += reversed(one)
        elif one is not None and not isinstance(one, bool | int | float):
            known = one.keys() if isinstance(one, dict) else None
            if known and known.isdisjoint(SAID) and isinstance(one.get("type"), str):
                yield (one,)
            below += [_said(one, name) for name in LAST_FIRST if known is None or name in known]
            if isinstance(role := _field(one, "role"), str):
                below.append((role,))


def _marked(said: str | Mark) -> str:
    """Its form in the text whose pieces are hashed."""
    if isinstance(said, str):
        return said
    return said[0] if isinstance(said[0], str) else str(hash(_dumped(said[0])))


def _said(holder: Any, name: str) -> Any:
    found = _field(holder, name)
    return _dumped(found) if name == "input" and isinstance(found, dict) else found


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):
        return ""


def _field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _beside(payload: Any, tools: list[str]) -> int:
    """A hash of what vLLM hashes or renders before the prompt."""
    return hash((*tools, *(_dumped(getattr(payload, name, None)) for name in BESIDE)))


def _chain(whole: str | list[Any], size: int, last: int) -> tuple[int, ...]:
    """A hash for each whole piece, over ``last`` and all text up to its end."""
    chain = []
    for end in range(size, min(len(whole), size * MOST_PIECES) + 1, size) if size else ():
        piece = whole[end - size : end]
        last = hash((last, piece if isinstance(piece, str) else _dumped(piece)))
        chain.append(last)
    return tuple(chain)


class PromptLengths:
    """Characters to tokens: 4 characters a token, until the ratio is learned from traffic.

    The ratio is this router's mean prompt in characters over the mean prompt that replicas report
    in tokens. With several routers, each sees a sample of the traffic.
    """

    def __init__(self) -> None:
        self._mean_chars = 0.0
        self._seen = 0

    def note(self, prompt: Prompt) -> None:
        """Count a prompt of text."""
        if prompt.chars and not prompt.tokens:
            self._seen += 1
            self._mean_chars += (prompt.chars - self._mean_chars) / min(self._seen, 1000)

    def chars_per_token(self, mean_prompt_tokens: float | None) -> float:
        """Characters per token by now, between 0.5 and 12."""
        if self._seen < LEARNED_AFTER or not mean_prompt_tokens:
            return DEFAULT_CHARS_PER_TOKEN
        learned = self._mean_chars / mean_prompt_tokens
        return min(max(learned, LEAST_CHARS_PER_TOKEN), MOST_CHARS_PER_TOKEN)

    def piece_tokens(
        self, prompt: Prompt, prefix_chars: int, mean_prompt_tokens: float | None
    ) -> float:
        """Tokens of a piece."""
        if prompt.tokens:
            return prefix_chars // CHARS_OF_ID
        return prefix_chars / self.chars_per_token(mean_prompt_tokens)

    def tokens(self, prompt: Prompt | None, mean_prompt_tokens: float | None) -> float | None:
        """Tokens of a prompt; the mean if it is unknown; None if that is unknown, too."""
        if prompt is None or not (prompt.chars or prompt.tokens):
            return mean_prompt_tokens
        return prompt.tokens + prompt.chars / self.chars_per_token(mean_prompt_tokens)
