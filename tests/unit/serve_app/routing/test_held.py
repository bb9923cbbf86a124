"""What a router takes back of the prefixes that it sent."""

from serve_app.routing.held import LATELY, HeldPrefixes, Memory

AT = Memory(0.0, 0.0)


def test_what_is_taken_back_leaves_what_was_known_before() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1], "a", Memory(5.0, 0.0))
    held.add([1, 2], "a", Memory(50.0, 0.0))()
    assert held.held([1, 2], "a", Memory(5.0, 0.0)) == 1
    assert held.held([1, 2], "a", Memory(6.0, 0.0)) == 0


def test_a_prompt_that_every_replica_refuses_does_not_say_what_many_begin_with() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    for conversation in range(10, 14):
        held.add([1, conversation], "a", AT)
    before = held.again([1, 20], 1, "abcd", 4)
    for _ in range(LATELY):
        held.add([2, 30], "a", AT)()
    assert held.again([1, 20], 1, "abcd", 4) == before == 0
