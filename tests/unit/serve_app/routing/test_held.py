"""What a router remembers of the prefixes that it sent."""

from serve_app.routing.held import MOST_HOLDERS, HeldPrefixes


def test_of_a_prompt_its_last_pieces_are_forgotten_first() -> None:
    held: HeldPrefixes[str] = HeldPrefixes(most=3)
    held.add([1, 2, 3], "a", 0.0)
    held.add([9], "a", 0.0)
    assert [held.held(pieces, "a", 0.0) for pieces in ([1, 2, 3], [9])] == [2, 1]


def test_holders_of_more_come_first_and_of_as_much_the_latest() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1, 2, 3, 4], "a", 0.0)
    held.add([1, 2], "b", 0.0)
    held.add([1, 2], "c", 0.0)
    assert list(dict.fromkeys(held.holders([1, 2, 3, 4]))) == ["a", "c", "b"]


def test_what_is_taken_back_leaves_what_was_known_before() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    held.add([1], "a", 5.0)
    held.add([1, 2], "a", 50.0)()
    assert held.held([1, 2], "a", 5.0) == 1
    assert held.held([1, 2], "a", 6.0) == 0


def test_what_another_request_brought_since_is_not_taken_back() -> None:
    held: HeldPrefixes[str] = HeldPrefixes()
    take_back = held.add([1, 2], "a", 5.0)
    held.add([1], "a", 50.0)
    take_back()
    assert held.held([1, 2], "a", 40.0) == 1
    assert held.held([1, 2], "a", 0.0) == 1


def test_a_piece_has_so_many_holders_and_the_one_sent_to_last_leaves_last() -> None:
    held: HeldPrefixes[int] = HeldPrefixes()
    for replica in range(MOST_HOLDERS):
        held.add([1], replica, 0.0)
    held.add([1], 0, 1.0)
    held.add([1], MOST_HOLDERS, 0.0)
    found = list(held.holders([1]))
    assert (len(found), found[:2]) == (MOST_HOLDERS, [MOST_HOLDERS, 0])
    assert 1 not in found


def test_pieces_that_are_sent_again_are_remembered_longer() -> None:
    held: HeldPrefixes[str] = HeldPrefixes(most=2)
    for piece in (1, 2, 1, 3):
        held.add([piece], "a", 0.0)
    assert [held.held([piece], "a", 0.0) for piece in (1, 2, 3)] == [1, 0, 1]
