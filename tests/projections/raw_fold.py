"""What the tables must hold, folded from raw JSON by dictionaries. Imports nothing of ours."""

from collections import defaultdict
from datetime import datetime, timedelta
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
        self.attempts: Table = {}
        self.waste: Table = defaultdict(lambda: {"attempts": 0, "card_ms": 0, "burnt_ms": 0})
        self.flow: Table = defaultdict(
            lambda: {"arrived": 0, "started": 0, "freed": 0, "held_ms": 0}
        )
        self.use: Table = defaultdict(lambda: {"used_ms": 0, "slots_ms": 0})
        self.breakers: Table = {}
        self.cards: dict[str, int] = {}
        self.ready_slots = 0
        self._pool_at: datetime | None = None
        self.materials: Table = {}
        self.contents: dict[tuple[str, str], dict[str, Any]] = {}
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
            if event["type"].startswith("material."):
                self._material(event)
        elif topic == "refusals":
            self.refusals[event["command_id"]] = {"reason": event["reason"], "key": event["key"]}
        elif topic == "dead-letters":
            self.letters[event["letter_id"]] = {"cause": event["cause"]}

    def _material(self, event: dict[str, Any]) -> None:
        row = self.materials.setdefault(event["material_id"], {"tries": 0, "facts": None})
        kind, at = event["type"].split(".")[1], datetime.fromisoformat(event["at"])
        row.update(seq=event["seq"], tries=event.get("number", row["tries"]))
        if kind in ("registered", "touched", "reopened") or (
            kind == "assembling" and not event.get("again")
        ):
            row["active_at"] = at
        if kind in ("ready", "attached"):
            row["used_at"] = at
        if kind == "registered":
            row["owner"] = (
                f"t-{event['tenant_id']}" if event["tenant_id"] else f"u-{event['user_id']}"
            )
        if kind == "ready":
            row["facts"] = event["facts"]
            content = self.contents.setdefault((row["owner"], event["sha256"]), {"stored_at": at})
            content["stored_at"] = min(at, content["stored_at"])
            content["key"] = event["content_key"]
        moves = {"reopened": "registered", "chilled": "cold"}
        if kind == "attached":
            row["status"] = "READY" if row["status"] == "COLD" else row["status"]
        elif kind != "touched":
            row["status"] = moves.get(kind, kind).upper()

    def _task(self, event: dict[str, Any]) -> None:
        kind = event["type"].split(".")[1]
        if kind == "progressed":
            return
        row = self.tasks.setdefault(
            event["task_id"],
            {
                "retries": 0,
                "losses": 0,
                "card_ms": 0,
                "card_measured": True,
                "lower_spec": False,
                "token": 0,
                "charge": None,
                "failure": None,
            },
        )
        row["seq"], row["updated_at"] = event["seq"], event["at"]
        if kind == "created":
            row.update(status="CREATED", tenant=event["origin"].get("tenant_id", ""))
            row["parameters"] = event["origin"]["parameters"]
            row["lane"] = event["lane"]
        elif kind == "queued":
            row.update(status="QUEUED", lane=event["lane"], queued=event["at"])
        elif kind == "moved":
            row["lane"] = event["lane"]
            row["lower_spec"] |= event.get("lower_spec", False)
        elif kind == "started":
            row.update(status="RUNNING", token=event["token"])
            self.attempts[event["task_id"], event["token"]] = {
                "lane": row["lane"],
                "queued_at": row["queued"],
                "started_at": event["at"],
                "pool": event["pool_id"],
                "outcome": None,
            }
        elif kind == "requeued":
            row.update(status="QUEUED", queued=event["at"])
            row["lower_spec"] |= event.get("lower_spec", False)
            row["retries"] += event["counted"]
            row["losses"] += not event["counted"] and event.get("loss") != "preempted"
            row["failure"] = event.get("failure")
            row["card_ms"] += event.get("card_ms", 0)
        elif kind in ("succeeded", "failed", "canceled", "expired"):
            row["status"] = kind.upper()
            row["card_ms"] += event.get("card_ms", 0)
            row["charge"] = event.get("charge_micros", 0)
            if kind in ("succeeded", "failed"):
                row["failure"] = event.get("failure")
        if kind in ("requeued", "succeeded", "failed", "canceled"):
            self._over(kind, row, event)
        if kind in ("failed", "canceled", "expired") or event.get("counted"):
            self._give_up(event["task_id"], event["token"], _cause(kind, event))
        elif event.get("started_anew") or event.get("facts", {}).get("started_anew"):
            self._give_up(event["task_id"], event["token"] - 1, "started_anew")

    def _give_up(self, task: str, upto: int, cause: str) -> None:
        """Nobody goes on from what these attempts saved."""
        for token in range(1, upto + 1):
            attempt = self.attempts.get((task, token), {})
            if saved := attempt.get("saved_ms"):
                self.waste[attempt["pool"], cause]["burnt_ms"] += saved
                attempt["saved_ms"] = 0

    def _over(self, kind: str, row: dict[str, Any], event: dict[str, Any]) -> None:
        row["card_measured"] &= event.get("card_measured", True)
        attempt = self.attempts.get((event["task_id"], event["token"]))
        if attempt is None or attempt["outcome"] is not None:
            return
        outcome = {"requeued": "lost" if event.get("loss") else "failed"}.get(kind, kind)
        attempt["outcome"] = outcome
        attempt["card_ms"] = card_ms = event.get("card_ms", 0)
        attempt["card_measured"] = event.get("card_measured", True)
        attempt["saved_ms"] = event.get("saved_ms", 0)
        if kind == "succeeded":
            return
        waste = self.waste[attempt["pool"], _cause(kind, event)]
        waste["attempts"] += 1
        waste["card_ms"] += card_ms
        waste["burnt_ms"] += card_ms - event.get("saved_ms", 0)

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
        at = datetime.fromisoformat(event["at"])
        self._time_passes(at)
        if kind == "enqueued":
            self.waiting[task] = {
                "token": token,
                "lane": event["lane"],
                "account": event["account_id"],
                "move": None,
            }
            self._flow(event["lane"], at)["arrived"] += 1
        elif kind == "dequeued":
            del self.waiting[task]
        elif kind == "move_asked":
            self.waiting[task]["move"] = event["to_lane"]
        elif kind == "proposed":
            lane = self.waiting.pop(task)["lane"]
            self.slots[task, token] = {"state": "proposed", "lane": lane, "since": at, "for": None}
            self._flow(lane, at)["started"] += 1
        elif kind == "preempted":
            self.slots[task, token]["for"] = event["for_task_id"]
        elif kind in ("granted", "accepted"):
            self.slots[task, token]["state"] = kind
        elif kind in ("freed", "over", "lost"):
            self._end_slot(kind, (task, token), at)
        elif kind == "runner_registered":
            self.ready_slots = event["slots"]
        elif kind == "breaker_opened":
            self.breakers[event["scene"]] = {"state": "open", "counted": event["counted"]}
        elif kind in ("breaker_half_opened", "breaker_closed"):
            state = kind.removeprefix("breaker_").replace("half_opened", "half_open")
            self.breakers[event["scene"]] = {"state": state, "counted": 0}
        elif kind == "scaled":
            self.cards[event["pool_id"]] = event["cards"]

    def _end_slot(self, kind: str, attempt: tuple[Any, Any], at: datetime) -> None:
        slot = self.slots[attempt]
        before = slot["state"]
        if kind == "freed" and before not in ("over", "lost"):
            slot["state"] = "storing"
        elif kind == "freed" or before == "storing":
            del self.slots[attempt]
        else:
            slot["state"] = kind
        if kind == "freed":
            flow = self._flow(slot["lane"], at)
            flow["freed"] += 1
            flow["held_ms"] += (at - slot["since"]) // timedelta(milliseconds=1)

    def _flow(self, lane: str, at: datetime) -> dict[str, Any]:
        return self.flow[lane, at.replace(second=at.second // 10 * 10, microsecond=0)]

    def _time_passes(self, at: datetime) -> None:
        """The only pool: one runner, silent for less than a minute."""
        lasted = (at - (self._pool_at or at)) // timedelta(milliseconds=1)
        used = sum(slot["state"] != "storing" for slot in self.slots.values())
        use = self.use[at.replace(second=at.second // 10 * 10, microsecond=0)]
        use["used_ms"] += used * lasted
        use["slots_ms"] += self.ready_slots * lasted
        self._pool_at = at


def _cause(kind: str, event: dict[str, Any]) -> str:
    found: str = event.get("loss") or event.get("last_failure") or event.get("failure") or kind
    return found
