"""A GGUF file as a bfloat16 folder in the Hugging Face format; needs ``gguf``, ``accelerate``.

Run as a program of its own (``python -m serve_app.demo.gguf_model FILE FOLDER``), where these two
are on the path: transformers looks for them when it is imported.
"""

import sys
from pathlib import Path

TEMPERATURE = 0.2  # what the model's authors answer with


def convert(gguf: Path, folder: Path) -> None:
    """Save model, tokenizer with chat template, and how to sample into ``folder``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.generation_config.update(do_sample=True, temperature=TEMPERATURE)
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
