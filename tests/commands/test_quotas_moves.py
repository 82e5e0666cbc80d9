"""The table of moves held against `evolve`, for every pair, and events that cannot follow."""

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from commands import quotas
from commands.decider import ImpossibleEventError
from schema import events as e
from schema.ids import ChargeId, EventId, ReservationId
from schema.words import Scene
from tests.support.quotas import ACME, ANN, ANNS, CREDIT, policy, task

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
SERVED_MS = 1_000
MONTH = e.Window(start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 4, 1, tzinfo=UTC))
DAY = e.Window(start=datetime(2026, 3, 2, tzinfo=UTC), end=datetime(2026, 3, 3, tzinfo=UTC))
MINUTE = e.Window(start=AT, end=datetime(2026, 3, 2, 12, 1, tzinfo=UTC))
RESOLVED: dict[str, Any] = {
    "task_id": task("one"),
    "fingerprint": "print-",
    "reserved_micros": 5,
    "kept_until_ms": 9_999,
}
OPEN = quotas.Open(
    task_id=task("one"),
    user_id=ANN,
    scene=Scene.AUTOCUT,
    fingerprint="print-",
    reserved_micros=5,
    month_start=MONTH.start,
    day_start=DAY.start,
)
RESERVATIONS: dict[Any, Any] = {
    None: None,
    quotas.Open: OPEN,
    quotas.Committed: quotas.Committed(**RESOLVED),
    quotas.Released: quotas.Released(**RESOLVED),
}
CHARGES: dict[Any, Any] = {
    None: None,
    quotas.Charged: quotas.Charged(
        user_id=ANN,
        scene=Scene.AUTOCUT,
        amount_micros=3,
        month_start=MONTH.start,
        kept_until_ms=9_999,
    ),
    quotas.Refunded: quotas.Refunded(event_id=EventId("x.0"), kept_until_ms=9_999),
}
USED = quotas.UserMonth(
    reserved_micros=5,
    spent_micros=3,
    open_count=1,
    day_start=DAY.start,
    day_count=2,
    minute_start=AT,
    minute_count=2,
    kept_until_ms=9_999,
)
CONTRACT = quotas.TenantMonth(reserved_micros=5, spent_micros=3, open_count=1, kept_until_ms=9_999)


def head(seq: int = 8, event_id: str = "asked.0") -> dict[str, Any]:
    return {"event_id": EventId(event_id), "seq": seq, "at": AT, "account_id": ANNS}


def reserved(**changes: Any) -> e.QuotaReserved:  # noqa: ANN401 - fields of the event
    fields: dict[str, Any] = {
        **head(),
        "reservation_id": ReservationId("r"),
        "task_id": task("one"),
        "user_id": ANN,
        "scene": Scene.AUTOCUT,
        "fingerprint": "print-",
        "amount_micros": 5,
        "month": MONTH,
        "day": DAY,
        "minute": MINUTE,
        "limit_micros": 300 * CREDIT,
        "policy_version": 1,
        **changes,
    }
    return e.QuotaReserved(**fields)


def committed(**changes: Any) -> e.QuotaCommitted:  # noqa: ANN401 - fields of the event
    fields: dict[str, Any] = {
        **head(),
        "reservation_id": ReservationId("r"),
        "charge_id": ChargeId("r"),
        "task_id": task("one"),
        "user_id": ANN,
        "scene": Scene.AUTOCUT,
        "amount_micros": 3,
        "released_micros": 2,
        "month_start": MONTH.start,
        **changes,
    }
    return e.QuotaCommitted(**fields)


def released(**changes: Any) -> e.QuotaReleased:  # noqa: ANN401 - fields of the event
    fields: dict[str, Any] = {
        **head(),
        "reservation_id": ReservationId("r"),
        "task_id": task("one"),
        "user_id": ANN,
        "scene": Scene.AUTOCUT,
        "amount_micros": 5,
        "month_start": MONTH.start,
        "day_returned": True,
        **changes,
    }
    return e.QuotaReleased(**fields)


def refunded(**changes: Any) -> e.ChargeRefunded:  # noqa: ANN401 - fields of the event
    fields: dict[str, Any] = {
        **head(),
        "charge_id": ChargeId("r"),
        "user_id": ANN,
        "scene": Scene.AUTOCUT,
        "amount_micros": 3,
        "month_start": MONTH.start,
        "reason": "lost",
        "who": "olga",
        **changes,
    }
    return e.ChargeRefunded(**fields)


def topped_up(**changes: Any) -> e.QuotaToppedUp:  # noqa: ANN401 - fields of the event
    fields: dict[str, Any] = {
        **head(),
        "user_id": ANN,
        "scene": Scene.AUTOCUT,
        "amount_micros": 5,
        "month": MONTH,
        "who": "olga",
        "why": "",
        **changes,
    }
    return e.QuotaToppedUp(**fields)


def adopted(version: int, seq: int) -> e.PolicyAdopted:
    return e.PolicyAdopted(
        event_id=EventId("p.0"), seq=seq, at=AT, policy=policy(version), who="", why=""
    )


def books(**changes: Any) -> quotas.Books:  # noqa: ANN401 - rows
    start = quotas.Books(
        policy=quotas.PolicyRow(policy=policy(3), seq=4),
        account=quotas.AccountRow(seq=7),
        user=USED,
        tenant=CONTRACT,
    )
    return start._replace(**changes)


@pytest.mark.parametrize(
    ("held", "event"), list(product(RESERVATIONS, [reserved(), committed(), released()]))
)
def test_a_reservation_moves_as_the_table_says(held: Any, event: Any) -> None:  # noqa: ANN401
    before = books(reservation=RESERVATIONS[held])
    wanted = quotas.TRANSITIONS.get((held, type(event)))
    if wanted is None:
        with pytest.raises(ImpossibleEventError):
            quotas.evolve(before, event, SERVED_MS)
    else:
        assert type(quotas.evolve(before, event, SERVED_MS).reservation) is wanted


@pytest.mark.parametrize("held", CHARGES)
def test_a_charge_moves_as_the_table_says(held: Any) -> None:  # noqa: ANN401
    before = books(charge=CHARGES[held])
    wanted = quotas.TRANSITIONS.get((held, e.ChargeRefunded))
    if wanted is None:
        with pytest.raises(ImpossibleEventError):
            quotas.evolve(before, refunded(), SERVED_MS)
    else:
        assert type(quotas.evolve(before, refunded(), SERVED_MS).charge) is wanted


def test_the_table_names_every_event_that_moves_a_reservation_or_a_charge() -> None:
    moved = {event for _, event in quotas.TRANSITIONS}
    standing = {e.QuotaToppedUp, e.PolicyAdopted}
    assert moved | standing == set(e.QuotaEvent.__args__)


@pytest.mark.parametrize(
    ("before", "event"),
    [
        (books(), reserved(seq=7)),
        (books(), reserved(seq=9)),
        (books(), topped_up(seq=9)),
        (books(reservation=OPEN), committed(seq=7)),
        (books(reservation=OPEN), committed(released_micros=1)),
        (books(reservation=OPEN), released(amount_micros=4)),
        (books(reservation=OPEN, user=quotas.INITIAL.user), committed()),
        (books(reservation=OPEN, user=quotas.INITIAL.user), released(day_returned=False)),
        (books(reservation=OPEN, tenant=quotas.TenantMonth()), committed()),
        (
            books(
                reservation=OPEN,
                user=quotas.UserMonth(
                    reserved_micros=5, open_count=1, day_start=MONTH.start, day_count=1
                ),
            ),
            released(),
        ),
        (
            books(
                reservation=OPEN,
                user=quotas.UserMonth(
                    reserved_micros=5, open_count=1, day_start=DAY.start, day_count=0
                ),
            ),
            released(),
        ),
        (books(charge=CHARGES[quotas.Charged]), refunded(amount_micros=4)),
        (books(charge=CHARGES[quotas.Charged], user=quotas.INITIAL.user), refunded()),
        (books(charge=CHARGES[quotas.Charged], tenant=quotas.TenantMonth()), refunded()),
        (
            books(
                top_up=quotas.ToppedUp(
                    user_id=ANN, scene=Scene.AUTOCUT, amount_micros=5, kept_until_ms=9_999
                )
            ),
            topped_up(),
        ),
        (books(tenant=None), topped_up(user_id=None)),
        (books(), adopted(3, 5)),
        (books(), adopted(2, 5)),
        (books(), adopted(4, 4)),
        (books(), adopted(4, 6)),
        (quotas.INITIAL, adopted(1, 2)),
    ],
)
def test_what_cannot_follow_stops_the_partition(before: quotas.Books, event: e.QuotaEvent) -> None:
    with pytest.raises(ImpossibleEventError):
        quotas.evolve(before, event, SERVED_MS)


def test_a_policy_is_adopted_into_the_books() -> None:
    after = quotas.evolve(quotas.INITIAL, adopted(3, 1), SERVED_MS)
    assert after == quotas.INITIAL._replace(policy=quotas.PolicyRow(policy=policy(3), seq=1))


def test_only_a_tenant_has_a_contract() -> None:
    assert quotas.evolve(books(tenant=None), reserved(), SERVED_MS).tenant is None
    assert ACME in policy().tenants
