"""What object stores send: a message of each, around the name of an object."""

import json
from typing import Any
from urllib.parse import quote_plus

BUCKET = "cutlog"
Message = dict[str, Any]


def aws(key: str, event: str = "ObjectCreated:CompleteMultipartUpload", **changes: Any) -> Message:  # noqa: ANN401
    """S3's own, as a queue or a topic gets it."""
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-west-1",
        "eventTime": "2026-12-01T03:02:07.083Z",
        "eventName": event,
        "userIdentity": {"principalId": "AWS:AIDAINPONIXQXHT3IKHL2"},
        "requestParameters": {"sourceIPAddress": "203.0.113.7"},
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8/I"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "uploads",
            "bucket": {
                "name": BUCKET,
                "ownerIdentity": {"principalId": "A3NL1KOZZKExample"},
                "arn": f"arn:aws:s3:::{BUCKET}",
            },
            "object": {
                "key": quote_plus(key, safe="/"),
                "size": 5242882,
                "eTag": "8189d1b50ef72ea4fce3197a761be854-2",
                "sequencer": "0055AED6DCD90281E5",
            },
        },
    }
    return {"Records": [record | changes]}


def minio(key: str, event: str = "s3:ObjectCreated:CompleteMultipartUpload") -> Message:
    """MinIO's webhook: the slashes of the key are encoded too, and it stands at the top again."""
    record = aws(key, event)["Records"][0] | {
        "eventSource": "minio:s3",
        "awsRegion": "",
        "source": {"host": "203.0.113.7", "port": "", "userAgent": "aiobotocore"},
    }
    record["s3"]["object"]["key"] = quote_plus(key)
    return {"EventName": event, "Key": f"{BUCKET}/{key}", "Records": [record]}


def ceph(key: str, event: str = "ObjectCreated:CompleteMultipartUpload") -> Message:
    """RGW's push: as S3's, the key as it is."""
    record = aws(key, event)["Records"][0] | {
        "eventSource": "ceph:s3",
        "eventId": "1796094127.83051415.8189d1b50ef72ea4",
        "opaqueData": "",
    }
    record["s3"]["object"] |= {"key": key, "metadata": [], "tags": [], "versionId": ""}
    return {"Records": [record]}


def sns(inner: Message, **changes: Any) -> Message:  # noqa: ANN401
    """A topic's message to an address."""
    return {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": "arn:aws:sns:eu-west-1:123456789012:cutlog-uploads",
        "Subject": "Amazon S3 Notification",
        "Message": json.dumps(inner),
        "Timestamp": "2026-12-01T03:02:07.083Z",
        "SignatureVersion": "1",
        "Signature": "EXAMPLE",
        "SigningCertURL": "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService.pem",
        "UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe",
        **changes,
    }


def subscription() -> Message:
    """A topic asks whether its messages are wanted."""
    return {
        "Type": "SubscriptionConfirmation",
        "MessageId": "165545c9-2a5c-472c-8df2-7ff2be2b3b1b",
        "Token": "2336412f37fb687f5d51e6e2425c464de257",
        "TopicArn": "arn:aws:sns:eu-west-1:123456789012:cutlog-uploads",
        "Message": "You have chosen to subscribe to the topic.",
        "SubscribeURL": "http://127.0.0.1:9/?Action=ConfirmSubscription",
        "Timestamp": "2026-12-01T03:02:07.083Z",
    }


def sqs(inner: Message) -> Message:
    """A queue's messages, as a forwarder is handed them."""
    record = {"messageId": "19dd0b57", "eventSource": "aws:sqs", "body": json.dumps(inner)}
    return {"Records": [record]}


def event_bridge(key: str, kind: str = "Object Created") -> Message:
    """EventBridge: another shape, and the key as it is."""
    return {
        "version": "0",
        "id": "c9888434-815d-c6f4-9fc2-4dd7bdeccaaf",
        "detail-type": kind,
        "source": "aws.s3",
        "account": "123456789012",
        "time": "2026-12-01T03:02:07Z",
        "region": "eu-west-1",
        "resources": [f"arn:aws:s3:::{BUCKET}"],
        "detail": {
            "version": "0",
            "bucket": {"name": BUCKET},
            "object": {"key": key, "size": 5242882, "etag": "8189d1b5-2", "sequencer": "0064"},
            "request-id": "XRRTKJXSZQCWNQR1",
            "requester": "123456789012",
            "source-ip-address": "203.0.113.7",
            "reason": "CompleteMultipartUpload",
        },
    }


def seaweedfs(key: str, kind: str = "create") -> Message:
    """A change of a filer, as 4.48 sent it: an inode of 64 bits without a sign."""
    entry = {
        "name": key.rpartition("/")[2],
        "chunks": [
            {
                "size": 2,
                "modified_ts_ns": 1796094127054254070,
                "e_tag": "L7HFz1iGe1u8mhsUWobzoA==",
                "fid": {"volume_id": 1, "file_key": 3, "cookie": 967512516},
            }
        ],
        "attributes": {
            "file_size": 2,
            "mtime": 1796094127,
            "mime": "image/png",
            "inode": 13144166145109212225,
            "ctime": -62135596800,
        },
        "extended": {"X-Seaweedfs-Multipart-Parts-Count": "Mg=="},
    }
    name = "old_entry" if kind == "delete" else "new_entry"
    return {
        "event_type": kind,
        "key": f"/buckets/{BUCKET}/{key}",
        "message": {name: entry, "delete_chunks": True, "signatures": [-6479317]},
    }
