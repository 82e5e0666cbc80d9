"""Pools: who waits, which slots are free, who holds which attempt until when.

One writer for each pool. Read `rows` (what is remembered), `decide` (what follows from a command),
`evolve` (what an event changes), `order` (who is next), `state` (rows and indexes in memory) and
`steps` (what the shell calls).
"""

from commands.pools.decide import decide
from commands.pools.evolve import TRANSITIONS, evolve
from commands.pools.rows import INITIAL, POLICY_KEY, ROW, Row, Stage, waits_behind
from commands.pools.state import Depths, PoolState
from commands.pools.steps import (
    ASSIGNED_MAX,
    DUE_MAX,
    Ticked,
    fire,
    handle,
    on_due,
    on_tick,
    rows_behind,
    settle,
)

__all__ = [
    "ASSIGNED_MAX",
    "DUE_MAX",
    "INITIAL",
    "POLICY_KEY",
    "ROW",
    "TRANSITIONS",
    "Depths",
    "PoolState",
    "Row",
    "Stage",
    "Ticked",
    "decide",
    "evolve",
    "fire",
    "handle",
    "on_due",
    "on_tick",
    "rows_behind",
    "settle",
    "waits_behind",
]
