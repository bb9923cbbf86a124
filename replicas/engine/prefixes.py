"""What two prompts have in common at their beginning, without their contents. No I/O, no clock."""

import hashlib
from collections.abc import Sequence

import numpy as np

PREFIX_TOKENS = 512  # a hash for each so many tokens, as in Mooncake's traces
MOST_HASHES = 64  # of one prompt


def prefix_hashes(
    tokens: Sequence[int] | None,
    key: bytes,
    of: str = "",
    images: Sequence[tuple[int, str]] = (),
) -> list[str]:
    """A hash of each prefix of 512, 1,024, ... tokens: those of two prompts are equal as far as
    they begin alike.

    Args:
        of: prompts of another value have no prefix in common.
        images: the place of the first token of each, and which one it is.
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
