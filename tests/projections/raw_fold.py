"""What the tables must hold, folded from raw JSON by dictionaries. Imports nothing of ours."""

from collections import defaultdict
from typing import Any

Table = dict[Any, dict[str, Any]]


class RawFold:
    """Feed it every record of a topic in order; then look at its tables."""

    def __init__(self) -> None:
        self.tasks: Table = {}
        self.events: Table = {}
        self.months: Table = defaultdict(
            lambda: {"reserved": 0, "spent": 0, "refunded": 0, "submitted": 0}
        )
        self.days: Table = defaultdict(lambda: {"submitted": 0})
        self.entries: Table = {}
        self.waiting: Table = {}
        self.slots: Table = {}
        self.materials: Table = {}
        self.refusals: Table = {}
        self.letters: Table = {}
        self._day_of: dict[str, str] = {}

    def feed(self, topic: str, partition: int, offset: int, event: dict[str, Any]) -> None:
        """One record."""
        if topic == "task-events":
            self.events[event["task_id"], event["seq"]] = {
                "place": (partition, offset),
                "body": event,
            }
            self._task(event)
        elif topic == "quota-events":
            self._quota(event)
        elif topic == "pool-events":
            self._pool(event)
        elif topic == "material-events":
            row = self.materials.setdefault(event["material_id"], {})
            state = event["type"].split(".")[1].upper()
            row.update(status=state, seq=event["seq"])
        elif topic == "refusals":
            self.refusals[event["command_id"]] = {"reason": event["reason"], "key": event["key"]}
        elif topic == "dead-letters":
            self.letters[event["letter_id"]] = {"cause": event["cause"]}

    def _task(self, event: dict[str, Any]) -> None:
        kind = event["type"].split(".")[1]
        if kind == "progressed":
            return
        row = self.tasks.setdefault(
            event["task_id"],
            {"retries": 0, "losses": 0, "card_ms": 0, "token": 0, "charge": None, "failure": None},
        )
        row["seq"], row["updated_at"] = event["seq"], event["at"]
        if kind == "created":
            row.update(status="CREATED", tenant=event["origin"].get("tenant_id", ""))
            row["parameters"] = event["origin"]["parameters"]
        elif kind == "queued":
            row["status"] = "QUEUED"
        elif kind == "started":
            row.update(status="RUNNING", token=event["token"])
        elif kind == "requeued":
            row["status"] = "QUEUED"
            row["retries" if event["counted"] else "losses"] += 1
            row["failure"] = event.get("failure")
            row["card_ms"] += event.get("card_ms", 0)
        elif kind in ("succeeded", "failed", "canceled", "expired"):
            row["status"] = kind.upper()
            row["card_ms"] += event.get("card_ms", 0)
            row["charge"] = event.get("charge_micros", 0)
            if kind in ("succeeded", "failed"):
                row["failure"] = event.get("failure")

    def _quota(self, event: dict[str, Any]) -> None:
        kind = event["type"].split(".")[1]
        self.entries[event["event_id"]] = {"kind": kind, "amount": event["amount_micros"]}
        account, scene, amount = event["account_id"], event["scene"], event["amount_micros"]
        users = [event["user_id"]] + ([""] if account.startswith("t-") else [])
        if kind == "reserved":
            start = event["day"]["start"]
            self.days[account, event["user_id"], scene, start]["submitted"] += 1
            self._day_of[event["reservation_id"]] = start
        if kind == "released" and event["day_returned"]:
            start = self._day_of[event["reservation_id"]]
            self.days[account, event["user_id"], scene, start]["submitted"] -= 1
        for user in users:
            month = self.months[account, user, scene]
            if kind == "reserved":
                month["reserved"] += amount
                month["submitted"] += 1
            elif kind == "committed":
                month["reserved"] -= amount + event["released_micros"]
                month["spent"] += amount
            elif kind == "released":
                month["reserved"] -= amount
            elif kind == "refunded":
                month["spent"] -= amount
                month["refunded"] += amount

    def _pool(self, event: dict[str, Any]) -> None:
        kind, task, token = event["type"].split(".")[1], event.get("task_id"), event.get("token")
        stages = {"granted": "granted", "accepted": "accepted"}
        if kind == "enqueued":
            self.waiting[task] = {"token": token}
        elif kind == "dequeued":
            del self.waiting[task]
        elif kind == "proposed":
            del self.waiting[task]
            self.slots[task, token] = {"state": "proposed"}
        elif kind in stages:
            self.slots[task, token] = {"state": stages[kind]}
        elif kind in ("freed", "over", "lost"):
            before = self.slots[task, token]["state"]
            if kind == "freed" and before not in ("over", "lost"):
                self.slots[task, token] = {"state": "storing"}
            elif kind == "freed" or before == "storing":
                del self.slots[task, token]
            else:
                self.slots[task, token] = {"state": kind}
