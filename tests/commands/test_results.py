"""Results after their end: by age and by word, once each, and never without a tombstone first."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import product
from typing import Any, get_args

import msgspec
import pytest

from commands.decider import ImpossibleEventError, MemoryRows, Now, TimerDue
from commands.materials import results
from schema import commands as c
from schema import events as e
from schema.ids import CommandId, TaskId, TenantId, UserId
from schema.refusals import Refusal
from schema.replies import Accepted, Refused
from schema.words import ResultEnd, Scene
from tests.schema.samples import sample

TASK = TaskId("0123456789abcdefghjkmnpqrs000007")
ANN: dict[str, Any] = {
    "task_id": TASK,
    "user_id": UserId("annannannannannannan000007"),
    "tenant_id": TenantId("acme"),
}
BOB = UserId("bobbobbobbobbobbobbo000007")
AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
EVENTS = [kind for kind in get_args(e.ResultEvent) if issubclass(kind, e.OfResult)]
STATES: dict[str, tuple[str, ...]] = {
    "untouched": (),
    "hot": ("publish",),
    "cold": ("chill",),
    "withheld": ("withhold",),
    "withheld cold": ("chill", "withhold"),
    "deleted": ("delete",),
}


class Story:
    """One result, and what was told of it."""

    def __init__(self) -> None:
        self.rows: MemoryRows[results.ResultRow] = MemoryRows()
        self.events: list[e.ResultEvent] = []
        self.served_ms = 0
        self._numbers: Iterator[int] = iter(range(1, 1_000))

    @property
    def state(self) -> results.ResultState:
        row = self.rows.get(TASK)
        assert not isinstance(row, results.Deliveries)
        return row or results.INITIAL

    def tell(self, word: str, **fields: Any) -> results.ResultDecision:  # noqa: ANN401
        return self.put(self.command(word, **fields))

    def put(self, command: c.ResultCommand) -> results.ResultDecision:
        decision = results.handle(self.rows, command, Now(AT, self.served_ms))
        self.events += decision.events
        return decision

    def command(self, word: str, **fields: Any) -> c.ResultCommand:  # noqa: ANN401
        who: dict[str, Any] = {"command_id": CommandId(f"{word}-{next(self._numbers)}"), **ANN}
        kind, words = self._said(word)
        made: c.ResultCommand = kind(**{**who, **words, **fields})
        return made

    def _said(self, word: str) -> tuple[type[Any], dict[str, Any]]:
        match word:
            case "chill":
                return c.ChillResult, {"seq": self.state.seq}
            case "delete":
                return c.DeleteResult, {"reason": ResultEnd.AGED, "seq": self.state.seq}
            case "withhold":
                return c.WithholdResult, {"reason": "moderation", "who": "eve"}
            case "restore":
                return c.RestoreResult, {"who": "eve", "why": "wrong"}
            case _:
                return c.PublishResult, {"by": TASK}


def standing(name: str) -> Story:
    story = Story()
    for word in STATES[name]:
        story.tell(word)
    return story


def kinds(decision: results.ResultDecision) -> list[str]:
    return [type(event).__name__ for event in decision.events]


WORDS = ("chill", "delete", "withhold", "restore", "publish")
GONE, HELD = Refusal.RESULT_DELETED, Refusal.RESULT_WITHHELD
MATRIX: dict[str, tuple[str | Refusal, ...]] = {
    # chill, delete, withhold, restore, publish; "" is "already so"
    "untouched": ("ResultChilled", "ResultDeleted", "ResultWithheld", "", "ResultPublished"),
    "hot": ("ResultChilled", "ResultDeleted", "ResultWithheld", "", ""),
    "cold": ("", "ResultDeleted", "ResultWithheld", "ResultRestored", "ResultPublished"),
    "withheld": ("", "ResultDeleted", "", "ResultRestored", HELD),
    "withheld cold": ("", "ResultDeleted", "", "ResultRestored", HELD),
    "deleted": ("", "", GONE, GONE, GONE),
}


@pytest.mark.parametrize(("name", "word"), list(product(MATRIX, WORDS)))
def test_every_command_does_in_every_state_what_the_table_says(name: str, word: str) -> None:
    expected = MATRIX[name][WORDS.index(word)]
    story = standing(name)
    decision = story.tell(word)
    if isinstance(expected, Refusal):
        assert decision.refusal is not None
        assert decision.refusal.reason is expected
        assert kinds(decision) == []
    else:
        assert decision.refusal is None
        assert kinds(decision) == ([expected] if expected else [])
    assert [event.seq for event in story.events] == list(range(1, len(story.events) + 1))


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("kind", EVENTS)
def test_the_table_of_moves_is_what_evolve_does(name: str, kind: type[e.OfResult]) -> None:
    state = standing(name).state
    for cold in (False, True) if name.startswith("withheld") else (False,):
        fields: dict[str, Any] = {
            field: getattr(sample(kind), field) for field in kind.__struct_fields__
        }
        fields |= ANN | {"seq": state.seq + 1}
        if kind is e.ResultRestored:
            fields["cold"] = cold
        allowed = results.TRANSITIONS.get((type(state), kind))
        if allowed is None:
            with pytest.raises(ImpossibleEventError):
                results.evolve(state, kind(**fields), 0)
        else:
            assert type(results.evolve(state, kind(**fields), 0)) in allowed


@pytest.mark.parametrize("word", WORDS)
def test_told_twice_it_is_so_once_and_is_answered_again(word: str) -> None:
    story = standing("untouched")
    story.tell("chill") if word == "restore" else None
    fields = {"reply_to": 1} if word in {"withhold", "restore", "publish"} else {}
    command = story.command(word, **fields)
    first, second = story.put(command), story.put(command)
    assert len(first.events) == 1
    assert second.events == ()
    if fields:
        assert isinstance(first.reply, Accepted)
        assert isinstance(second.reply, Accepted)
        assert (second.reply.seq, second.reply.status) == (first.reply.seq, first.reply.status)


def test_restored_it_is_as_cold_as_it_was_before() -> None:
    story = standing("withheld cold")
    story.tell("restore")
    assert isinstance(story.state, results.Cold)
    story.tell("restore")
    assert isinstance(story.state, results.Hot)


def test_a_sweep_that_is_behind_chills_nothing_that_was_restored_since() -> None:
    story = standing("cold")
    late = story.command("chill", seq=0)
    story.tell("restore")
    assert story.put(late).events == ()
    assert isinstance(story.state, results.Hot)


def test_a_tombstone_is_forgotten_after_a_while_and_not_told_again() -> None:
    story = standing("deleted")
    assert isinstance(story.state, results.Deleted)
    until_ms = results.due_ms(story.state)
    assert until_ms == results.FORGET_MS
    timer = TimerDue(CommandId("tick"), TASK)
    results.on_due(story.rows, timer, Now(AT, until_ms - 1))
    assert story.rows.get(TASK) is not None
    results.on_due(story.rows, timer, Now(AT, until_ms))
    assert story.rows.get(TASK) is None
    assert story.tell("delete", seq=1).events == ()


def test_that_it_is_published_outlives_cold_and_withheld() -> None:
    story = standing("hot")
    for word in ("chill", "withhold", "restore"):
        story.tell(word)
    assert isinstance(story.state, results.Cold)
    assert story.state.published_by == TASK
    assert story.tell("publish").events == ()
    assert kinds(story.tell("publish", by=TaskId("another"))) == ["ResultPublished"]


# --- a preview and its full size ------------------------------------------------------------------

FULL = TaskId("fullfullfullfullfullfullfu000007")


def follow(story: Story, decision: results.ResultDecision) -> list[tuple[str, TaskId]]:
    """Work on what was ordered, and on what that orders; what happened, to which result."""
    happened: list[tuple[str, TaskId]] = []
    for event in decision.events:
        assert isinstance(event, e.OfResult)
        happened.append((type(event).__name__, event.task_id))
    for order in decision.orders:
        assert isinstance(order, c.ResultCommand)
        happened += follow(story, story.put(order))
    return happened


def work() -> Story:
    """A preview that a task makes in full size."""
    story = Story()
    story.tell("publish", by=FULL)
    return story


def pair(story: Story) -> tuple[str, ...]:
    """How the preview and its full size stand."""
    rows = [story.rows.rows[one] for one in (TASK, FULL)]
    return tuple(
        results.STATUSES[type(row)] for row in rows if not isinstance(row, results.Deliveries)
    )


@pytest.mark.parametrize(
    "asked", [{"task_id": TASK}, {"task_id": FULL, "publishes": TASK}], ids=["preview", "full"]
)
def test_a_preview_and_its_full_size_are_withheld_and_restored_together(
    asked: dict[str, Any],
) -> None:
    story = work()
    held = follow(story, story.tell("withhold", **asked))
    assert sorted(held) == [("ResultWithheld", TASK), ("ResultWithheld", FULL)]
    assert pair(story) == ("WITHHELD", "WITHHELD")
    for one in (TASK, FULL):
        row = story.rows.get(one)
        assert isinstance(row, results.Withheld)
        assert (row.reason, row.who) == ("moderation", "eve")
    assert follow(story, story.tell("withhold", **asked)) == []
    restored = follow(story, story.tell("restore", **asked))
    assert sorted(restored) == [("ResultRestored", TASK), ("ResultRestored", FULL)]
    assert pair(story) == ("HOT", "HOT")


def test_each_is_restored_as_cold_as_it_was() -> None:
    story = work()
    story.tell("chill")
    follow(story, story.tell("withhold"))
    follow(story, story.tell("restore"))
    assert pair(story) == ("COLD", "HOT")
    story.tell("chill", task_id=FULL, seq=2)
    assert follow(story, story.tell("restore")) == [("ResultRestored", TASK)]  # hot; it alone
    assert pair(story) == ("HOT", "COLD")


def test_a_full_size_that_was_asked_for_before_its_preview_was_withheld_goes_with_it() -> None:
    story = Story()
    assert story.tell("withhold").orders == ()
    late = story.command("publish", by=FULL)
    assert follow(story, story.put(late)) == [("ResultPublished", TASK), ("ResultWithheld", FULL)]
    assert follow(story, story.put(late)) == []
    assert pair(story) == ("WITHHELD", "WITHHELD")
    follow(story, story.tell("restore"))
    assert pair(story) == ("HOT", "HOT")


def test_what_is_its_own_full_size_goes_alone() -> None:
    story = standing("hot")
    assert story.tell("withhold", publishes=TASK).orders == ()
    assert story.tell("restore").orders == ()


def test_a_preview_that_is_deleted_keeps_its_full_size_from_nothing() -> None:
    story = work()
    story.tell("delete")
    assert follow(story, story.tell("withhold", task_id=FULL, publishes=TASK)) == [
        ("ResultWithheld", FULL)
    ]


# --- whose, and how much --------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_nobody_touches_the_result_of_another(word: str) -> None:
    story = standing("cold")
    fields = {"reply_to": 1} if word in {"withhold", "restore", "publish"} else {}
    decision = story.tell(word, user_id=BOB, **fields)
    assert decision.events == ()
    assert decision.refusal is not None
    assert decision.refusal.reason is Refusal.NOT_YOURS
    assert isinstance(decision.reply, Refused) is bool(fields)


def test_deliveries_are_counted_once_each_and_numbered_by_their_source() -> None:
    story = Story()
    lines = (
        c.Delivery(tenant_id=TenantId("acme"), scene=Scene.AUTOCUT, cold=False, reads=2, size=10),
    )

    def count(number: int, source: str = "api-0") -> c.CountDeliveries:
        return c.CountDeliveries(
            command_id=CommandId(f"{source}-{number}"), source=source, deliveries=lines
        )

    for command in (count(1), count(1), count(2), count(1, "api-1"), count(1)):
        story.put(command)
    told = [
        (event.source, event.seq) for event in story.events if isinstance(event, e.ResultsDelivered)
    ]
    assert told == [("api-0", 1), ("api-0", 2), ("api-1", 1)]


# --- a publish that was followed by another -------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "since"])
def test_all_that_ever_published_a_preview_are_withheld_and_restored_with_it(when: str) -> None:
    """The first came to nothing and was followed by others; retried by hand it has come to be."""
    story = work()
    others = (TaskId("second"), TaskId("third"))
    if when == "since":
        follow(story, story.tell("withhold"))
    for other in others:
        follow(story, story.tell("publish", by=other))
    if when == "before":
        follow(story, story.tell("withhold"))
    everyone = (TASK, FULL, *others)
    assert all(isinstance(story.rows.get(one), results.Withheld) for one in everyone)
    follow(story, story.tell("restore", task_id=others[0], publishes=TASK))
    assert all(isinstance(story.rows.get(one), results.Hot) for one in everyone)


def test_whoever_publishes_it_again_is_the_newest_and_there_once() -> None:
    story = work()
    for by in ("second", FULL, "second", "second"):
        story.tell("publish", by=TaskId(by))
    assert isinstance(story.state, results.Hot)
    assert (story.state.published_by, story.state.published_before) == ("second", (FULL,))
    for word in ("chill", "withhold", "restore", "delete"):
        story.tell(word)
        assert story.state.published_before == (FULL,)


def test_a_row_of_before_is_read() -> None:
    row = msgspec.json.decode(b'["result_withheld",3,"u","","full",true,"r","w"]', type=results.ROW)
    assert row == results.Withheld(
        seq=3, user_id=UserId("u"), tenant_id=TenantId(""), published_by="full", cold=True,
        reason="r", who="w",
    )  # fmt: skip
    assert row.published_before == ()
