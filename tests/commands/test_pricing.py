"""What a task costs: the figures by hand, and the laws that hold for every price."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands.pricing import cancel_charge_micros, charge_micros, estimate_micros
from schema.policy import Price

PRICE = Price(
    base_micros=1_000_001,
    card_second_micros=50_001,
    card_seconds_max=60,
    cancel_share_base=0.5,
)
DEAREST = 1_000_001 + 60 * 50_001

prices = st.builds(
    Price,
    base_micros=st.integers(0, 10**9),
    card_second_micros=st.integers(0, 10**6),
    card_seconds_max=st.integers(1, 10_000),
    cancel_share_base=st.floats(0, 1),
)
claims = st.none() | st.floats(min_value=-10, max_value=20_000) | st.just(math.nan)
durations = st.integers(0, 10**8)


@pytest.mark.parametrize(
    ("claimed", "reserved"),
    [
        (None, DEAREST),
        (60.0, DEAREST),
        (1e300, DEAREST),
        (math.inf, DEAREST),
        (math.nan, DEAREST),
        (0.0, 1_000_001),
        (-5.0, 1_000_001),
        (1.0, 1_050_002),
        # A part of a millisecond is a whole one: 1.0001 s count as 1001 ms, 50,051.001 micros.
        (1.0001, 1_050_052),
        # 10 ms are 500.01 micros.
        (0.01, 1_000_501),
    ],
)
def test_an_estimate_is_the_base_and_the_claimed_time(claimed: float | None, reserved: int) -> None:
    assert estimate_micros(PRICE, claimed) == reserved


@pytest.mark.parametrize(
    ("card_ms", "charged"),
    [
        (0, 1_000_001),
        (1, 1_000_051),
        (10_000, 1_500_011),
        (60_000, DEAREST),
        (60_001, DEAREST),
        (10**12, DEAREST),
    ],
)
def test_a_charge_is_the_base_and_the_time_used_up_to_what_was_reserved(
    card_ms: int, charged: int
) -> None:
    assert charge_micros(PRICE, card_ms, DEAREST) == charged


@pytest.mark.parametrize(("rate", "charged"), [(499, 0), (500, 1), (501, 1), (1499, 1), (1500, 2)])
def test_half_a_micro_is_rounded_up(rate: int, charged: int) -> None:
    price = Price(base_micros=0, card_second_micros=rate, card_seconds_max=60)
    assert charge_micros(price, 1, 1_000) == charged


def test_a_cancellation_costs_its_share_of_the_base_and_the_time_that_it_ran() -> None:
    # Half of 1,000,001 is 500,000.5: rounded up.
    assert cancel_charge_micros(PRICE, 0, DEAREST) == 500_001
    assert cancel_charge_micros(PRICE, 2_000, DEAREST) == 600_003
    assert cancel_charge_micros(PRICE, 10**9, DEAREST) == DEAREST


def test_a_price_without_a_share_charges_a_cancellation_its_time_only() -> None:
    price = Price(base_micros=10**6, card_second_micros=1_000, card_seconds_max=10)
    assert cancel_charge_micros(price, 3_000, 10**7) == 3_000


@given(price=prices, claimed=claims, ms=durations)
def test_no_end_of_a_task_costs_more_than_what_was_reserved(
    price: Price, claimed: float | None, ms: int
) -> None:
    reserved = estimate_micros(price, claimed)
    dearest = price.base_micros + price.card_second_micros * price.card_seconds_max
    assert price.base_micros <= reserved <= dearest
    assert 0 <= charge_micros(price, ms, reserved) <= reserved
    assert 0 <= cancel_charge_micros(price, ms, reserved) <= reserved
    assert cancel_charge_micros(price, ms, reserved) <= charge_micros(price, ms, reserved)


@given(price=prices, one=durations, more=durations)
def test_more_time_never_costs_less(price: Price, one: int, more: int) -> None:
    assert charge_micros(price, one, 10**15) <= charge_micros(price, one + more, 10**15)
    assert cancel_charge_micros(price, one, 10**15) <= cancel_charge_micros(
        price, one + more, 10**15
    )


@given(price=prices, claimed=st.floats(0, 10_000, allow_nan=False))
def test_who_keeps_to_his_claim_is_charged_in_full(price: Price, claimed: float) -> None:
    within = min(claimed, price.card_seconds_max)
    reserved = estimate_micros(price, claimed)
    used = charge_micros(price, int(within * 1000), 10**15)
    assert used <= reserved
