"""What Ray Serve LLM's own builders serve, and this project's does not."""

# What a model with a server class of its own (a reward model of Ray's examples) can do.
ELSEWHERE = (
    ", or serve this model by import_path: ray.serve.llm:build_openai_app, without our blocks"
)
