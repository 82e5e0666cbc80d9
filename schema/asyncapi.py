"""The contract as an AsyncAPI 3 document: `python -m schema.asyncapi > docs/asyncapi.json`.

Generated from the messages themselves and checked in; a test compares the two.
"""

import sys
from typing import Any, Final, get_args

import msgspec

from schema.codec import CODECS
from schema.topics import SPECS, Topic, TopicSpec

_REFERENCE: Final = "#/components/schemas/{name}"
_TAG_OF_TOPIC: Final = {
    Topic.JOURNAL: "What each transaction of a partition applied; the engine's own.",
}


def document() -> dict[str, Any]:
    """The whole document; channels are the topics, messages stand under their wire names."""
    kinds = {tag: kind for topic in CODECS for tag, kind in _messages(topic).items()}
    _, schemas = msgspec.json.schema_components(kinds.values(), ref_template=_REFERENCE)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Cutlog",
            "version": "1",
            "description": "Commands become events, each key has one writer, events become views.",
        },
        "defaultContentType": "application/json",
        "channels": {topic.value: _channel(topic, spec) for topic, spec in SPECS.items()},
        "components": {
            "messages": {tag: _message(tag, kind) for tag, kind in sorted(kinds.items())},
            "schemas": dict(sorted(schemas.items())),
        },
    }


def _messages(topic: Topic) -> dict[str, type[msgspec.Struct]]:
    if topic not in CODECS:
        return {}
    union = CODECS[topic].union
    kinds: tuple[type[msgspec.Struct], ...] = get_args(union) or (union,)
    return {str(kind.__struct_config__.tag): kind for kind in kinds}


def _channel(topic: Topic, spec: TopicSpec) -> dict[str, Any]:
    clock = "the broker's clock" if spec.append_time else "the writer's log time"
    told = _TAG_OF_TOPIC.get(topic, "")
    return {
        "address": topic.value,
        "description": f"{told} Partition by {spec.partition_by}; stamped with {clock}.".strip(),
        "messages": {
            tag: {"$ref": f"#/components/messages/{tag}"} for tag in sorted(_messages(topic))
        },
        "bindings": {"kafka": {"topicConfiguration": {"retention.ms": spec.retention_ms}}},
    }


def _message(tag: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": tag,
        "title": kind.__name__,
        "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
    }
    # A class without words of its own would inherit those of its base.
    if "__doc__" in vars(kind) and kind.__doc__:
        described["summary"] = kind.__doc__.strip().partition("\n")[0]
    return described


def render() -> str:
    """The document as text, keys in a fixed order."""
    text = msgspec.json.format(msgspec.json.encode(document()), indent=2).decode()
    return f"{text}\n"


if __name__ == "__main__":
    sys.stdout.write(render())
