"""Three requests of Kafka's protocol that aiokafka lacks; shapes as in Kafka's message definitions.

DescribeTransactions (65), DescribeProducers (61), WriteTxnMarkers (27).
"""

# aiokafka ships no types; what it hands out is unknown, and stays so.
# mypy: disallow-subclassing-any=False
# ruff: noqa: N801, ANN401
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false
# pyright: reportAssignmentType=false, reportIncompatibleMethodOverride=false

from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

_TEXT = CompactString("utf-8")
_TAGS = ("tags", TaggedFields)


class DescribeTransactionsResponse_v0(Response):
    API_KEY = 65
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "transaction_states",
            CompactArray(
                ("error_code", Int16),
                ("transactional_id", _TEXT),
                ("transaction_state", _TEXT),
                ("transaction_timeout_ms", Int32),
                ("transaction_start_time_ms", Int64),
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                (
                    "topics",
                    CompactArray(("topic", _TEXT), ("partitions", CompactArray(Int32)), _TAGS),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class DescribeTransactionsRequest_v0(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 65
    API_VERSION = 0
    RESPONSE_TYPE = DescribeTransactionsResponse_v0
    SCHEMA = Schema(("transactional_ids", CompactArray(_TEXT)), _TAGS)


class DescribeTransactionsRequest(Request[DescribeTransactionsRequest_v0]):
    API_KEY = 65

    def __init__(self, transactional_ids: list[str]) -> None:
        self._transactional_ids = transactional_ids

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._transactional_ids, {})


class DescribeProducersResponse_v0(Response):
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", _TEXT),
                (
                    "partitions",
                    CompactArray(
                        ("partition_index", Int32),
                        ("error_code", Int16),
                        ("error_message", _TEXT),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                _TAGS,
                            ),
                        ),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class DescribeProducersRequest_v0(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 61
    API_VERSION = 0
    RESPONSE_TYPE = DescribeProducersResponse_v0
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("name", _TEXT), ("partition_indexes", CompactArray(Int32)), _TAGS),
        ),
        _TAGS,
    )


class DescribeProducersRequest(Request[DescribeProducersRequest_v0]):
    API_KEY = 61

    def __init__(self, topics: list[tuple[str, list[int], dict[int, bytes]]]) -> None:
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._topics, {})


class WriteTxnMarkersResponse_v1(Response):
    API_KEY = 27
    API_VERSION = 1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                (
                    "topics",
                    CompactArray(
                        ("name", _TEXT),
                        (
                            "partitions",
                            CompactArray(("partition_index", Int32), ("error_code", Int16), _TAGS),
                        ),
                        _TAGS,
                    ),
                ),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class WriteTxnMarkersRequest_v1(RequestStruct):
    FLEXIBLE_VERSION = True
    API_KEY = 27
    API_VERSION = 1
    RESPONSE_TYPE = WriteTxnMarkersResponse_v1
    SCHEMA = Schema(
        (
            "markers",
            CompactArray(
                ("producer_id", Int64),
                ("producer_epoch", Int16),
                ("transaction_result", Boolean),
                (
                    "topics",
                    CompactArray(
                        ("name", _TEXT), ("partition_indexes", CompactArray(Int32)), _TAGS
                    ),
                ),
                ("coordinator_epoch", Int32),
                _TAGS,
            ),
        ),
        _TAGS,
    )


class WriteTxnMarkersRequest(Request[WriteTxnMarkersRequest_v1]):
    API_KEY = 27

    def __init__(self, markers: list[tuple[Any, ...]]) -> None:
        self._markers = markers

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._markers, {})
