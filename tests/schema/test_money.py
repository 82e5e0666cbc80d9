"""Rounding: exact integers, halves up, and amounts as people read them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.money import MICROS, PPM, in_credits, share_micros, times_ms

amounts = st.integers(0, 10**15)


@given(rate=st.integers(0, 10**12), ms=st.integers(0, 10**12))
def test_a_rate_over_a_time_is_the_nearest_micro_and_a_half_is_up(rate: int, ms: int) -> None:
    exact = Fraction(rate * ms, 1000)
    assert Fraction(-1, 2) < times_ms(rate, ms) - exact <= Fraction(1, 2)


@given(amount=amounts, share=st.integers(0, PPM))
def test_a_share_is_the_nearest_micro_and_a_half_is_up(amount: int, share: int) -> None:
    exact = Fraction(amount * share, PPM)
    assert Fraction(-1, 2) < share_micros(amount, share) - exact <= Fraction(1, 2)
    assert share_micros(amount, share) <= amount


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0"),
        (1, "0.000001"),
        (MICROS, "1"),
        (10 * MICROS, "10"),
        (100 * MICROS + 500_000, "100.5"),
        (-12_500_000, "-12.5"),
        (-1, "-0.000001"),
    ],
)
def test_an_amount_is_read_without_trailing_zeros(micros: int, text: str) -> None:
    assert in_credits(micros) == text


@given(micros=st.integers(-(10**15), 10**15))
def test_an_amount_as_text_is_the_same_amount(micros: int) -> None:
    assert Fraction(in_credits(micros)) * MICROS == micros
