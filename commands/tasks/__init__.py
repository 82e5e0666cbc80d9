"""Tasks: what a user asked for, from CREATED to its end, and the fencing of its attempts.

Read in this order: `states` (one type each, and the table of moves), `deciding` (which rule judges
a command), `creating` (up to the queue), `attempts` (start, milestones, result), `verdicts` (what
each failure and loss leads to, as a table) and `losing` (which goes by it), `moving` (to another
pool), `ending` (cancel, expire), `retrying` (by hand), `timers`, `evolving`, `card_time` (how long
an attempt had its card), and `follow_ups` (what is ordered from others, and how a refusal is told).

The shell calls `handle` for a command, `on_due` for a timer, and `discard` for a command that an
operator throws away. Each reads the row of the task,
decides, evolves and puts the row back.
"""

from commands.tasks.deciding import decide, discard, handle
from commands.tasks.evolving import evolve
from commands.tasks.states import (
    INITIAL,
    ROW,
    STATUSES,
    TRANSITIONS,
    Absent,
    Canceled,
    Created,
    Delayed,
    Expired,
    Failed,
    Queued,
    Running,
    Storing,
    Succeeded,
    TaskRow,
    TaskState,
    due_ms,
)
from commands.tasks.timers import ask_soon, on_due

__all__ = [
    "INITIAL",
    "ROW",
    "STATUSES",
    "TRANSITIONS",
    "Absent",
    "Canceled",
    "Created",
    "Delayed",
    "Expired",
    "Failed",
    "Queued",
    "Running",
    "Storing",
    "Succeeded",
    "TaskRow",
    "TaskState",
    "ask_soon",
    "decide",
    "discard",
    "due_ms",
    "evolve",
    "handle",
    "on_due",
]
