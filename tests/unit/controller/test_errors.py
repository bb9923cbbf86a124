"""Errors cross processes: Ray sends them back by pickle."""

import pickle

from controller.errors import ConfigError


def test_a_config_error_keeps_its_problems_over_pickle() -> None:
    back = pickle.loads(pickle.dumps(ConfigError(["a: wrong", "b: wrong"])))
    assert back.problems == ["a: wrong", "b: wrong"]
    assert str(back) == "a: wrong\nb: wrong"
