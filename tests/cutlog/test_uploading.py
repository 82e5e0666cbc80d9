"""How many parts go at once, and when they go in pieces."""

from cutlog.uploading import Pace


def test_a_line_that_holds_carries_more_and_more_at_once() -> None:
    pace = Pace(lines_max=3)
    seen = [pace.lines]
    for _ in range(4):
        pace.stored()
        seen.append(pace.lines)
    assert seen == [1, 2, 3, 3, 3]
    assert pace.whole


def test_after_a_cut_parts_go_in_pieces_until_the_line_has_held_for_a_while() -> None:
    pace = Pace()
    for _ in range(20):
        pace.stored()
    pace.cut()
    assert (pace.whole, pace.lines) == (False, 1)
    for _ in range(7):
        pace.stored()
    assert (pace.whole, pace.lines) == (False, 1)
    pace.cut()  # it has not held
    for _ in range(8):
        assert not pace.whole
        pace.stored()
    assert (pace.whole, pace.lines) == (True, 1)


def test_a_line_that_breaks_as_soon_as_parts_go_whole_is_trusted_later_each_time() -> None:
    pace, calm = Pace(), list[int]()
    for _ in range(6):
        pace.cut()
        stored = 0
        while not pace.whole:
            pace.stored()
            stored += 1
        calm.append(stored)
    assert calm == [8, 16, 32, 64, 128, 128]
