"""What a router remembers of the prefixes that it sent."""

from serve_app.routing.held import AGAIN, HeldPrefixes, Memory

AT = Memory(0.0, 0.0)


def test_what_is_taken_back_leaves_what_was_known_before() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1], "a", Memory(5.0, 0.0))
    held.add([1, 2], "a", Memory(50.0, 0.0))()
    assert held.held([1, 2], "a", Memory(5.0, 0.0)) == 1
    assert held.held([1, 2], "a", Memory(6.0, 0.0)) == 0


def test_pieces_that_are_sent_again_are_remembered_longer() -> None:
    held: HeldPrefixes[str] = HeldPrefixes(most=2)
    for piece in (1, 2, 1, 3):
        held.add([piece], "a", AT)
    assert [held.held([piece], "a", AT) for piece in (1, 2, 3)] == [1, 0, 1]


def test_a_piece_is_there_until_as_much_was_written_as_was_free_then_or_is_free_now() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1], "a", Memory(100.0, 50.0))
    for written, free, there in ((150, 0, 1), (151, 0, 0), (180, 80, 1), (181, 80, 0)):
        assert held.held([1], "a", Memory(written, free)) == there


def test_what_many_begin_with_is_short_until_its_share_of_replicas_holds_it() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    for conversation in range(10, 14):
        held.add([1, conversation], "a", AT)
    new = [1, 20]
    assert not held.again(new, 1, "abcd", 4)
    for replica in "bc":
        held.add([1, 30], replica, AT)
    assert not held.again(new, 1, "abcd", 4)  # all begin so, and three of four hold it
    assert held.again(new, 1, "abc", 3)
    assert not held.again(new, 1, "axy", 3)  # two of those before are gone
    for other in range(40, 48):
        held.add([other], "d", AT)
    assert held.again(new, 1, "abcd", 4) == 1  # 6 of 14 begin so: more than one of four


def test_a_conversations_own_context_is_not_what_many_begin_with() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add(range(1), "a", AT)
    for turn in range(2, 9):
        assert held.again(range(turn), turn - 1, "abcd", 4) == AGAIN
        held.add(range(turn), "a", AT)
    assert held.again(range(8), 8, "abcd", 4)  # it asks the same again
    assert not held.again([0, 1, 9], 2, "abcd", 4)
    assert held.again([9], 0, "abcd", 4)
