"""Switches, restarts, joins and losses in any order: at last every replica goes by the newest."""

from hypothesis import given
from hypothesis import strategies as st

from controller.switch import Switch, is_on, merged
from tests.fleet import Fleet
from tests.property.strategies import examples

GROUPS = ("a", "b")
SCOPES = st.sampled_from((None, *GROUPS))

switches = st.builds(Switch, epoch_ms=st.integers(1, 6), enforce=st.booleans(), group=SCOPES)
tables = st.lists(switches, max_size=6).map(tuple)

steps = st.one_of(
    st.tuples(st.just("switch"), st.booleans(), SCOPES),
    st.tuples(st.just("join"), st.sampled_from(GROUPS)),
    st.tuples(st.just("exchange"), st.integers(0, 20)),
    st.tuples(st.just("exchange"), st.integers(0, 20)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("lose"), st.integers(0, 20)),  # its reports do not arrive for a while
    st.tuples(st.just("leave"), st.integers(0, 20)),
)


@given(first=tables, second=tables, third=tables)
def test_tables_may_meet_in_any_order_and_as_often_as_they_like(first, second, third):
    at_once = merged(first, second, third)
    assert merged(merged(third, second), first) == at_once
    assert merged(first, merged(third, second)) == at_once
    assert merged(at_once, first) == at_once
    for group in (*GROUPS, "comes later"):
        assert is_on(at_once, group) == is_on((*first, *second, *third), group)


class Told:
    """Who knows of which switches, by their numbers: what tables have to come to."""

    def __init__(self) -> None:
        self.made: list[tuple[bool, str | None]] = []
        self.controller: set[int] = set()
        self.replicas: dict[str, set[int]] = {}

    def switch(self, enforce: bool, group: str | None) -> None:
        self.controller.add(len(self.made))
        self.made.append((enforce, group))

    def exchange(self, name: str) -> None:
        both = self.controller | self.replicas.get(name, set())
        self.controller, self.replicas[name] = both, both.copy()

    def on(self, group: str) -> bool:
        """By the newest switch that anybody knows."""
        known = sorted(self.controller.union(*self.replicas.values()))
        for_it = [self.made[number] for number in known if self.made[number][1] in (None, group)]
        return for_it[-1][0] if for_it else True


@examples(0.5)
@given(happened=st.lists(steps, max_size=25), clock=st.booleans())
def test_in_the_end_all_replicas_go_by_the_newest_switch_that_anybody_knows(happened, clock):
    fleet, told = Fleet(), Told()
    fleet.join("r0", "a")

    def exchange(name: str) -> None:
        fleet.exchange(name)
        if fleet.members[name].reports_arrive:
            told.exchange(name)

    def listen() -> None:
        for name in fleet.members:
            fleet.members[name].reports_arrive = True
            exchange(name)

    for number, (what, *args) in enumerate(happened, 1):
        names = sorted(fleet.members)
        if what == "switch":
            loop = fleet.controllers["v1"]._loop  # type: ignore[union-attr]
            loop.switch(enforce=args[0], group=args[1], unix_s=number if clock else 0.0)
            told.switch(*args)
        elif what == "join":
            fleet.join(f"r{number}", args[0])
        elif what == "restart":
            fleet.restart()
            told.controller.clear()
            if not clock:  # then it has to be told the old switches before it makes a new one
                listen()
        elif what == "exchange":
            exchange(names[args[0] % len(names)])
        elif what == "lose":
            fleet.members[names[args[0] % len(names)]].reports_arrive = False
        elif len(names) > 1:
            del fleet.members[names[args[0] % len(names)]]
            told.replicas.pop(names[args[0] % len(names)], None)
    fleet.join("last", "a")
    listen()
    listen()
    assert fleet.enforced() == {name: told.on(m.group) for name, m in fleet.members.items()}
