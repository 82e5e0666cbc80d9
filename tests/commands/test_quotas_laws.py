"""Laws of quotas, over random lives of several users, tenants, scenes, zones and months.

The prover of the limits is a stranger: it reads the JSON of the events, and no rule of ours.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from commands import quotas
from commands.decider import MemoryRows, Now, TimerDue
from schema import commands as c
from schema import events as e
from schema.codec import QUOTA_COMMANDS, QUOTA_EVENTS, encode
from schema.ids import CommandId, TenantId, UserId, account_of
from schema.policy import KeepPolicy
from schema.words import Scene
from tests.support.quotas import (
    ACME,
    ACMES,
    ANN,
    BEN,
    CREDIT,
    NOBODY,
    bare_world,
    commit,
    policy,
    publish,
    refund,
    release,
    retry,
    submit,
    top_up,
)
from tests.support.spec import Story

WHO = [(NOBODY, ANN), (ACME, ANN), (ACME, BEN)]
SCENES = [Scene.AUTOCUT, Scene.REHEARSAL]
ZONES = ["UTC", "Asia/Shanghai", "America/Havana", "Australia/Lord_Howe"]

people = st.sampled_from(WHO)
names = st.integers(0, 9).map(lambda number: f"task-{number}")
which = st.integers(0, 12)
"""One of the reservations so far, counted from the latest; 12: an unknown one."""
amounts = st.integers(0, 6 * CREDIT)
KEEP = KeepPolicy(ended_seconds=86_400, charge_seconds=5 * 86_400)
policies = st.builds(
    dict[str, Any],
    per_minute=st.integers(1, 4),
    per_day=st.integers(1, 8),
    credits=st.integers(4, 30),
    contract=st.none() | st.integers(4, 40),
    keep=st.sampled_from([KEEP, KeepPolicy(ended_seconds=60, charge_seconds=60)]),
)
submissions = st.tuples(
    st.just("submit"),
    people,
    names,
    st.sampled_from(SCENES),
    st.none() | st.floats(0, 50),
    st.sampled_from(["", "", "", "other"]),
)
steps = st.one_of(
    submissions,
    submissions,
    st.tuples(st.just("retry"), which, st.integers(1, 2)),
    st.tuples(st.just("commit"), which, amounts),
    st.tuples(st.just("release"), which, st.booleans()),
    st.tuples(st.just("refund"), which, amounts, st.integers(1, 2)),
    st.tuples(st.just("top_up"), people, amounts, st.integers(1, 4), st.booleans()),
    st.tuples(st.just("publish"), policies, st.integers(1, 9)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 20, 61, 3_600, 86_400, 20 * 86_400])),
    st.tuples(st.just("outage"), st.sampled_from([5, 3_600, 3 * 86_400])),
    st.tuples(st.just("tick")),
)


@dataclass
class Life:
    """A random life: the story, and everything that a replay needs, as bytes."""

    story: Story = field(default_factory=bare_world)
    journal: list[tuple[bytes | str, int]] = field(default_factory=list[tuple[bytes | str, int]])
    """Events with the served clock of their decision, and keys of rows that a tick deleted."""
    zone: str = "UTC"
    used: set[CommandId] = field(default_factory=set[CommandId])

    def step(self, what: str, *given: Any) -> None:  # noqa: ANN401 - of each kind its own
        match what:
            case "wait":
                self.story.after(given[0])
            case "outage":
                self.story.after_outage(given[0])
            case "tick":
                self._tick()
            case _:
                self._ask(self._command(what, *given))

    def _ask(self, command: c.QuotaCommand) -> None:
        if self._is_forgotten(command):
            return
        before = dict(self.story.rows.rows)
        outcome = self.story.when(QUOTA_COMMANDS.decode(encode(command)))
        if outcome.decision.refusal is not None or not outcome.events:
            assert self.story.rows.rows == before, "all layers or none"
        for event in outcome.events:
            self.journal.append((encode(event), self.story.now.served_ms))
        rows = dict(self.story.rows.rows)
        again = self.story.when(command)
        assert not again.events, "told twice, it happens once"
        assert self.story.rows.rows == rows

    def _command(self, what: str, *given: Any) -> c.QuotaCommand:  # noqa: ANN401 - of each its own
        match what:
            case "publish":
                changes, version = given
                return publish(policy(version, timezone=self.zone, **changes))
            case "submit":
                (tenant, user), name, scene, claimed, body = given
                name = f"{name}-{tenant}"
                return submit(
                    name, user=user, tenant=tenant, scene=scene, claimed=claimed, body=body
                )
            case "top_up":
                return _top_up(*given)
            case _:
                return self._of_reservation(what, *given)

    def _of_reservation(self, what: str, which: int, *given: Any) -> c.QuotaCommand:  # noqa: ANN401
        known = [event for event in self.story.history if isinstance(event, e.QuotaReserved)]
        held = known[-1 - which % len(known)] if known and which < 12 else None
        account = ACMES if held is None else held.account_id
        reserving = "unknown" if held is None else str(held.reservation_id)
        match what:
            case "commit":
                return commit(given[0], reserving, account=account)
            case "release":
                return release(reserving, ran=given[0], account=account)
            case "refund":
                return refund(given[0], reserving, number=given[1], account=account)
            case _:
                tenant = ACME if account == ACMES else NOBODY
                user, scene = (BEN, Scene.AUTOCUT) if held is None else (held.user_id, held.scene)
                return retry(reserving, given[0], user=user, tenant=tenant, scene=scene)

    def _is_forgotten(self, command: c.QuotaCommand) -> bool:
        """Whether the id was used and is forgotten: the api never asks so (it reads first)."""
        reserving = isinstance(command, c.SubmitTask | c.RetryTask)
        if not reserving and not isinstance(command, c.TopUpQuota):
            return False
        if command.command_id not in self.used:
            if self._would_be_granted(command):
                self.used.add(command.command_id)
            return False
        served_ms = self.story.now.served_ms
        for key, row in self.story.rows:
            if f"/{command.command_id}/" in key and key[0] in "rp":
                due = quotas.due_ms(row)
                return due is not None and due <= served_ms
        return True

    def _would_be_granted(self, command: c.QuotaCommand) -> bool:
        rows: MemoryRows[quotas.QuotaRow] = MemoryRows()
        rows.rows.update(self.story.rows.rows)
        return bool(quotas.handle(rows, command, self.story.now).events)

    def _tick(self) -> None:
        before = set(self.story.rows.rows)
        self.story.tick()
        for key in before - set(self.story.rows.rows):
            self.journal.append((key, self.story.now.served_ms))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(entry) for entry, _ in self.journal if isinstance(entry, bytes)]


def _top_up(who: tuple[TenantId, UserId], amount: int, number: int, whole: bool) -> c.TopUpQuota:  # noqa: FBT001
    """The id of an operator's command is his own: one for each account."""
    tenant, user = who
    account = account_of(tenant, user)
    asked = top_up(amount, number=number, user=None if whole and tenant else user, account=account)
    return _renamed(asked, f"{asked.command_id}-of-{tenant}")


def _renamed(command: c.TopUpQuota, command_id: str) -> c.TopUpQuota:
    return c.TopUpQuota(
        command_id=CommandId(command_id),
        account_id=command.account_id,
        user_id=command.user_id,
        scene=command.scene,
        amount_micros=command.amount_micros,
        who=command.who,
        why=command.why,
    )


def live(zone: str, steps: list[tuple[Any, ...]]) -> Life:
    life = Life(zone=zone)
    life.step("publish", {"credits": 20, "contract": 30, "keep": KEEP}, 1)
    for step in steps:
        life.step(*step)
    return life


lives = st.builds(live, st.sampled_from(ZONES), st.lists(steps, min_size=40, max_size=90))


class Stranger:
    """Proves the limits from raw JSON. Sums are by (account, user or None, scene, month start)."""

    def __init__(self) -> None:
        self.reserved: Counter[tuple[Any, ...]] = Counter()
        self.spent: Counter[tuple[Any, ...]] = Counter()
        self.topped_up: Counter[tuple[Any, ...]] = Counter()
        self.days: Counter[tuple[Any, ...]] = Counter()
        self.minutes: Counter[tuple[Any, ...]] = Counter()
        self.open: dict[tuple[str, str], dict[str, Any]] = {}
        self.charges: dict[tuple[str, str], int] = {}
        self.seqs: dict[str, int] = defaultdict(int)
        self.policy: dict[str, Any] = {}

    def read(self, event: dict[str, Any]) -> None:
        key = event.get("account_id", "policy")
        self.seqs[key] += 1
        assert event["seq"] == self.seqs[key]
        kind = event["type"]
        if kind == "policy.adopted.v1":
            self.policy = event["policy"]
        elif kind == "quota.reserved.v1":
            self._reserved(event)
        elif kind == "quota.committed.v1":
            self._resolved(event, event["amount_micros"], event["released_micros"])
        elif kind == "quota.released.v1":
            self._resolved(event, 0, event["amount_micros"])
        elif kind == "quota.refunded.v1":
            charge = (event["account_id"], event["charge_id"])
            assert event["amount_micros"] <= self.charges.pop(charge), "a refund is once"
            for place in _places(event, event["month_start"]):
                self.spent[place] -= event["amount_micros"]
        else:
            user = event.get("user_id")
            place = (event["account_id"], user, event["scene"], event["month"]["start"])
            self.topped_up[place] += event["amount_micros"]
        for sums in (self.reserved, self.spent, self.days):
            assert all(value >= 0 for value in sums.values())

    def _reserved(self, event: dict[str, Any]) -> None:
        amount, user = event["amount_micros"], (event["account_id"], event["user_id"])
        of_user, of_tenant = _places(event, event["month"]["start"])
        for place in (of_user, of_tenant):
            self.reserved[place] += amount
        assert self.reserved[of_user] + self.spent[of_user] <= event["limit_micros"]
        if "contract_micros" in event:
            assert self.reserved[of_tenant] + self.spent[of_tenant] <= event["contract_micros"]
        day = (*user, event["scene"], event["day"]["start"])
        minute = (*user, event["scene"], event["minute"]["start"])
        self.days[day] += 1
        self.minutes[minute] += 1
        assert event["policy_version"] == self.policy["version"]
        limits = self.policy["tiers"]["free"]["limits"][event["scene"]]
        month_limit = limits["credits_month_micros"] + self.topped_up[of_user]
        assert event["limit_micros"] == month_limit
        assert self.minutes[minute] <= limits["per_minute"]
        assert self.days[day] <= limits["per_day"]
        self.open[event["account_id"], event["reservation_id"]] = event

    def _resolved(self, event: dict[str, Any], spent: int, freed: int) -> None:
        held = self.open.pop((event["account_id"], event["reservation_id"]))
        assert held["amount_micros"] == spent + freed
        assert held["month"]["start"] == event["month_start"]
        assert held["task_id"] == event["task_id"]
        for place in _places(event, event["month_start"]):
            self.reserved[place] -= held["amount_micros"]
            self.spent[place] += spent
        if "charge_id" in event:
            self.charges[event["account_id"], event["charge_id"]] = spent
        if event.get("day_returned"):
            self.days[
                event["account_id"], event["user_id"], event["scene"], held["day"]["start"]
            ] -= 1


def _places(event: dict[str, Any], start: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    account, scene = event["account_id"], event["scene"]
    return (account, event["user_id"], scene, start), (account, None, scene, start)


@given(lives)
@settings(max_examples=150)
def test_a_stranger_proves_that_no_limit_was_ever_exceeded(life: Life) -> None:
    stranger = Stranger()
    for event in life.events:
        stranger.read(event)


@given(lives)
@settings(max_examples=100)
def test_the_rows_are_the_sums_of_the_events(life: Life) -> None:
    stranger = Stranger()
    for event in life.events:
        stranger.read(event)
    rows = life.story.rows
    held_by_users = sum(row.reserved_micros for _, row in rows if isinstance(row, quotas.UserMonth))
    held_by_tenants = sum(
        row.reserved_micros for _, row in rows if isinstance(row, quotas.TenantMonth)
    )
    assert held_by_users == sum(held["amount_micros"] for held in stranger.open.values())
    opened = sum(1 for _, row in rows if isinstance(row, quotas.Open))
    assert opened == len(stranger.open), "an open reservation never goes"
    of_tenant = sum(
        held["amount_micros"] for (account, _), held in stranger.open.items() if account[0] == "t"
    )
    assert held_by_tenants == of_tenant
    for key, row in rows:
        if isinstance(row, quotas.AccountRow):
            assert row.seq == stranger.seqs[key]
        if isinstance(row, quotas.UserMonth | quotas.TenantMonth):
            _check_month(key, row, stranger)


def _check_month(key: str, row: quotas.UserMonth | quotas.TenantMonth, stranger: Stranger) -> None:
    """The row of one month against the sums under its names."""
    parts = key.split("/")
    month_ms, scene, account = int(parts[1]), parts[2], parts[-1]
    user = parts[3] if isinstance(row, quotas.UserMonth) else None
    start = encode(datetime.fromtimestamp(month_ms / 1000, UTC)).decode().strip('"')
    place = (account, user, scene, start)
    assert row.reserved_micros == stranger.reserved[place]
    assert row.spent_micros == stranger.spent[place]
    assert row.topped_up_micros == stranger.topped_up[place]
    if isinstance(row, quotas.UserMonth) and row.day_start is not None:
        day = encode(row.day_start).decode().strip('"')
        assert row.day_count == stranger.days[account, user, scene, day]


@given(lives)
@settings(max_examples=100)
def test_a_replay_of_the_bytes_ends_in_the_same_rows(life: Life) -> None:
    replayed: MemoryRows[quotas.QuotaRow] = MemoryRows()
    for entry, served_ms in life.journal:
        if isinstance(entry, bytes):
            quotas.apply(replayed, QUOTA_EVENTS.decode(entry), served_ms)
        else:
            timer = TimerDue(CommandId("tick"), entry)
            quotas.on_due(replayed, timer, Now(life.story.at, served_ms))
    assert replayed.rows == life.story.rows.rows
