"""Whatever is asked of the console has an answer, and no error but its own."""

import json

from hypothesis import given
from hypothesis import strategies as st

from serve_app.console.app import series_of
from serve_app.console.view import View
from tests.unit.serve_app.snapshots import fleet

VIEW = View()
VIEW.look(fleet(), [], 1000.0)
KNOWN = st.sampled_from([(one["group"], one["replica"]) for one in VIEW.fleet["replicas"]])
TEXT = st.text(max_size=1200) | st.floats().map(str)
KEYS = st.sampled_from(["group", "replica", "after", "other"])


@given(query=st.dictionaries(KEYS, TEXT))
def test_any_question_has_an_answer(query: dict[str, str]) -> None:
    status, answer = series_of(VIEW, query)
    assert status in (400, 404)
    assert list(json.loads(json.dumps(answer, allow_nan=False))) == ["error"]


@given(known=KNOWN, after=st.floats(allow_nan=False, allow_infinity=False))
def test_a_known_replica_has_its_points_from_any_time_on(
    known: tuple[str, str], after: float
) -> None:
    group, replica = known
    query = {"group": group, "replica": replica, "after": str(after)}
    status, answer = series_of(VIEW, query)
    assert status == 200
    assert answer["series"]["unix_s"] == ([1000.0] if after < 1000.0 else [])
    assert json.dumps(answer, allow_nan=False)
