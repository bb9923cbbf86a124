"""What two prompts have in common at their beginning, without their contents. Pure."""

import hashlib
from collections.abc import Sequence

import numpy as np

PREFIX_TOKENS = 512  # a hash for each so many tokens, as in Mooncake's traces
MOST_HASHES = 64  # of one prompt


def prefix_hashes(tokens: Sequence[int] | None, key: bytes) -> list[str]:
    """A hash of each prefix of 512, 1,024, ... tokens: those of two prompts are equal as far as
    they begin alike."""
    if not tokens:
        return []
    whole = min(len(tokens) // PREFIX_TOKENS, MOST_HASHES)
    chain, found = hashlib.blake2b(key=key, digest_size=4), []
    for start in range(0, whole * PREFIX_TOKENS, PREFIX_TOKENS):
        chain.update(np.array(tokens[start : start + PREFIX_TOKENS], dtype=np.int64).tobytes())
        found.append(chain.hexdigest())
    return found
