"""Requests as clients of OpenAI's API and of vLLM's own send them, for two servers side by side."""

import json
from dataclasses import dataclass
from typing import Any

JSON = {"content-type": "application/json"}
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
RESPONSES, EMBEDDINGS = "/v1/responses", "/v1/embeddings"
ASK = {"model": "m", "prompt": "a river", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
HI = [{"role": "user", "content": "hi"}]
TALK = {"model": "m", "messages": HI, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
USAGE = {"include_usage": True}
ANSWER = {"model": "m", "input": "hi", "max_output_tokens": 4, "temperature": 0}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "s", "schema": {"type": "object", "properties": {}}},
}
NO_SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "s", "schema": {"type": "objekt", "properties": 7}},
}


@dataclass(frozen=True)
class Probe:
    """One request.

    Args:
        name: of it.
        why: the reason for which ours answers otherwise; empty: the same status and shape.
    """

    name: str
    method: str
    path: str
    content: bytes = b""
    headers: tuple[tuple[str, str], ...] = tuple(JSON.items())
    why: str = ""


def post(
    name: str,
    path: str,
    base: Any = None,
    /,
    *,
    why: str = "",
    raw: bytes | None = None,
    **more: Any,
) -> Probe:
    """A JSON body: ``base`` with what else is given, without what is given as ``...``."""
    body = {key: value for key, value in {**(base or {}), **more}.items() if value is not ...}
    return Probe(name, "POST", path, raw if raw is not None else json.dumps(body).encode(), why=why)


def typed(name: str, kind: str | None, why: str = "") -> Probe:
    """A completion whose Content-Type is this."""
    headers = () if kind is None else (("content-type", kind),)
    return Probe(name, "POST", COMPLETIONS, json.dumps(ASK).encode(), headers, why)


FASTAPIS = "FastAPI's own shape, in which OpenAI's client finds no message"
CLOSED = "closed by default: security.extra_paths opens it"
VLLMS_500 = "vLLM answers 500, which clients repeat"

PROBES = (
    post("completion", COMPLETIONS, ASK),
    post("completion, streamed", COMPLETIONS, ASK, stream=True),
    post("usage in a stream", COMPLETIONS, ASK, stream=True, stream_options=USAGE),
    post(
        "usage all along", COMPLETIONS, ASK, stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    ),
    post("stream_options without stream", COMPLETIONS, ASK, stream_options=USAGE),
    post("several prompts", COMPLETIONS, ASK, prompt=["a", "b c", "d"]),
    post("token ids", COMPLETIONS, ASK, prompt=[5, 6, 7]),
    post("lists of token ids", COMPLETIONS, ASK, prompt=[[5, 6, 7], [8, 9]]),
    post("n of 3", COMPLETIONS, ASK, n=3, temperature=1.0, seed=1),
    post("n of 3, streamed", COMPLETIONS, ASK, n=3, temperature=1.0, seed=1, stream=True),
    post("echo", COMPLETIONS, ASK, echo=True),
    post("logprobs", COMPLETIONS, ASK, logprobs=2),
    post("prompt_logprobs", COMPLETIONS, ASK, prompt_logprobs=1),
    post("stop", COMPLETIONS, ASK, stop=["zzz"], include_stop_str_in_output=True),
    post("min_tokens", COMPLETIONS, ASK, min_tokens=2, ignore_eos=False),
    post("logit_bias", COMPLETIONS, ASK, logit_bias={"5": 1.0}),
    post("return_token_ids", COMPLETIONS, ASK, return_token_ids=True),
    post("a user and metadata", COMPLETIONS, ASK, user="u", metadata={"a": "b"}),
    post("an unknown field", COMPLETIONS, ASK, nobody_knows=1),
    post("no model named", COMPLETIONS, ASK, model=...),
    post("unknown model", COMPLETIONS, ASK, model="nope"),
    post("no tokens", COMPLETIONS, ASK, max_tokens=0),
    post("null tokens", COMPLETIONS, ASK, max_tokens=None, ignore_eos=False, stop=["a", "e"]),
    post("negative tokens", COMPLETIONS, ASK, max_tokens=-1),
    post("more than the model has", COMPLETIONS, ASK, max_tokens=5000),
    post("longer than the model", COMPLETIONS, ASK, prompt=[7] * 2000),
    post("empty prompt", COMPLETIONS, ASK, prompt=""),
    post("no prompt", COMPLETIONS, ASK, prompt=...),
    post("a token out of the vocabulary", COMPLETIONS, ASK, prompt=[5, 999_999]),
    post("an empty stop", COMPLETIONS, ASK, stop=[""]),
    post("best_of", COMPLETIONS, ASK, best_of=2),
    post("a temperature too high", COMPLETIONS, ASK, temperature=9),
    post("text for a number", COMPLETIONS, ASK, max_tokens="many"),
    post("a regex that cannot be read", COMPLETIONS, ASK, structured_outputs={"regex": "((["}),
    post("a choice", COMPLETIONS, ASK, structured_outputs={"choice": ["a", "b"]}),
    post("priority", COMPLETIONS, ASK, priority=3),
    post("a priority that is no number", COMPLETIONS, ASK, priority="high"),
    post("5,000 stops", COMPLETIONS, ASK, stop=[f"x{n}" for n in range(5000)]),
    post("suffix", COMPLETIONS, ASK, suffix="x"),
    post("129 answers", COMPLETIONS, ASK, n=129, temperature=1),
    post("2,049 prompts", COMPLETIONS, ASK, prompt=["a"] * 2049, max_tokens=1),
    post("half a surrogate", COMPLETIONS, raw=b'{"model":"m","prompt":"\\ud800 x","max_tokens":2}'),
    post("half of one in a stop", COMPLETIONS, ASK, stop=["\ud800"], why=VLLMS_500),
    post("a number of 70 bits", COMPLETIONS, ASK, stop_token_ids=[2**70]),
    post("no JSON", COMPLETIONS, raw=b"{"),
    post("no object", COMPLETIONS, raw=b"[1]"),
    post("nothing", COMPLETIONS, raw=b""),
    post("no UTF-8", COMPLETIONS, raw=b'{"prompt": "\xff"}', why=FASTAPIS),
    typed("no Content-Type", None),
    typed("JSON as text/plain", "text/plain"),
    typed("JSON as a form", "application/x-www-form-urlencoded"),
    typed("JSON with a charset", "application/json; charset=utf-8"),
    post("chat", CHAT, TALK),
    post("chat, streamed", CHAT, TALK, stream=True),
    post("chat with usage", CHAT, TALK, stream=True, stream_options=USAGE),
    post("max_completion_tokens", CHAT, TALK, max_tokens=..., max_completion_tokens=3),
    post("chat n of 2", CHAT, TALK, n=2, temperature=1.0, seed=1),
    post("chat logprobs", CHAT, TALK, logprobs=True, top_logprobs=2),
    post("a system prompt", CHAT, TALK, messages=[{"role": "system", "content": "s"}, *HI]),
    post("parts", CHAT, TALK, messages=[
        {"role": "user", "content": [{"type": "text", "text": "a"}]}
    ]),
    post("an image for a text model", CHAT, TALK, messages=[
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    ]),
    post("no messages", CHAT, TALK, messages=[]),
    post("messages missing", CHAT, TALK, messages=...),
    post("a message without a role", CHAT, TALK, messages=[{"content": "a"}]),
    post("a message that is a number", CHAT, TALK, messages=[1]),
    post("tools", CHAT, TALK, tools=[TOOL]),
    post("tool_choice none", CHAT, TALK, tools=[TOOL], tool_choice="none"),
    post("tool_choice of no tool", CHAT, TALK, tools=[TOOL], tool_choice="sometimes"),
    post("a schema", CHAT, TALK, response_format=SCHEMA),
    post("a schema that is none", CHAT, TALK, response_format=NO_SCHEMA),
    post("a schema, after that", CHAT, TALK, response_format=SCHEMA),
    post("a JSON object", CHAT, TALK, response_format={"type": "json_object"}),
    post("response_format unknown", CHAT, TALK, response_format={"type": "xml"}),
    post("half of one in a message", CHAT,
         raw=b'{"messages":[{"role":"user","content":"\\ud83d"}]}'),
    post("reasoning_effort", CHAT, TALK, reasoning_effort="low"),
    post("parallel_tool_calls", CHAT, TALK, parallel_tool_calls=False),
    post("store", CHAT, TALK, store=False),
    post("continue_final_message and a new one", CHAT, TALK, continue_final_message=True),
    post("responses", RESPONSES, ANSWER),
    post("responses, streamed", RESPONSES, ANSWER, stream=True),
    post("responses of items", RESPONSES, ANSWER, input=HI),
    post("responses with instructions", RESPONSES, ANSWER, instructions="be brief"),
    post("responses in the background", RESPONSES, ANSWER, background=True),
    post("responses after another", RESPONSES, ANSWER, previous_response_id="resp_1"),
    post("responses without input", RESPONSES, ANSWER, input=...),
    post(
        "responses of unknown items", RESPONSES, ANSWER,
        input=[{"type": "computer_call_output", "call_id": "c", "output": {}}],
    ),
    post(
        "embeddings of a model that generates", EMBEDDINGS, {"model": "m", "input": "hi"},
        why=FASTAPIS,
    ),
    Probe("models", "GET", "/v1/models"),
    Probe("health", "GET", "/health"),
    Probe("ping", "GET", "/ping"),
    Probe("ping, posted", "POST", "/ping"),
    Probe("a wrong method", "GET", COMPLETIONS, why=FASTAPIS),
    Probe("another wrong method", "DELETE", "/v1/models", why=FASTAPIS),
    Probe("a slash behind", "GET", "/v1/models/"),
    Probe("a slash behind a POST", "POST", f"{CHAT}/", json.dumps(TALK).encode()),
    Probe("no such path", "GET", "/v1/nothing", why=FASTAPIS),
    Probe("the root", "GET", "/", why=FASTAPIS),
    Probe("version", "GET", "/version", why=CLOSED),
    Probe("metrics", "GET", "/metrics", why=CLOSED),
    Probe("load", "GET", "/load", why=CLOSED),
    Probe("docs", "GET", "/docs", why=CLOSED),
    post("tokenize", "/tokenize", {"model": "m", "prompt": "a"}, why=CLOSED),
    post("detokenize", "/detokenize", {"model": "m", "tokens": [5]}, why=CLOSED),
    post("messages", "/v1/messages", {"model": "m", "messages": HI, "max_tokens": 4}, why=CLOSED),
    Probe(
        "a preflight", "OPTIONS", CHAT, why="CORS is off: security.cors_origins",
        headers=(("origin", "https://a.example"), ("access-control-request-method", "POST")),
    ),
)  # fmt: skip


def shape_of(value: Any) -> Any:
    """A JSON value's keys and kinds: of a list those of any item, of null nothing.

    What an answer says differs from run to run, and so whether it says it: null is like anything.
    """
    if isinstance(value, dict):
        return {key: shape_of(inner) for key, inner in value.items()}
    if isinstance(value, list):
        shapes = [shape_of(one) for one in value]
        return [together(shapes)] if shapes else []
    return None if value is None else type(value).__name__


def together(shapes: list[Any]) -> Any:
    """What of these fits all of them."""
    known = [one for one in shapes if one is not None]
    if known and all(isinstance(one, dict) for one in known):
        keys = {key for one in known for key in one}
        return {key: together([one[key] for one in known if key in one]) for key in sorted(keys)}
    if known and all(isinstance(one, list) for one in known):
        return [together([inner for one in known for inner in one])]
    return known[0] if known else None


def alike(one: Any, other: Any) -> bool:
    """Whether two shapes may be of the same kind of answer."""
    if one is None or other is None or one == other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return not one or not other or alike(one[0], other[0])
    return {one, other} == {"int", "float"} if isinstance(one, str) else False


def shape_of_text(text: str) -> Any:
    """A body as JSON, or a stream's events together."""
    if text.startswith(("data:", "event:")):
        lines = [line for line in text.splitlines() if line]
        data = [json.loads(x[6:]) for x in lines if x.startswith("data: {")]
        names = sorted({x for x in lines if x.startswith("event:")})
        return {"names": names, "events": shape_of(data), "done": "data: [DONE]" in lines}
    try:
        return shape_of(json.loads(text))
    except ValueError:
        return "text" if text else "nothing"
