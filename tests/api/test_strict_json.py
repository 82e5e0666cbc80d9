"""Strict JSON: what passes means one thing to every reader."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.strict_json import DEPTH_MAX, NotStrictJsonError, decode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(DOCUMENTS)
def test_what_is_strict_json_comes_through_unchanged(document: object) -> None:
    assert decode(json.dumps(document).encode()) == document


@given(st.binary(max_size=60))
def test_any_bytes_are_a_document_or_refused(body: bytes) -> None:
    with contextlib.suppress(NotStrictJsonError):
        decode(body)


@pytest.mark.parametrize("extra", [0, 1])
def test_nesting_is_bounded_exactly(extra: int) -> None:
    depth = DEPTH_MAX + extra
    body = b"[" * depth + b"]" * depth
    if extra:
        with pytest.raises(NotStrictJsonError, match="deeper"):
            decode(body)
    else:
        decode(body)
