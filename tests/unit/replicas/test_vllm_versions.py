"""An untested vLLM is doubted in words that say what was not found."""

from pathlib import Path

import pytest

from replicas.workarounds.vllm_private import Thing
from replicas.workarounds.vllm_source import VllmSource
from replicas.workarounds.vllm_versions import NEWEST, OLDEST, TESTED, doubt_of, is_tested


@pytest.mark.parametrize("release", [OLDEST, NEWEST, "0.29.0+cpu", "0.30.1", "0.33.7", "0.25.0rc1"])
def test_between_the_oldest_and_the_newest_nothing_is_doubted(release: str, tmp_path: Path) -> None:
    assert is_tested(release)
    assert doubt_of(release, VllmSource(tmp_path)) is None


@pytest.mark.parametrize("release", ["0.24.9", "0.34.0", "0.34.0.dev3+gabc", "1.0.0", "dev", ""])
def test_others_are(release: str) -> None:
    assert not is_tested(release)


def test_the_versions_are_in_order() -> None:
    numbers = [tuple(map(int, one.release.split("."))) for one in TESTED]
    assert numbers == sorted(numbers)


@pytest.fixture
def source(tmp_path: Path) -> VllmSource:
    (tmp_path / "__init__.py").write_text("class Here:\n    a = 1\n")
    return VllmSource(tmp_path)


def test_where_all_is_there_limits_are_not_applied_and_it_says_how_they_are(
    source: VllmSource,
) -> None:
    doubt = doubt_of("0.40.0", source, [Thing(("vllm:Here.a",))])
    assert str(doubt) == (
        "vLLM 0.40.0 was not tested with this Brimful (0.25.0 to 0.33.0 were): all 1 private things"
        " of vLLM that control leans on are there, but limits are only computed and reported (as"
        " with batching.enforce: false). `brimful enforce on` applies them all the same. See"
        " docs/versions.md."
    )


def test_what_is_not_there_is_named(source: VllmSource) -> None:
    doubt = doubt_of("0.40.0", source, [Thing(("vllm:Here.a",)), Thing(("vllm:Gone.b",))])
    assert doubt is not None
    assert doubt.lacking == ("vllm:Gone.b (gone)",)
    assert str(doubt) == (
        "vLLM 0.40.0 was not tested with this Brimful (0.25.0 to 0.33.0 were): vLLM's own scheduler"
        " runs without control, as 1 of 2 private things of vLLM were not found: vllm:Gone.b"
        " (gone). See docs/versions.md."
    )
