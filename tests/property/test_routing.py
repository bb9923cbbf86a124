"""Laws of routing that hold for any figures."""

import random
from dataclasses import asdict, replace

from hypothesis import given
from hypothesis import strategies as st

from serve_app.routing.choice import HeadroomChooser
from serve_app.routing.held import HeldPrefixes, Memory, Prefix
from serve_app.routing.prompt import read_prompt
from serve_app.routing.replica_load import (
    MOST_WAIT_S,
    Asked,
    LoadDefaults,
    ReplicaLoad,
    forecast,
    read_room,
)
from tests.property.strategies import examples

NOW_S = 1e9
rates = st.none() | st.floats(0, 1e6)
counts = st.integers(0, 5000)
rooms = st.builds(
    ReplicaLoad,
    taken_unix_s=st.floats(NOW_S - 20, NOW_S + 20),
    running=counts,
    waiting=counts,
    max_running=counts,
    prompt_backlog_tokens=st.integers(0, 10**7),
    kv_free_tokens=st.integers(0, 10**7),
    arrivals=counts,
    prefill_tokens_per_s=rates,
    drain_per_s=rates,
    mean_prompt_tokens=rates,
    mean_output_tokens=rates,
    led=st.booleans(),
    kv_backlog_tokens=st.none() | st.integers(0, 10**7),
    cached_frac=st.none() | st.floats(0, 2),
    written_tokens=st.none() | st.integers(0, 10**9),
)
asks = st.builds(Asked, st.floats(0, 1e6), st.none() | st.integers(1, 10**6))
seeds = st.integers(0, 2**32)


@given(st.dictionaries(st.integers(0, 9), rooms), st.sets(st.integers(0, 9), min_size=1), asks)
def test_only_candidates_are_chosen_and_none_of_them_twice(known, candidates, asked):
    made: HeadroomChooser[int] = HeadroomChooser(prefix_affinity=True, rng=random.Random(1))
    for key, room in known.items():
        made.update(key, room, NOW_S)
    for step in range(12):
        at_s = NOW_S + step
        chosen = made.choose(
            sorted(candidates), asked, at_s, prefix=Prefix((step % 2, 5), 100.0), among=candidates
        )
        named = (chosen.replica, *chosen.others)
        assert set(named) <= candidates
        assert len(set(named)) == len(named)
        made.sent(chosen.replica, asked, at_s)


@given(rooms, asks, st.floats(0, 1e4), st.floats(0, 1e7), st.booleans())
def test_a_forecast_is_finite_and_more_load_never_shortens_it(room, asked, sent, tokens, fresh):
    def wait_s(one: ReplicaLoad, requests: float = 0, prompt_tokens: float = 0) -> float:
        found = forecast(
            one,
            asked,
            LoadDefaults(),
            sent_requests=requests,
            sent_tokens=prompt_tokens,
            fresh=fresh,
        )
        assert 0 <= found.prompt_s <= MOST_WAIT_S
        assert found.filled >= 0
        return found.wait_s

    plain = wait_s(room)
    assert 0 <= plain <= MOST_WAIT_S
    assert wait_s(room, sent, tokens) >= plain
    assert wait_s(replace(room, waiting=room.waiting + 1)) >= plain
    assert wait_s(replace(room, prompt_backlog_tokens=room.prompt_backlog_tokens + 9)) >= plain
    assert wait_s(replace(room, led=False)) >= wait_s(replace(room, led=True))


@given(rooms, asks, st.floats(0, 1e6), st.floats(0, 1e6))
def test_more_that_is_cached_never_lengthens_a_forecast(room, asked, cached, more):
    few, many = (
        forecast(room, asked, LoadDefaults(), cached_tokens=tokens)
        for tokens in (cached, cached + more)
    )
    assert many.wait_s <= few.wait_s and many.prompt_s <= few.prompt_s
    assert few.saved_s <= many.saved_s <= MOST_WAIT_S


chains = st.lists(st.integers(0, 3), max_size=8)


@given(st.lists(st.tuples(chains, st.integers(0, 3)), max_size=30), chains, st.integers(1, 40))
def test_what_is_held_is_what_was_sent_or_less_where_it_was_forgotten(sent, asked, most):
    def pieces(chain: list[int]) -> tuple[int, ...]:
        return tuple(hash(tuple(chain[: k + 1])) for k in range(len(chain)))

    known: HeldPrefixes[int] = HeldPrefixes(most)
    for order, (chain, replica) in enumerate(sent):
        known.add(pieces(chain), replica, Memory(order, 0))
    assert len(known._pieces) <= most
    all_kept = len({piece for chain, _ in sent for piece in pieces(chain)}) <= most
    holders = set(known.holders(pieces(asked)))
    for replica in range(4):
        alike = [
            sum(chain[: k + 1] == asked[: k + 1] for k in range(min(len(chain), len(asked))))
            for chain, one in sent
            if one == replica
        ]
        held = known.held(pieces(asked), replica, Memory(0, 0))
        assert held <= max(alike, default=0)
        if all_kept:
            assert held == max(alike, default=0)
        assert known.held(pieces(asked), replica, Memory(len(sent), 0)) == 0
    if all_kept:  # the replicas that hold most are named
        held = {one: known.held(pieces(asked), one, Memory(0, 0)) for one in range(4)}
        most_held = max(held.values())
        assert not most_held or {one for one, n in held.items() if n == most_held} <= holders


@examples(0.1)
@given(st.lists(rooms, min_size=2, max_size=5), seeds)
def test_no_replica_that_stays_is_left_without_requests_for_ever(known, seed):
    # However slow or full: what is sent to the others counts there, until theirs is the longer way.
    asked = Asked(500)
    made: HeadroomChooser[int] = HeadroomChooser(rng=random.Random(seed))
    for key, room in enumerate(known):
        made.update(
            key,
            replace(
                room,
                taken_unix_s=NOW_S,
                max_running=max(room.max_running, 1),
                prompt_backlog_tokens=room.prompt_backlog_tokens % 10_000,
                running=room.running % 50,
                waiting=room.waiting % 50,
                prefill_tokens_per_s=200 + (room.prefill_tokens_per_s or 0) % 2000,
                drain_per_s=1 + (room.drain_per_s or 0) % 5,
                mean_prompt_tokens=500.0,
                mean_output_tokens=200.0,
                kv_free_tokens=10**9,
                kv_backlog_tokens=None,
                cached_frac=(room.cached_frac or 0.0) / 4,
            ),
            NOW_S,
        )
    chosen = set()
    for _ in range(3000):
        chosen.add(key := made.choose(range(len(known)), asked, NOW_S).replica)
        made.sent(key, asked, NOW_S)
    assert chosen == set(range(len(known)))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(rooms, st.dictionaries(st.sampled_from(sorted(ReplicaLoad.__dataclass_fields__)), anything))
def test_whatever_a_replica_publishes_is_read_or_ignored(known, data):
    made: HeadroomChooser[int] = HeadroomChooser()
    room = read_room({"brimful": asdict(known) | data})
    made.update(0, room, NOW_S)
    made.choose([0], Asked(100), NOW_S)
    if room is not None:
        assert 0 <= forecast(room, Asked(100), LoadDefaults()).wait_s <= MOST_WAIT_S


@given(anything, anything, anything)
def test_whatever_a_client_sends_is_read_or_ignored(messages, prompt, max_tokens):
    class Payload:
        pass

    payload = Payload()
    vars(payload).update(messages=messages, prompt=prompt, max_tokens=max_tokens)
    found = read_prompt(payload, prefix_chars=16)
    assert found is None or (found.chars >= 0 and found.tokens >= 0)
