"""The edge and the pipelines agree on what a scene's parameters are."""

from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from api import contracts
from api.tasks import make_cursor, read_cursor
from schema.failures import FailureClass
from schema.scenes.autocut import AutocutParameters
from schema.scenes.rehearsal import RehearsalParameters
from schema.words import Scene

PAIRS: list[tuple[type[BaseModel], type[msgspec.Struct]]] = [
    (contracts.AutocutParameters, AutocutParameters),
    (contracts.RehearsalParameters, RehearsalParameters),
]


@pytest.mark.parametrize(("edge", "pipeline"), PAIRS, ids=["autocut", "rehearsal"])
def test_the_edge_knows_the_same_parameters_with_the_same_defaults(
    edge: type[BaseModel], pipeline: type[msgspec.Struct]
) -> None:
    here = {name: field.default for name, field in edge.model_fields.items()}
    there = {field.name: field.default for field in msgspec.structs.fields(pipeline)}
    assert set(here) == set(there)
    for name, default in here.items():
        same = list(there[name]) if isinstance(there[name], tuple) else there[name]
        if isinstance(same, list | int | float | bool | None):
            assert default == same, name


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "seconds": st.floats(0, 86_400),
            "steps": st.integers(1, 100_000),
            "reports": st.integers(0, 100_000),
            "fail": st.sampled_from([None, *FailureClass]),
            "fail_on_attempts": st.lists(st.integers(1, 1_000), max_size=5),
            "crash": st.booleans(),
            "no_op": st.booleans(),
        },
    )
)
def test_what_the_edge_takes_the_pipeline_takes(parameters: dict[str, Any]) -> None:
    contracts.RehearsalParameters.model_validate(parameters)
    msgspec.convert(parameters, RehearsalParameters)


def test_every_scene_has_a_submission() -> None:
    union = get_args(contracts.Submission)[0]
    scenes = [
        scene
        for member in get_args(union)
        for scene in get_args(member.model_fields["scene"].annotation)
    ]
    assert sorted(scenes) == sorted(Scene)


def test_equal_bodies_have_one_fingerprint_and_others_have_not() -> None:
    key = contracts.fingerprint_key(b"a secret")
    one = contracts.fingerprint({"a": 1, "b": {"c": [1, 2], "d": None}}, key)
    same = contracts.fingerprint({"b": {"d": None, "c": [1, 2]}, "a": 1}, key)
    order = contracts.fingerprint({"a": 1, "b": {"c": [2, 1], "d": None}}, key)
    elsewhere = contracts.fingerprint(
        {"a": 1, "b": {"c": [1, 2], "d": None}}, contracts.fingerprint_key(b"another")
    )
    assert one == same
    assert len({one, order, elsewhere}) == 3


def test_a_request_cannot_be_changed_or_guessed() -> None:
    with pytest.raises(ValidationError):
        contracts.Request({"scene": "rehearsal", "seq": 1}, b"key")


@given(st.datetimes(), st.from_regex(r"[0-9a-z]{26}[0-9]{6}", fullmatch=True))
def test_a_cursor_leads_back_to_its_place(at: datetime, task_id: str) -> None:
    moment = datetime(2026, 1, 1, at.hour, at.minute, at.second, at.microsecond, tzinfo=UTC)
    cursor = make_cursor({"created_at": moment, "task_id": task_id})
    assert read_cursor(cursor) == (moment, task_id)
