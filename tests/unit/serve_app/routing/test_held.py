"""What a router remembers of the prefixes that it sent."""

import math

from serve_app.routing.held import AGAIN, LATELY, MOST_HOLDERS, HeldPrefixes, Memory

AT = Memory(0.0, 0.0)


def test_of_a_prompt_its_last_pieces_are_forgotten_first() -> None:
    held: HeldPrefixes[str] = HeldPrefixes(most=3)
    held.add([1, 2, 3], "a", AT)
    held.add([9], "a", AT)
    assert [held.held(pieces, "a", AT) for pieces in ([1, 2, 3], [9])] == [2, 1]


def test_holders_of_more_come_first_and_of_as_much_the_latest() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1, 2, 3, 4], "a", AT)
    held.add([1, 2], "b", AT)
    held.add([1, 2], "c", AT)
    assert list(dict.fromkeys(held.holders([1, 2, 3, 4]))) == ["a", "c", "b"]


def test_what_is_taken_back_leaves_what_was_known_before() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1], "a", Memory(5.0, 0.0))
    held.add([1, 2], "a", Memory(50.0, 0.0))()
    assert held.held([1, 2], "a", Memory(5.0, 0.0)) == 1
    assert held.held([1, 2], "a", Memory(6.0, 0.0)) == 0


def test_what_another_request_brought_since_is_not_taken_back() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    take_back = held.add([1, 2], "a", Memory(5.0, 0.0))
    held.add([1], "a", Memory(50.0, 0.0))
    take_back()
    assert held.held([1, 2], "a", Memory(40.0, 0.0)) == 1
    assert held.held([1, 2], "a", AT) == 1


def test_a_piece_has_so_many_holders_and_the_one_sent_to_last_leaves_last() -> None:
    held: HeldPrefixes[int] = HeldPrefixes()
    for replica in range(MOST_HOLDERS):
        held.add([1], replica, AT)
    held.add([1], 0, Memory(1.0, 0.0))
    held.add([1], MOST_HOLDERS, AT)
    found = list(held.holders([1]))
    assert (len(found), found[:2]) == (MOST_HOLDERS, [MOST_HOLDERS, 0])
    assert 1 not in found


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


def test_old_prompts_do_not_say_what_many_begin_with() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1, 2], "a", AT)
    for other in range(LATELY):
        held.add([9 + other], "b", AT)
    assert held.again([1, 3], 1, "abcd", 4000)


def test_one_other_prompt_does_not_spread_a_context_over_a_large_fleet() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    for other in range(LATELY - 1):
        held.add([9 + other], "b", AT)
    held.add([1, 2], "a", AT)
    assert held.again([1, 3], 1, "ab", 1000) == 1
    held.add([1, 4], "a", AT)
    assert held.again([1, 3], 1, "ab", 1000) == 0


def test_a_prompt_that_every_replica_refuses_does_not_say_what_many_begin_with() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    for conversation in range(10, 14):
        held.add([1, conversation], "a", AT)
    before = held.again([1, 20], 1, "abcd", 4)
    for _ in range(LATELY):
        held.add([2, 30], "a", AT)()
    assert held.again([1, 20], 1, "abcd", 4) == before == 0


def test_memory_that_was_not_known_when_a_piece_was_sent_keeps_it_by_what_is_free_now() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1], "a", Memory(100.0, math.inf))
    assert held.held([1], "a", Memory(1e9, math.inf)) == 1
    assert held.held([1], "a", Memory(150.0, 50.0)) == 1
    assert held.held([1], "a", Memory(151.0, 50.0)) == 0
