"""Rows of a decider in a table of the engine, as one command sees them."""

from typing import Generic, TypeVar

from processors.engine import Step, Table

Row = TypeVar("Row")


class StepRows(Generic[Row]):
    """`commands.decider.Rows` over one table within one step; dropped with the step."""

    __slots__ = ("_step", "_table")

    def __init__(self, step: Step, table: Table[Row]) -> None:
        self._step = step
        self._table = table

    def get(self, key: str) -> Row | None:
        return self._step.get(self._table, key.encode())

    def put(self, key: str, row: Row) -> None:
        self._step.put(self._table, key.encode(), row)

    def delete(self, key: str) -> None:
        self._step.delete(self._table, key.encode())
