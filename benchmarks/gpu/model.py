"""An 8B-class Llama of dummy weights: shapes are what takes time, not values."""

import json
from pathlib import Path

from serve_app.demo.tiny_model import make_tiny_model

SHAPE = {  # Llama 3.1 8B
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
DTYPE_BYTES = 2


def make_model(path: Path, *, tiny: bool) -> Path:
    """A directory that vLLM loads with ``load_format=dummy``: a config, a small tokenizer.

    Args:
        tiny: the tiny model of the tests instead, to try the benchmark without a card.
    """
    made = make_tiny_model(path / "tiny-llama")
    if tiny:
        return made
    target = path / "llama-8b-dummy"
    target.mkdir(parents=True, exist_ok=True)
    for file in made.glob("*token*"):
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((made / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **SHAPE, "dtype": "bfloat16"}))
    return target


def shape_of(model: Path) -> dict[str, int]:
    """The numbers a profile needs, of a model made here."""
    config = json.loads((model / "config.json").read_text())
    names = ("num_hidden_layers", "hidden_size", "num_key_value_heads", "head_dim")
    layers, hidden, kv_heads, head_dim = (int(config[name]) for name in names)
    return {
        "layers": layers,
        "hidden": hidden,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "kv_bytes_per_token": 2 * layers * kv_heads * head_dim * DTYPE_BYTES,
    }
