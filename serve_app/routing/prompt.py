"""How long a request's prompt is, and how it begins, from what the client sent. Pure.

Nothing here is validated: the replica does that. What is not understood counts as nothing.
"""

from dataclasses import dataclass
from typing import Any

DEFAULT_CHARS_PER_TOKEN = 4.0
LEAST_CHARS_PER_TOKEN, MOST_CHARS_PER_TOKEN = 0.5, 12.0
LEARNED_AFTER = 50  # prompts
CHARS_OF_ID = 4  # for how many characters of a piece a token id stands
MOST_PIECES = 1024  # of one prompt
BESIDE = (
    *("model", "cache_salt", "tools", "documents", "reasoning_effort"),
    *("chat_template", "chat_template_kwargs"),
)
ASKED_BY = "brimful_asked_by"  # among a request's kv_transfer_params, which no client may set


@dataclass(frozen=True, slots=True)
class Prompt:
    """What was asked.

    Args:
        chars: of text, over all messages or prompts.
        tokens: of prompts that came as token ids.
        max_tokens: of the answer, where the client bounds it.
        prefix: a hash of all up to the end of each whole piece; empty: too short to share anything.
    """

    chars: int
    tokens: int
    max_tokens: int | None
    prefix: tuple[int, ...]


def read_prompt(payload: Any, prefix_chars: int) -> Prompt | None:
    """The prompt in a parsed body of ``/v1/chat/completions`` or ``/v1/completions``.

    Args:
        payload: with the body's fields as attributes; None: the body is not known here.
        prefix_chars: of a piece, in which beginnings are compared; 0: they are not.

    Returns:
        None where there is neither ``messages`` nor ``prompt``, or all is nested too deeply.
    """
    try:
        return _read(payload, prefix_chars)
    except RecursionError:
        return None


def _read(payload: Any, prefix_chars: int) -> Prompt | None:
    messages, prompt = (getattr(payload, name, None) for name in ("messages", "prompt"))
    seed = _beside(payload) if prefix_chars else 0
    bound = getattr(payload, "max_completion_tokens", None)
    if bound is None:
        bound = getattr(payload, "max_tokens", None)
    max_tokens = bound if isinstance(bound, int) and bound > 0 else None
    if isinstance(messages, list) and messages:
        texts, marks, tokens = *_said(messages, media=prefix_chars > 0), 0
    elif isinstance(prompt, str):
        texts, marks, tokens = [prompt], [prompt], 0
    elif isinstance(prompt, list) and prompt:
        texts = marks = [one for one in prompt if isinstance(one, str)]
        ids = prompt if isinstance(prompt[0], int) else None
        tokens = len(ids) if ids else sum(len(one) for one in prompt if isinstance(one, list))
        if ids:
            return Prompt(0, tokens, max_tokens, _chain(ids, prefix_chars // CHARS_OF_ID, seed))
    else:
        return None
    pieces = _chain("\0".join(marks), prefix_chars, seed)
    return Prompt(sum(map(len, texts)), tokens, max_tokens, pieces)


def asked_by(payload: Any) -> str | None:
    """The replica that asks for the prompt's KV alone; None: it is a client's whole request."""
    params = getattr(payload, "kv_transfer_params", None)
    asking = params.get(ASKED_BY) if isinstance(params, dict) else None
    return asking if isinstance(asking, str) else None


def _said(messages: list[Any], *, media: bool) -> tuple[list[str], list[str]]:
    """Texts of messages, and with roles and hashes of media what tells two chats apart."""
    texts: list[str] = []
    marks: list[str] = []
    for message in messages:
        if isinstance(role := _field(message, "role"), str):
            marks.append(role)
        content = _field(message, "content")
        for part in content if isinstance(content, list) else [content]:
            text = part if isinstance(part, str) else _field(part, "text")
            if isinstance(text, str):
                texts.append(text)
                marks.append(text)
            elif media and isinstance(_field(part, "type"), str):
                marks.append(str(hash(repr(part))))
        calls = _field(message, "tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = _field(call, "function")
            for text in (_field(function, "name"), _field(function, "arguments")):
                if isinstance(text, str):
                    texts.append(text)
                    marks.append(text)
    return texts, marks


def _field(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)


def _beside(payload: Any) -> int:
    """A hash of what vLLM hashes, or renders, before the prompt."""
    return hash(repr([getattr(payload, name, None) for name in BESIDE]))


def _chain(whole: str | list[Any], size: int, last: int) -> tuple[int, ...]:
    """A hash for each whole piece, over all up to its end, and over ``last``."""
    chain = []
    for end in range(size, min(len(whole), size * MOST_PIECES) + 1, size) if size else ():
        piece = whole[end - size : end]
        last = hash((last, piece if isinstance(piece, str) else str(piece)))
        chain.append(last)
    return tuple(chain)


class PromptLengths:
    """Characters to tokens: by 4 a token, until prompts sent and prompts served say otherwise.

    Both means are over the same traffic: this router's prompts in characters, and the lengths that
    replicas report in tokens. Several routers see samples of one traffic.
    """

    def __init__(self) -> None:
        self._mean_chars = 0.0
        self._seen = 0

    def note(self, prompt: Prompt) -> None:
        """One more prompt of text was sent."""
        if prompt.chars and not prompt.tokens:
            self._seen += 1
            self._mean_chars += (prompt.chars - self._mean_chars) / min(self._seen, 1000)

    def chars_per_token(self, mean_prompt_tokens: float | None) -> float:
        """What a token has by now, between a half and twelve characters."""
        if self._seen < LEARNED_AFTER or not mean_prompt_tokens:
            return DEFAULT_CHARS_PER_TOKEN
        learned = self._mean_chars / mean_prompt_tokens
        return min(max(learned, LEAST_CHARS_PER_TOKEN), MOST_CHARS_PER_TOKEN)

    def piece_tokens(
        self, prompt: Prompt, prefix_chars: int, mean_prompt_tokens: float | None
    ) -> float:
        """Tokens of a piece of so many characters."""
        if prompt.tokens:
            return prefix_chars // CHARS_OF_ID
        return prefix_chars / self.chars_per_token(mean_prompt_tokens)

    def tokens(self, prompt: Prompt | None, mean_prompt_tokens: float | None) -> float | None:
        """How long it is; the mean where it is not known; None where that is not known either."""
        if prompt is None or not (prompt.chars or prompt.tokens):
            return mean_prompt_tokens
        return prompt.tokens + prompt.chars / self.chars_per_token(mean_prompt_tokens)
