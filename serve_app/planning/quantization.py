"""Bits per weight, from ``quantization_config``.

A block of weights shares a scale: bits = weight bits + scale bits / block size.
"""

from dataclasses import dataclass

from serve_app.planning.fields import Fields

METHODS = (
    "fp8, fbgemm_fp8, mxfp4, awq, gptq, bitsandbytes, compressed-tensors, modelopt, modelopt_fp4"
)
ATTENTION = ("attn", "attention")  # in the names of modules that keep their dtype
FLOAT16_BITS, FLOAT32_BITS = 16, 32


@dataclass(frozen=True, slots=True)
class Quantization:
    """Bits of one weight with its share of scales and zero points; 0: not quantized.

    Embedding, output layer, norms and routers keep the model's dtype.
    """

    method: str = ""
    linear_bits: float = 0.0  # attention and dense MLPs
    expert_bits: float = 0.0
    attention: bool = True  # whether attention is quantized, too

    @property
    def eight_bit_math(self) -> bool:
        """Whether matrices are multiplied at the rate of fp8, as both operands are fp8."""
        return self.method in ("fp8", "fbgemm_fp8", "modelopt") and self.linear_bits < 9


def read_quantization(config: Fields) -> Quantization:
    """The quantization a config.json names; empty if it has no ``quantization_config``.

    Raises:
        ConfigError: a method or bits that are not known here.
    """
    block = config.nested("quantization_config") or config.nested("compression_config")
    if block is None:
        return Quantization()
    method = block.text("quant_method").lower().replace("_", "-")
    skipped = (
        *block.texts("modules_to_not_convert"),
        *block.texts("ignored_layers"),
        *block.texts("ignore"),
        *block.texts("exclude_modules"),
    )
    attention = not any(word in name for name in skipped for word in ATTENTION)
    match method:
        case "fp8" | "fbgemm-fp8":
            sides = block.integers("weight_block_size")
            if sides and (len(sides) != 2 or min(sides) < 1):
                raise block.wrong("weight_block_size", list(sides), "two whole numbers from 1")
            bits = 8 + (FLOAT32_BITS / (sides[0] * sides[1]) if len(sides) == 2 else 0.0)
            return Quantization(method.replace("-", "_"), bits, bits, attention)
        case "mxfp4":  # vLLM's has experts alone; a block of 32 shares an exponent of 8 bits
            return Quantization(method, 0.0, 4 + 8 / 32, False)
        case "awq" | "gptq" | "auto-round":
            if block.data.get("dynamic"):
                told = "not set: bits that differ by layer are not understood"
                raise block.wrong("dynamic", block.data["dynamic"], told)
            whole_row = block.data.get("group_size") == -1
            group = 0 if whole_row else block.size("group_size", default=128)
            bits = _grouped(block.size("bits"), group)
            return Quantization(method, bits, bits, attention)
        case "bitsandbytes":
            four = block.flag("load_in_4bit") or block.flag("_load_in_4bit")
            bits = 4 + FLOAT32_BITS / 64 if four else 8.0
            return Quantization(method, bits, bits, attention)
        case "compressed-tensors":
            bits = _compressed(block)
            return Quantization(method, bits, bits, attention)
        case "modelopt" | "modelopt-fp4":
            inner = block.nested("quantization") or block
            algo = inner.text("quant_algo").upper()
            if algo not in ("FP8", "NVFP4"):
                raise inner.wrong("quant_algo", inner.data.get("quant_algo"), "FP8 or NVFP4")
            bits = 8.0 if algo == "FP8" else 4 + 8 / 16
            return Quantization("modelopt", bits, bits, attention)
        case _:
            raise block.wrong("quant_method", block.data.get("quant_method"), METHODS)


def kv_bits(config: Fields) -> int:
    """Bits of the KV cache if the checkpoint quantizes it; 0: it does not."""
    block = config.nested("quantization_config")
    if block is None:
        return 0
    if "FP8" in block.text("kv_cache_quant_algo").upper():
        return 8
    scheme = block.nested("kv_cache_scheme")
    return scheme.size("num_bits") if scheme else 0


def _grouped(bits: int, group: int) -> float:
    """A float16 scale and a zero point for each group; 0: a group is a whole row."""
    return bits + (FLOAT16_BITS + bits) / group if group else float(bits)


def _compressed(block: Fields) -> float:
    groups = block.nested("config_groups")
    named = [groups.nested(name) for name in groups.data] if groups else []
    held = [one.nested("weights") for one in named if one]
    if not held or any(one is None for one in held):
        raise block.wrong("config_groups", block.data.get("config_groups"), "groups with weights")
    found = {_group_bits(one) for one in held if one}
    if len(found) > 1:
        told = "groups of the same bits: which layers are of which is not understood"
        raise block.wrong("config_groups", sorted(found), told)
    return found.pop()


def _group_bits(weights: Fields) -> float:
    bits, group = weights.size("num_bits"), weights.integer("group_size", default=0)
    if not group:
        return float(bits)
    scale_bits = 8 if weights.text("type") == "float" and bits == 4 else FLOAT16_BITS
    return bits + scale_bits / group
