"""The error codes that a group coordinator has to do with, held to the list of Kafka's."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode, GroupError

GROUP_CODES = {
    -1: "UNKNOWN_SERVER_ERROR",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    12: "OFFSET_METADATA_TOO_LARGE",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    22: "ILLEGAL_GENERATION",
    23: "INCONSISTENT_GROUP_PROTOCOL",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    26: "INVALID_SESSION_TIMEOUT",
    27: "REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    33: "UNSUPPORTED_SASL_MECHANISM",
    34: "ILLEGAL_SASL_STATE",
    35: "UNSUPPORTED_VERSION",
    40: "INVALID_CONFIG",
    42: "INVALID_REQUEST",
    47: "INVALID_PRODUCER_EPOCH",
    48: "INVALID_TXN_STATE",
    49: "INVALID_PRODUCER_ID_MAPPING",
    51: "CONCURRENT_TRANSACTIONS",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    58: "SASL_AUTHENTICATION_FAILED",
    68: "NON_EMPTY_GROUP",
    69: "GROUP_ID_NOT_FOUND",
    79: "MEMBER_ID_REQUIRED",
    81: "GROUP_MAX_SIZE_REACHED",
    82: "FENCED_INSTANCE_ID",
    86: "GROUP_SUBSCRIBED_TO_TOPIC",
    88: "UNSTABLE_OFFSET_COMMIT",
    90: "PRODUCER_FENCED",
    100: "UNKNOWN_TOPIC_ID",
    110: "FENCED_MEMBER_EPOCH",
    111: "UNRELEASED_INSTANCE_ID",
    112: "UNSUPPORTED_ASSIGNOR",
    113: "STALE_MEMBER_EPOCH",
    114: "MISMATCHED_ENDPOINT_TYPE",
    115: "UNSUPPORTED_ENDPOINT_TYPE",
    120: "TRANSACTION_ABORTABLE",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    132: "STREAMS_TOPOLOGY_FENCED",
}
"""Kafka 4.3's codes around groups, those of coordinators that do more than ours included: a client
may meet them elsewhere, and a host may want their names (docs/spec/errors.md#codes).
"""


def test_every_code_around_groups_has_its_kafka_name() -> None:
    ours = {int(code): code.name for code in ErrorCode}
    assert {number: ours.get(number) for number in GROUP_CODES} == GROUP_CODES


def test_an_error_reads_as_its_name_and_its_message_where_it_has_one():
    assert str(GroupError(ErrorCode.GROUP_ID_NOT_FOUND)) == "GROUP_ID_NOT_FOUND"
    refused = GroupError(ErrorCode.INVALID_CONFIG, "session.timeout.ms: 1 is too short")
    assert str(refused) == "INVALID_CONFIG: session.timeout.ms: 1 is too short"
    assert (refused.code, refused.message) == (40, "session.timeout.ms: 1 is too short")
