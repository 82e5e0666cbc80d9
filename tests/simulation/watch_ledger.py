"""Book of the accounts: within every limit at every reservation, and each resolved exactly once."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from commands.quotas import AccountRow, TenantMonth, UserMonth

if TYPE_CHECKING:
    from tests.simulation.watch import Watch

Json = dict[str, Any]
_ENDED = {"SUCCEEDED", "FAILED", "CANCELED", "EXPIRED"}


@dataclass(slots=True)
class Month:
    reserved: int = 0
    spent: int = 0
    open: int = 0


class Ledger:
    def __init__(self, watch: "Watch") -> None:
        self._watch = watch
        self.seqs: dict[str, int] = {}
        self.users: dict[tuple[str, ...], Month] = defaultdict(Month)
        self.tenants: dict[tuple[str, ...], Month] = defaultdict(Month)
        self.open: dict[tuple[str, str], Json] = {}
        self.resolved: dict[tuple[str, str], str] = {}

    def follow(self, event: Json) -> None:
        account = event["account_id"]
        self.seqs[account] = event["seq"]
        match event["type"]:
            case "quota.reserved.v1":
                self._reserved(account, event)
            case "quota.committed.v1" | "quota.released.v1":
                self._resolved(account, event)
            case _:
                pass

    def _reserved(self, account: str, event: Json) -> None:
        demand, key = self._watch.demand, (account, event["reservation_id"])
        demand(key not in self.open, f"reservation {key}: made while it is open")
        demand(key not in self.resolved, f"reservation {key}: made again")
        self.open[key] = event
        user, tenant = self._months(event, event["month"]["start"])
        for month in (user, tenant):
            month.reserved += event["amount_micros"]
            month.open += 1
        limit, contract = event["limit_micros"], event.get("contract_micros")
        held = user.reserved + user.spent
        demand(held <= limit, f"{event['user_id']}: {held} held of {limit}")
        held = tenant.reserved + tenant.spent
        demand(contract is None or held <= contract, f"{account}: {held} held of {contract}")

    def _resolved(self, account: str, event: Json) -> None:
        demand, key = self._watch.demand, (account, event["reservation_id"])
        kind = event["type"]
        reserved = self.open.pop(key, None)
        if reserved is None:
            demand(holds=False, words=f"reservation {key}: {kind}, after {self.resolved.get(key)}")
            return
        self.resolved[key] = kind
        committed = kind == "quota.committed.v1"
        amount = event["amount_micros"] if committed else 0
        demand(amount <= reserved["amount_micros"], f"reservation {key}: {amount} is too much")
        for month in self._months(event, event["month_start"]):
            month.reserved -= reserved["amount_micros"]
            month.spent += amount
            month.open -= 1
        task = self._watch.tasks.tasks.get(event["task_id"])
        if task is None or task.reservation != key[1]:
            demand(not committed, f"reservation {key}: charged for no task")
            return
        demand(task.status in _ENDED, f"reservation {key}: {kind} while {task.status}")
        demand(task.charge == amount, f"reservation {key}: charged {amount}, not {task.charge}")

    def _months(self, event: Json, start: str) -> tuple[Month, Month]:
        account, scene = event["account_id"], event["scene"]
        at = str(round(datetime.fromisoformat(start).timestamp() * 1000))
        return self.users[at, scene, event["user_id"], account], self.tenants[at, scene, account]

    # --- rows ------------------------------------------------------------------------------------

    def audit(self, rows: dict[str, Any]) -> None:
        """Rows of one partition: what they say is what the events say."""
        demand = self._watch.demand
        for key, row in rows.items():
            kind, *names = key.split("/")
            if isinstance(row, UserMonth | TenantMonth):
                book = self.users if isinstance(row, UserMonth) else self.tenants
                month = book[tuple(names)]
                told = (month.reserved, month.spent, month.open)
                found = (row.reserved_micros, row.spent_micros, row.open_count)
                demand(found == told, f"{key}: its row says {found}, its events {told}")
            elif isinstance(row, AccountRow):
                demand(row.seq == self.seqs[kind], f"{key}: seq {row.seq} of {self.seqs[kind]}")

    def close(self) -> None:
        for key, event in self.open.items():
            task = self._watch.tasks.tasks.get(event["task_id"])
            status = None if task is None else task.status
            self._watch.demand(
                holds=False, words=f"reservation {key}: still held, its task is {status}"
            )

    @property
    def settled(self) -> bool:
        return not self.open
