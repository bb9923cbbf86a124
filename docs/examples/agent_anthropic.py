"""One turn with a tool and one that streams, by Anthropic's client (docs/agents.md)."""

import anthropic

client = anthropic.Anthropic(base_url="http://localhost:8000", api_key="sk-0f6d0c7e9a41b2c3")
schema = {"type": "object", "properties": {"jar": {"enum": ["red", "blue"]}}, "required": ["jar"]}
tools = [{"name": "level", "description": "How full a jar is.", "input_schema": schema}]
request = {"model": "llama", "max_tokens": 64, "system": "You look after jars.", "tools": tools}
messages = [{"role": "user", "content": "How full is the red jar?"}]
answer = client.messages.create(messages=messages, **request)
results = [
    {"type": "tool_result", "tool_use_id": block.id, "content": "half full"}
    for block in answer.content
    if block.type == "tool_use"
]
messages += [{"role": "assistant", "content": answer.content}]
messages += [{"role": "user", "content": results or "And the blue one?"}]
with client.messages.stream(messages=messages, **request) as stream:
    print(stream.get_final_message().content)
