"""One long life of a task, byte for byte: what was written once is written so for ever.

The file is a history: a line for each command, timer, event, order, answer and refusal. It is never
edited; a change of a rule that changes it is a new version of a message, or a mistake. Rows get
new fields at their ends: those of the file are read as what stands there now.
"""

from pathlib import Path

import msgspec
from msgspec.structs import replace

from commands import tasks
from commands.decider import Decision
from schema.codec import encode
from schema.failures import FailureClass
from schema.ids import UserId
from schema.words import LossCause
from tests.support import task_words as w
from tests.support.spec import Story

GOLDEN = Path(__file__).parent / "golden" / "task_history.jsonl"


def _lines(decision: Decision[object]) -> list[str]:
    told = (
        *(("event", event) for event in decision.events),
        *(("order", order) for order in decision.orders),
        *((("reply", decision.reply),) if decision.reply is not None else ()),
        *((("refusal", decision.refusal),) if decision.refusal is not None else ()),
    )
    return [f"{kind} {encode(message).decode()}" for kind, message in told]


def history() -> list[str]:
    """A task that meets nearly everything: material, loss, failures, backstop, retry, result."""
    story = w.world()
    lines: list[str] = []

    def tell(story: Story, *commands: object) -> None:
        for command in commands:
            lines.append(f"command {encode(command).decode()}")
            lines.extend(_lines(story.when(command).decision))
            row = story.rows.get(w.TASK)
            lines.append(f"row {encode(row).decode()}")

    def wait(story: Story, seconds: float) -> None:
        story.after(seconds)
        for outcome in story.tick():
            lines.append(f"timer {story.at.isoformat()}")
            lines.extend(_lines(outcome.decision))

    tell(story, w.create(w.CLIP, w.LOGO), w.confirm(), w.start(), w.confirm(w.LOGO))
    tell(story, w.start(), w.milestone(10), w.milestone(30), w.lose())
    wait(story, 120)
    tell(story, w.start(2), w.finish(1), w.fail(2))
    wait(story, 10)
    tell(story, w.start(3), w.give_back(3, LossCause.PREEMPTED, "step-7"))
    tell(story, w.start(4), w.cancel(user=UserId("mallory000007")))
    wait(story, w.BACKSTOP)
    wait(story, 30)
    tell(story, w.start(5), w.fail(5, FailureClass.HUNG), w.fail(5, FailureClass.HUNG))
    tell(story, w.requeue(), w.requeue(), w.start(6), w.milestone(60, 6))
    wait(story, 25)
    tell(story, w.store(6), w.milestone(90, 6), w.finish(6), w.cancel(), w.finish(6))
    wait(story, 86_400)
    return lines


def _read(line: str) -> object:
    """The line itself, or the row that it holds, without what the file is too old for."""
    kind, _, text = line.partition(" ")
    if kind != "row" or text == "null":
        return line
    row = msgspec.json.decode(text, type=tasks.ROW)
    match row:
        case tasks.Queued():
            return replace(row, until_ms=None, asks=0)
        case tasks.Running():
            return replace(row, started_served_ms=None, lease_seconds=0)
        case _:
            return row


def test_the_history_is_what_it_always_was() -> None:
    written = GOLDEN.read_text().splitlines()
    assert [_read(line) for line in history()] == [_read(line) for line in written]
