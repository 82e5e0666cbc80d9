"""What stores tell: each one's shape is read, whatever else is sent comes to nothing."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.notifications import (
    RECORDS_MAX,
    Change,
    ContentObject,
    Hint,
    Ignored,
    Named,
    Notification,
    ResultObject,
    SubscriptionError,
    UploadObject,
    decode,
    read,
)
from api.strict_json import NotStrictJsonError
from schema.ids import AccountId, MaterialId, TaskId, TenantId, UserId
from schema.objects import content_key, result_key, upload_key
from tests.api import store_words as w
from tests.api.store_words import BUCKET, Message

USER = UserId("0123456789abcdefghjk000007")
MATERIAL = MaterialId("0123456789abcdefghjkmnpqrs000007")
TASK = TaskId("zyxwvtsrqpnmkjhgfedcba9876000007")
SHA = "ab" * 32
UPLOAD = upload_key(USER, MATERIAL)
RESULT = result_key(TASK, 2, "film.mp4")
CONTENT = content_key(TenantId("acme@example:1"), USER, SHA)


def told(message: Message) -> Notification:
    return read(decode(json.dumps(message).encode()), BUCKET)


@pytest.mark.parametrize(
    "message",
    [
        w.aws(UPLOAD),
        w.minio(UPLOAD),
        w.ceph(UPLOAD),
        w.seaweedfs(UPLOAD),
        w.seaweedfs(UPLOAD, "update"),
        w.event_bridge(UPLOAD),
        w.sqs(w.aws(UPLOAD)),
        w.sqs(w.event_bridge(UPLOAD)),
        w.sns(w.aws(UPLOAD)),
        w.sqs(w.sns(w.aws(UPLOAD))),
        {"Records": [{"EventSource": "aws:sns", "Sns": w.sns(w.aws(UPLOAD))}]},
    ],
)
def test_every_store_tells_that_an_upload_has_come(message: Message) -> None:
    found = told(message)
    assert found.hints == (Hint(Change.CREATED, UPLOAD, UploadObject(USER, MATERIAL)),)
    assert found.ignored.total() == 0


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (RESULT, ResultObject(TASK)),
        (CONTENT, ContentObject(AccountId("t-acme@example:1"), SHA)),
        (
            content_key(TenantId(""), USER, SHA),
            ContentObject(AccountId(f"u-{USER}"), SHA),
        ),
    ],
)
@pytest.mark.parametrize(
    ("message", "event"),
    [
        (w.aws, "ObjectRemoved:Delete"),
        (w.aws, "ObjectRemoved:DeleteMarkerCreated"),
        (w.aws, "LifecycleExpiration:Delete"),
        (w.minio, "s3:ObjectRemoved:Delete"),
        (w.ceph, "ObjectLifecycle:Expiration:Current"),
        (w.event_bridge, "Object Deleted"),
        (w.seaweedfs, "delete"),
    ],
)
def test_every_store_tells_that_something_has_gone(
    message: Callable[[str, str], Message], event: str, key: str, named: Named
) -> None:
    assert told(message(key, event)).hints == (Hint(Change.REMOVED, key, named),)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (w.aws(RESULT), Ignored.NO_MATTER),  # stored, as it should be
        (w.aws(UPLOAD, "ObjectRemoved:Delete"), Ignored.NO_MATTER),  # joined, read and forgotten
        (w.aws(UPLOAD, "ObjectTagging:Put"), Ignored.EVENT),
        (w.aws(UPLOAD, "Reduced"), Ignored.EVENT),
        (w.event_bridge(UPLOAD, "Object Restore Completed"), Ignored.EVENT),
        (w.seaweedfs(UPLOAD, "rename"), Ignored.EVENT),
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": BUCKET}, Ignored.EVENT),
        (w.aws("elsewhere/cat.png"), Ignored.KEY),
        (w.aws("pieces/x"), Ignored.KEY),
        (w.seaweedfs(f"uploads/{USER}"), Ignored.KEY),  # a folder
        (w.seaweedfs(".uploads/8189d1b5_be3b5c59/0001_0e78f8ac.part"), Ignored.KEY),
        (w.seaweedfs(UPLOAD) | {"key": f"/topics/{UPLOAD}"}, Ignored.BUCKET),
        (w.seaweedfs(UPLOAD) | {"key": f"/buckets/other/{UPLOAD}"}, Ignored.BUCKET),
        (w.seaweedfs(UPLOAD) | {"key": UPLOAD}, Ignored.BUCKET),
        (w.sns({"Records": "none"}), Ignored.SHAPE),
        (w.sns({}, Message="hello"), Ignored.SHAPE),
        (w.sns({}, Message='{"a": 1, "a": 2}'), Ignored.SHAPE),
        (w.sns({}, Message="[" * 1000), Ignored.SHAPE),
        (w.sns(w.sns(w.sns(w.sns(w.aws(UPLOAD))))), Ignored.SHAPE),
        (w.aws(UPLOAD, s3=None), Ignored.SHAPE),
        (w.aws(UPLOAD, s3={"bucket": {"name": BUCKET}, "object": {"key": 7}}), Ignored.SHAPE),
        ({"Records": [None]}, Ignored.SHAPE),
        ({"Type": "UnsubscribeConfirmation"}, Ignored.SHAPE),
        ({}, Ignored.SHAPE),
    ],
)
def test_what_tells_nothing_is_counted_by_the_reason(message: Message, why: Ignored) -> None:
    found = told(message)
    assert (found.hints, dict(found.ignored)) == ((), {why: 1})


@pytest.mark.parametrize("document", [None, 7, "Records", [], [w.aws(UPLOAD)]])
def test_json_of_another_kind_is_no_message(document: object) -> None:
    assert dict(read(document, BUCKET).ignored) == {Ignored.SHAPE: 1}


def test_another_bucket_is_not_ours_though_its_names_are() -> None:
    assert dict(read(w.aws(UPLOAD), "another").ignored) == {Ignored.BUCKET: 1}


@pytest.mark.parametrize(
    "key",
    [
        f"uploads/{USER}/{MATERIAL}/x",
        f"uploads//{USER}/{MATERIAL}",
        f"uploads/../uploads/{USER}/{MATERIAL}",
        f"uploads/{USER}/{MATERIAL}\n",
        f"uploads/{USER}/{MATERIAL}\x00",
        f"uploads/{USER}/{MATERIAL.upper()}",
        f"uploads/{USER}/{MATERIAL[:-6]}٣٣٣٣٣٣",
        f"uploads/{USER[:-1]}/{MATERIAL}",
        f"results/{TASK}/x/film.mp4",
        f"results/{TASK}/{'9' * 19}/film.mp4",
        f"results/{TASK}/²/film.mp4",
        f"results/{TASK}/1/",
        f"results/{TASK}/1/a/b",
        f"contents/x-acme/{SHA}",
        f"contents/t-/{SHA}",
        f"contents/t-acme/{SHA.upper()}",
        f"contents/t-a/b/{SHA}",
        "",
        "/",
    ],
)
def test_a_name_that_none_of_our_objects_has_ends_at_the_door(key: str) -> None:
    for message in (w.aws(key), w.ceph(key, "ObjectRemoved:Delete"), w.minio(key)):
        assert dict(told_raw(message).ignored) == {Ignored.KEY: 1}


def told_raw(message: Message) -> Notification:
    """As a parser sees it: what JSON cannot carry as it is comes encoded."""
    return read(message, BUCKET)


def test_a_message_tells_each_change_once_and_no_more_than_it_may() -> None:
    one = w.aws(UPLOAD)["Records"]
    others = [
        w.aws(upload_key(USER, MaterialId(f"{n:026d}000007")))["Records"][0]
        for n in range(RECORDS_MAX)
    ]
    found = told({"Records": one + one + others})
    assert len(found.hints) == RECORDS_MAX - 1
    assert dict(found.ignored) == {Ignored.SETTLED: 1, Ignored.TOO_MANY: 2}


def test_what_is_left_of_a_message_counts_though_its_other_records_are_nonsense() -> None:
    found = told({"Records": [{}, *w.aws(UPLOAD)["Records"], 7]})
    assert (len(found.hints), dict(found.ignored)) == (1, {Ignored.SHAPE: 2})


def test_a_subscription_is_somebodys_to_confirm_who_is_told_topic_and_token() -> None:
    with pytest.raises(SubscriptionError) as asked:
        told(w.subscription())
    assert asked.value.topic_arn == "arn:aws:sns:eu-west-1:123456789012:cutlog-uploads"
    assert asked.value.token == "2336412f37fb687f5d51e6e2425c464de257"


@pytest.mark.parametrize(
    "changes", [{"TopicArn": "$(reboot)", "Token": "a b"}, {"TopicArn": 7, "Token": None}]
)
def test_a_subscription_of_nonsense_tells_nothing_on(changes: dict[str, Any]) -> None:
    with pytest.raises(SubscriptionError) as asked:
        told(w.subscription() | changes)
    assert (asked.value.topic_arn, asked.value.token) == ("", "")


def test_a_number_that_no_store_sends_is_refused() -> None:
    assert decode(b"18446744073709551615") == 2**64 - 1
    with pytest.raises(NotStrictJsonError):
        decode(b"18446744073709551616")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Records",
                    "Type",
                    "Message",
                    "s3",
                    "bucket",
                    "object",
                    "key",
                    "name",
                    "detail",
                    "detail-type",
                    "eventName",
                    "event_type",
                    "message",
                    "body",
                    "eventSource",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_is_sent_is_read_or_ignored(document: Any) -> None:  # noqa: ANN401
    with contextlib.suppress(SubscriptionError):
        found = read(document, BUCKET)
        assert found.hints == ()
