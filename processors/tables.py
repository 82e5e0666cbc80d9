"""The tables: one for each kind of state, all in one changelog.

Faust and the engine hand bytes over; which rows they are is known here and to the deciders alone.
"""

from typing import Any

import msgspec

from commands import materials, pools, quotas, tasks
from commands.materials import results
from processors.engine import Table
from schema.codec import encode


def _table(name: str, row: Any) -> Table[Any]:  # noqa: ANN401 - a union of row types
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(row)
    return Table(name, decode=decoder.decode, encode=encode)


class Tables:
    """The tables of one process; indexes listen to them."""

    def __init__(self) -> None:
        self.tasks: Table[tasks.TaskRow] = _table("tasks", tasks.ROW)
        self.quotas: Table[quotas.QuotaRow] = _table("quotas", quotas.ROW)
        self.pools: Table[pools.Row] = _table("pools", pools.ROW)
        self.materials: Table[materials.MaterialRow] = _table("materials", materials.ROW)
        self.results: Table[results.ResultRow] = _table("results", results.ROW)

    def all(self) -> list[Table[Any]]:
        """In the order in which the engine is told of them."""
        return [self.tasks, self.quotas, self.pools, self.materials, self.results]
