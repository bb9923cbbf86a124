"""A model's folder counts as made while its stamp and its weights are those of that model."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from serve_app.demo.model_folder import STAMP, WEIGHTS, made_once


def make(path: Path, seed: int = 0) -> bool:
    """Whether it had to be made."""
    with made_once(path, seed=seed) as is_missing:
        if is_missing:
            (path / WEIGHTS).write_text(f"weights {seed}")
    return is_missing


def test_of_many_that_ask_at_once_one_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "models" / "one"
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(make, [path] * 8)) == [False] * 7 + [True]


@pytest.mark.parametrize(
    ("name", "text"), [(WEIGHTS, "weights"), (STAMP, ""), (STAMP, '{"seed": 0}')]
)
def test_a_changed_file_is_not_taken(tmp_path: Path, name: str, text: str) -> None:
    make(tmp_path)
    (tmp_path / name).write_text(text)
    assert make(tmp_path)
    assert not make(tmp_path)
