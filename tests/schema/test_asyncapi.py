"""The generated document is the one that is checked in, and it is whole."""

import json
from pathlib import Path
from typing import Any

from schema import asyncapi
from schema.topics import Topic
from tests.schema.samples import messages

CHECKED_IN = Path(__file__).parent.parent.parent / "docs" / "asyncapi.json"


def test_the_document_that_is_checked_in_is_the_generated_one() -> None:
    """`python -m schema.asyncapi > docs/asyncapi.json` makes it anew."""
    assert CHECKED_IN.read_text() == asyncapi.render()


def test_every_topic_and_every_message_is_told_and_every_reference_leads_somewhere() -> None:
    document = json.loads(asyncapi.render())
    assert set(document["channels"]) == {topic.value for topic in Topic}
    assert set(document["components"]["messages"]) == set(messages())
    for reference in _references(document):
        place = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def _references(node: Any) -> list[str]:  # noqa: ANN401 - JSON
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [one for child in node.values() for one in _references(child)]
    if isinstance(node, list):
        return [one for child in node for one in _references(child)]
    return []
