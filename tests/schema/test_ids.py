"""Ids are functions of what they name, and never run together."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.ids import (
    TASK_ID_LENGTH,
    CommandId,
    TenantId,
    UserId,
    account_of,
    command_id_of,
    event_id_of,
    follow_up_id,
    material_id_of,
    pseudonym,
    reservation_id_of,
    shard_of,
    task_id_of,
)

plain = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), max_size=12)
TENANT, USER = TenantId("acme"), UserId("0123456789abcdefghjk004711")


def test_ids_that_stand_in_the_log_never_change() -> None:
    assert task_id_of(TENANT, USER, "key-1") == "6fbm1qa8fg7k8k9cxprasmfp8t004711"
    assert pseudonym(b"secret", TENANT, "alice") == "0526n256ywf7n8fya0te522468"
    assert material_id_of(USER, "0" * 64, "clip.mp4") == "7axnvse9cr6yy6rwfaxsn2kv0r004711"
    assert command_id_of("cancel", "t", "k") == "cancel-7xzra5mnh3h0s0wb2c0s933ph4"


def test_what_follows_is_named_by_what_it_follows_from() -> None:
    event = event_id_of(CommandId("c"), 2)
    assert (event, follow_up_id(event, "r"), reservation_id_of(CommandId("c"))) == (
        "c.2",
        "c.2r",
        "c",
    )
    # Suffixes begin with a letter: what follows event 1 is never taken for something of event 10.
    with pytest.raises(ValueError, match="letter"):
        follow_up_id(event, "0")


@given(plain, plain, plain, plain)
def test_the_same_words_name_the_same_and_other_words_another(
    sub: str, other: str, key: str, another: str
) -> None:
    user, user2 = pseudonym(b"s", TENANT, sub), pseudonym(b"s", TENANT, other)
    assert (user == user2) == (sub == other)
    first, second = task_id_of(TENANT, user, key), task_id_of(TENANT, user, another)
    assert (first == second) == (key == another)


@given(plain, plain)
def test_parts_do_not_run_together(left: str, right: str) -> None:
    if left and right:
        assert command_id_of("k", left, right) != command_id_of("k", left + right)
        assert pseudonym(b"s", TenantId(left), right) != pseudonym(b"s", TenantId(""), left + right)


@given(plain, plain)
def test_a_task_and_a_material_end_with_the_shard_of_their_user(sub: str, key: str) -> None:
    user = pseudonym(b"s", TENANT, sub)
    task, material = task_id_of(TENANT, user, key), material_id_of(user, key, key)
    assert re.fullmatch(r"[0-9a-hjkmnp-tv-z]{20}[0-9]{6}", user)
    assert len(task) == len(material) == TASK_ID_LENGTH
    assert shard_of(user) == shard_of(task) == shard_of(material) == int(user[-6:])


def test_the_secret_of_the_installation_makes_the_pseudonym() -> None:
    assert pseudonym(b"a", TENANT, "alice") != pseudonym(b"b", TENANT, "alice")
    assert pseudonym(b"a", TENANT, "alice") != pseudonym(b"a", TenantId("other"), "alice")


@pytest.mark.parametrize(("tenant", "account"), [("acme", "t-acme"), ("", f"u-{USER}")])
def test_an_account_is_a_tenant_or_a_user_without_one(tenant: str, account: str) -> None:
    assert account_of(TenantId(tenant), USER) == account
