"""Static limits for the demo are shipped, by kind of machine."""

import pytest

from serve_app.demo import tuned
from serve_app.demo.model import MODELS
from serve_app.demo.tuned import tuned_for


def test_the_shipped_limits_are_found_for_each_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "kind_of_machine", lambda: "one that nobody tuned")
    for model in MODELS.values():
        found = tuned_for(model)
        assert 0 < found.limits.cap < found.limits.token_budget
        assert not found.here and found.machine != "one that nobody tuned"
