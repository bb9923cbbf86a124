"""A tiny random-weight Llama with its own tokenizer: real loading and serving code, no download."""

import sys
from pathlib import Path
from typing import Any

from serve_app.demo.model_folder import made_once

SENTENCES = (
    "The scheduler admits a request when the memory of the engine allows it.",
    "A batch that is too small wastes the accelerator, one that is too large breaks the latency.",
    "Write a short poem about a river that fills a jar to the brim and never spills.",
    "How many replicas does the queue need before the next minute is over?",
)
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}"
    "{% endfor %}{{ 'assistant: ' }}"
)
VOCAB = 512
CONTEXT = 2048
TINY_FOLDER = Path(".cache/tiny-llama")
FORMAT = 1  # raise it when a model made before must not be taken from the cache


def make_tiny_model(path: Path, kind: str = "llama", seed: int = 0) -> Path:
    """Make the model under ``path`` unless it is there already; seconds on one core.

    Of several processes that ask for it at once one makes it, and the others wait.

    Args:
        kind: ``llama`` (4 layers, hidden 128) or ``mixtral``, a mixture of 4 experts.
        seed: of the weights; the same seed gives the same greedy answers.

    Returns:
        ``path``, a directory in the Hugging Face format.
    """
    with made_once(path, format=FORMAT, kind=kind, seed=seed) as is_missing:
        if is_missing:
            if not sys.stderr.isatty():
                from transformers.utils import logging as transformers_logging

                transformers_logging.disable_progress_bar()
            _save_tokenizer(path)
            _save_model(path, kind, seed)
    return path


def _save_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = TEMPLATE
    fast.model_max_length = CONTEXT
    fast.save_pretrained(path)


def _save_model(path: Path, kind: str, seed: int) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

    shape: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(seed)
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**shape))
    elif kind == "mixtral":
        model = MixtralForCausalLM(
            MixtralConfig(**shape, num_local_experts=4, num_experts_per_tok=2)
        )
    else:
        raise ValueError(f"kind: {kind!r} is not allowed: llama or mixtral")
    model.to(torch.bfloat16).save_pretrained(path)
