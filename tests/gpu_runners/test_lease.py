"""The ends of a runner: its lease, and its card. Each comes before its pool gives its work away."""

from hypothesis import given
from hypothesis import strategies as st

from commands.decider import Now
from commands.pools.preempting import notice_until_ms
from gpu_runners.lease import Lease, Notice
from schema.commands import NOTICE_SECONDS_MAX
from tests.support.spec import NOON

SECONDS = 30.0
CAME_AT = 100.0


def test_before_the_first_answer_nothing_is_held() -> None:
    lease = Lease()
    lease.next_beat(100.0)
    assert lease.until is None
    assert not lease.holds(100.0)


def test_it_counts_from_the_sending_of_the_beat_that_was_answered() -> None:
    lease = Lease()
    beat = lease.next_beat(100.0)
    assert lease.answered(beat, SECONDS)  # whenever the answer came
    assert lease.until == 130.0
    assert lease.holds(129.999)
    assert not lease.holds(130.0)


def test_an_answer_that_comes_late_renews_only_as_far_as_its_beat() -> None:
    lease = Lease()
    first, second = lease.next_beat(100.0), lease.next_beat(115.0)
    assert lease.answered(second, SECONDS)
    assert lease.answered(first, SECONDS)
    assert lease.until == 145.0


def test_an_answer_to_no_beat_of_ours_or_a_second_one_renews_nothing() -> None:
    lease = Lease()
    beat = lease.next_beat(100.0)
    assert not lease.answered(beat + 1, SECONDS)
    assert lease.answered(beat, SECONDS)
    assert not lease.answered(beat, 10_000.0)
    assert lease.until == 130.0


def test_a_beat_that_is_long_forgotten_renews_nothing() -> None:
    lease = Lease()
    old = lease.next_beat(0.0)
    for number in range(1, 80):
        lease.next_beat(float(number))
    assert not lease.answered(old, SECONDS)


def test_beats_are_numbered_from_the_registration_on() -> None:
    lease = Lease()
    assert [lease.next_beat(float(number)) for number in range(4)] == [0, 1, 2, 3]


@st.composite
def talks(draw: st.DrawFn) -> list[tuple[float, float, float]]:
    """Beats as (sent, reached the pool, answer reached the runner), sent in order."""
    sent, found = 0.0, list[tuple[float, float, float]]()
    for _ in range(draw(st.integers(1, 12))):
        sent += draw(st.floats(0.1, 20))
        there = sent + draw(st.floats(0, 40))
        found.append((sent, there, there + draw(st.floats(0, 40))))
    return found


@given(talks(), st.floats(1, 120), st.floats(0, 400))
def test_the_runner_stops_no_later_than_the_pool_gives_its_work_away(
    talk: list[tuple[float, float, float]], seconds: float, at: float
) -> None:
    """Whatever the network does: the pool counts from a beat's arrival, the runner from before."""
    lease = Lease()
    numbers = [lease.next_beat(sent) for sent, _, _ in talk]
    pool_until = max(there + seconds for _, there, _ in talk)
    order = sorted(range(len(talk)), key=lambda one: talk[one][2])
    told = [one for one in order if talk[one][2] <= at]
    before: float | None = None
    for one in told:
        lease.answered(numbers[one], seconds)
        assert lease.until is not None
        assert before is None or lease.until >= before
        before = lease.until
    if told:
        assert lease.until == max(talk[one][0] + seconds for one in told)
    if lease.holds(at):
        assert at < pool_until


@given(seconds=st.floats(10, 86_400), told_after=st.floats(0, 600), heard_after=st.floats(0, 5))
def test_a_runner_ends_its_saving_before_its_pool_gives_it_up_and_before_the_card_is_gone(
    seconds: float, told_after: float, heard_after: float
) -> None:
    notice, told_at = Notice(seconds, CAME_AT), CAME_AT + told_after
    runner_until = told_at + max(notice.save_seconds(told_at), 0)
    now = Now(NOON, round((told_at + heard_after) * 1000))
    pool_until = notice_until_ms(notice.told_seconds(told_at), now) / 1000
    assert runner_until < pool_until
    if told_after + 10 <= min(seconds, NOTICE_SECONDS_MAX):
        assert pool_until <= CAME_AT + seconds + heard_after + 0.001


def test_of_a_notice_of_two_minutes_saving_has_ninety_seconds_from_when_it_came() -> None:
    notice = Notice(120, CAME_AT)
    assert (notice.save_seconds(CAME_AT), notice.told_seconds(CAME_AT)) == (90, 120)
    assert (notice.save_seconds(CAME_AT + 30), notice.told_seconds(CAME_AT + 30)) == (60, 90)
