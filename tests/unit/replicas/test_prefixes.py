"""What of a prompt is written down: hashes that nobody can make again."""

import time
from types import SimpleNamespace
from typing import Any

from replicas.engine.prefixes import MOST_HASHES, PREFIX_TOKENS, prefix_hashes
from replicas.engine.request_recorder import RequestRecorder
from simulator.workloads.files import RequestLine

KEY = b"k" * 32


def test_a_hash_for_each_whole_prefix_up_to_a_number() -> None:
    for prefixes in (0, 1, MOST_HASHES, MOST_HASHES + 3):
        tokens = list(range(prefixes * PREFIX_TOKENS + 511))
        found = prefix_hashes(tokens, KEY)
        assert len(set(found)) == len(found) == min(prefixes, MOST_HASHES)
        RequestLine(arrival_s=0, input_tokens=len(tokens), output_tokens=1, prefix=tuple(found))
    assert prefix_hashes(None, KEY) == []


def test_where_an_image_begins_the_prefix_ends() -> None:
    def hashes(*images: tuple[int, str]) -> list[str]:
        return prefix_hashes([7] * 3 * PREFIX_TOKENS, KEY, images=images)

    for at, alike in ((0, 0), (PREFIX_TOKENS - 1, 0), (PREFIX_TOKENS, 1), (3 * PREFIX_TOKENS, 3)):
        pairs = list(zip(hashes((at, "a")), hashes((at, "b")), strict=True))
        assert [one == other for one, other in pairs] == [True] * alike + [False] * (3 - alike)


def test_the_key_is_too_long_to_be_guessed_and_another_for_each_capture() -> None:
    def key(owner: str) -> bytes:
        scheduler: Any = SimpleNamespace(
            now_s=time.time, guard=None, add_request=id, _free_request=id
        )
        return RequestRecorder(scheduler, owner)._key

    assert len(key("a")) == 32
    assert key("a") != key("b")
