"""Hashes by which prompts are compared without their contents. No I/O, no clock."""

import hashlib
from collections.abc import Sequence

import numpy as np

PREFIX_TOKENS = 512  # one hash for each 512 tokens, as in Mooncake's traces
MOST_HASHES = 64  # of one prompt


def prefix_hashes(
    tokens: Sequence[int] | None,
    key: bytes,
    of: str = "",
    images: Sequence[tuple[int, str]] = (),
) -> list[str]:
    """Hashes of the prefixes of 512, 1,024, ... tokens, equal as far as two prompts agree.

    Args:
        of: prompts with different values share no prefix.
        images: index of each image's first token, and the image's identifier.
    """
    if not tokens:
        return []
    whole = min(len(tokens) // PREFIX_TOKENS, MOST_HASHES)
    chain, found = hashlib.blake2b(of.encode(), key=key, digest_size=4), []
    for start in range(0, whole * PREFIX_TOKENS, PREFIX_TOKENS):
        end = start + PREFIX_TOKENS
        chain.update(np.array(tokens[start:end], dtype=np.int64).tobytes())
        chain.update("".join(which for at, which in images if start <= at < end).encode())
        found.append(chain.hexdigest())
    return found
