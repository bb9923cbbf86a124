"""From a config.json (Hugging Face's keys) to a ``ModelShape``; no weights are read."""

from pathlib import Path

from pydantic import PositiveFloat

from configs import shipped
from controller.config import Block
from controller.data_file import load_json, read_json, read_text
from controller.errors import ConfigError
from controller.validation import shown, unknown_key
from serve_app.planning.fields import Fields
from serve_app.planning.mixers import layers_of
from serve_app.planning.quantization import kv_bits, read_quantization
from serve_app.planning.shape import ModelShape

DTYPES = {"bfloat16": "bfloat16", "float16": "float16", "float32": "bfloat16"}  # vLLM halves it
DTYPE_BYTES = 2
# By model_type: models whose layers are known, each compared with vLLM's own class
# (tests/vllm/serve_app), except kimi_k2, which is deepseek_v3.
_KNOWN = (
    "cohere cohere2 deepseek_v2 deepseek_v3 ernie4_5 exaone4 gemma gemma2 gemma3_text glm"
    " glm4 glm4_moe gpt_neox gpt_oss granite granitemoe granitemoehybrid granitemoeshared"
    " internlm3 kimi_k2 llama mistral mixtral nemotron olmo olmo2 olmo3 olmoe phi phi3 phimoe"
    " qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next seed_oss smollm3 stablelm starcoder2"
)
FAMILIES = frozenset(_KNOWN.split())
# Models whose output layer is the embedding if config.json does not say.
TIED = frozenset(
    ("cohere", "cohere2", "ernie4_5", "gemma", "gemma2", "gemma3_text", "smollm3", "starcoder2")
)
# Words in a repository's name for further training.
TUNED = ("base", "chat", "hf", "instruct", "it", "pt", "thinking")
TEXT = ("text_config", "llm_config", "language_config")  # of models that also see or hear
CONFIG = "config.json"


class NamedModel(Block):
    """A file of ``configs/models``: a published config.json, its source, and the expected results.

    ``parameters`` is the published count, of the whole model.
    """

    source: str
    parameters: PositiveFloat
    parameters_source: str
    config: dict[str, object]


def named_models() -> dict[str, Path]:
    """The files of ``configs/models`` by name."""
    return {path.stem: path for path in sorted(shipped("models").glob("*.json"))}


def _bare(repository: str) -> list[str]:
    plain = repository.lower().partition("@")[0].replace("/meta-", "/")  # as Meta named some
    return [word for word in plain.split("-") if word not in TUNED]


def _known(spec: str) -> str:
    """Our name for a model of the Hugging Face Hub; else the given name.

    A tuned model has the shape of its base model.
    """
    if Path(spec).exists():
        return spec
    if spec.lower() in named_models():
        return spec.lower()
    ours = (name for name in named_models() if _bare(repository(name)) == _bare(spec))
    return next(ours, spec)


def load_model(spec: str) -> ModelShape:
    """The model that a command-line argument names.

    Args:
        spec: a name, also the Hugging Face Hub's (with ``@`` and a revision); a config.json; its
            folder.

    Raises:
        ConfigError: nothing has that name, or a key is missing, wrong or not known.
    """
    named = named_models()
    spec = _known(spec)
    if spec in named:
        path = named[spec]
        return read_shape(Fields(read_json(path, NamedModel).config, spec), spec)
    path = Path(spec)
    if not path.exists():
        if spec.endswith(".json") or spec.startswith(("/", ".", "~")):
            raise ConfigError([f"model: {shown(spec)} is not allowed: no such file or folder"])
        told = unknown_key("model", spec, named)
        raise ConfigError([f"{told}; or the path of a config.json or of its folder"])
    file = path / CONFIG if path.is_dir() else path
    if not file.exists():
        raise ConfigError([f"model: {shown(spec)} is not allowed: it holds no {CONFIG}"])
    data = load_json(read_text(file), str(file), 1)
    if not isinstance(data, dict):
        raise ConfigError([f"{file}: {shown(data)} is not allowed: a mapping"])
    return read_shape(Fields(data, str(file)), file.resolve().parent.name)


def repository(spec: str) -> str:
    """The place of a named model's weights on the Hugging Face Hub; else the given name."""
    path = named_models().get(spec.lower())
    return spec if path is None else read_json(path, NamedModel).source.partition(",")[0]


def read_shape(whole: Fields, name: str) -> ModelShape:
    """The shape that a config.json describes.

    Raises:
        ConfigError: see ``load_model``.
    """
    config = next((found for key in TEXT if (found := whole.nested(key))), whole)
    _check_family(whole, config)
    dtype = config.text("torch_dtype", "dtype") or whole.text("torch_dtype", "dtype", default="")
    dtype = dtype or "bfloat16"
    if dtype not in DTYPES:
        raise whole.wrong("torch_dtype", dtype, ", ".join(DTYPES))
    hidden = config.size("hidden_size", "n_embd", "d_model")
    quantized = whole if whole.data.get("quantization_config") else config
    architectures = whole.texts("architectures")
    default_tied = config.text("model_type") in TIED
    return ModelShape(
        name=name,
        architecture=architectures[0] if architectures else config.text("model_type"),
        hidden=hidden,
        vocab=config.size("vocab_size"),
        max_len=config.size("max_position_embeddings", "n_positions", "max_seq_len", default=8192),
        tied=config.flag("tie_word_embeddings", whole.flag("tie_word_embeddings", default_tied)),
        dtype=DTYPES[dtype],
        dtype_bytes=DTYPE_BYTES,
        layers=layers_of(config, hidden, DTYPE_BYTES),
        quantization=read_quantization(quantized),
        extra_params=_vision(whole, hidden),
        kv_bits=kv_bits(quantized),
    )


def _check_family(whole: Fields, config: Fields) -> None:
    """Refuse unknown layers; many have the keys of a plain transformer as well."""
    family = config.text("model_type")
    if family not in FAMILIES:
        told = (
            f"known are {', '.join(sorted(FAMILIES))}; if the layers are exactly those of"
            " one of these, write its name"
        )
        raise config.wrong("model_type", family or None, told)
    if whole.data.get("audio_config") is not None:
        raise ConfigError([f"{whole.where}: audio_config: is not understood: an audio encoder"])
    number = config.integer("num_hidden_layers", default=0)
    some = config.integer("max_window_layers", default=number)
    if family.startswith("qwen2") and config.flag("use_sliding_window") and some < number:
        raise config.wrong("max_window_layers", some, f"num_hidden_layers, {number}, as in vLLM")


def _vision(whole: Fields, hidden: int) -> int:
    """Parameters of an image encoder of the usual shape and its projection; 0: there is none."""
    vision = whole.nested("vision_config")
    if vision is None:
        return 0
    width = vision.size("hidden_size", "embed_dim")
    inner = vision.size("intermediate_size", default=4 * width)
    layers = vision.size("num_hidden_layers", "depth")
    patch = vision.size("patch_size", default=14)
    image = vision.size("image_size", default=0) if vision.data.get("image_size") else 0
    gated = vision.text("hidden_act") == "silu"
    per_layer = 4 * width * width + (3 if gated else 2) * width * inner + 9 * width + inner
    embedded = 3 * patch * patch * width + (image // patch) ** 2 * width
    return layers * per_layer + embedded + width * hidden
