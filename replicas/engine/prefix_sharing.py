"""What requests share of their prompts' KV: read from vLLM's blocks, never changed.

vLLM identifies a full block by a hash of all tokens up to its end. So shared and cached blocks are
the first ones of a request, and bisection finds the last.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import BlockHashListWithBlockSize, KVCacheBlock
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import Request

NextBlock = tuple[int, bytes]  # its index in the request, and the hash of all tokens up to its end


class PrefixSharing:
    """The shared prefixes of one engine; none without prefix caching.

    Only the KV cache group with full attention is read. Other groups (sliding windows, state
    spaces) may have kept less of a prefix; then more of a prompt is computed than is said here.

    Args:
        hash_tokens: tokens for each of a request's hashes.
        loads: whether KV may also come from a connector.

        Attributes:
            enabled: whether shared prefixes are known.
            unknown: whether a prompt may begin with KV that is unknown until vLLM starts it.
            only: whether all cached tokens of a prompt come from this engine's prefix cache.
    """

    def __init__(self, manager: KVCacheManager, hash_tokens: int, *, loads: bool = False) -> None:
        self._hash_tokens = hash_tokens
        self._pool = manager.block_pool
        groups = manager.kv_cache_config.kv_cache_groups
        whole = [
            k for k, one in enumerate(groups) if isinstance(one.kv_cache_spec, FullAttentionSpec)
        ]
        caches = bool(manager.enable_caching)
        self.enabled = caches and bool(whole)
        self.unknown = loads or (caches and not whole)
        self.only = caches and not loads
        self._group, self._block_tokens = 0, hash_tokens
        self._blocks: Mapping[str, Sequence[KVCacheBlock]] = {}
        if whole:
            kind = manager.coordinator.single_type_managers[whole[0]]
            self._group, self._block_tokens = whole[0], kind.block_size
            self._blocks = kind.req_to_blocks
        self._ends: dict[str, int] = {}  # by request: number of shared blocks at the last call

    def shared(self, running: Sequence[Request]) -> list[int]:
        """Tokens of each request in blocks that others use as well."""
        last, self._ends = self._ends, {r.request_id: 0 for r in running}
        for request_id in self._ends:
            blocks = self._blocks.get(request_id, ())
            end = min(last.get(request_id, 0), len(blocks))
            # The end moves only when others come or go.
            before = end and blocks[end - 1].ref_cnt < 2
            if before or (end < len(blocks) and blocks[end].ref_cnt > 1):
                end = bisect_left(blocks, True, key=lambda block: block.ref_cnt < 2)
            self._ends[request_id] = end
        return [self._block_tokens * end for end in self._ends.values()]

    def found(self, waiting: Request) -> tuple[int, int]:
        """Leading tokens of a request that need no computing, and those that are also in use."""
        hashes: Sequence[bytes] = waiting.block_hashes
        if self._block_tokens != self._hash_tokens:
            hashes = BlockHashListWithBlockSize(hashes, self._hash_tokens, self._block_tokens)
        # The last token of a fully cached prompt is computed all the same.
        most = min(len(hashes), (waiting.num_tokens - 1) // self._block_tokens)
        if not most or waiting.skip_reading_prefix_cache or not self._cached(hashes[0]):
            return 0, 0
        there = bisect_left(range(most), True, key=lambda k: not self._cached(hashes[k]))
        held = bisect_left(range(there), True, key=lambda k: self._cached(hashes[k]) < 2)
        return there * self._block_tokens, held * self._block_tokens

    def cached_tokens(self, waiting: Request) -> int:
        """Tokens of a request's prompt that the prefix cache is known to hold."""
        return self.found(waiting)[0] if self.enabled else 0

    def in_flight(self, running: Sequence[Request]) -> list[NextBlock]:
        """The next block of each half-computed prompt."""
        found = []
        for request in running:
            index = request.num_computed_tokens // self._hash_tokens
            if request.num_computed_tokens < request.num_prompt_tokens:
                found += [(index, one) for one in request.block_hashes[index : index + 1]]
        return found

    def follows(self, waiting: Request, in_flight: Sequence[NextBlock]) -> bool:
        """Whether a waiting request begins with one of these blocks, and so with all before it."""
        if waiting.skip_reading_prefix_cache:
            return False
        hashes = waiting.block_hashes
        return any(index < len(hashes) and hashes[index] == one for index, one in in_flight)

    def _cached(self, block_hash: bytes) -> int:
        """0: not cached; 1: cached, and no request uses it; from 2: in use."""
        blocks = self._pool.get_cached_block(block_hash, [self._group])
        return 1 + blocks[0].ref_cnt if blocks else 0
