"""One turn with a tool and one that streams, by OpenAI's client (docs/agents.md)."""

import openai

client = openai.OpenAI(base_url="http://localhost:8000/v1", api_key="sk-0f6d0c7e9a41b2c3")
schema = {"type": "object", "properties": {"jar": {"enum": ["red", "blue"]}}, "required": ["jar"]}
tools = [{"type": "function", "name": "level", "parameters": schema}]
request = {"model": "llama", "instructions": "You look after jars.", "tools": tools}
messages = [{"role": "user", "content": "How full is the red jar?"}]
answer = client.responses.create(input=messages, max_output_tokens=64, **request)
results = [
    {"type": "function_call_output", "call_id": item.call_id, "output": "half full"}
    for item in answer.output
    if item.type == "function_call"
]
messages += [*answer.output, *(results or [{"role": "user", "content": "And the blue one?"}])]
with client.responses.stream(input=messages, max_output_tokens=64, **request) as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="")
