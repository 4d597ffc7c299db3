"""The APIs of a listener in gateway mode, as data: who answers each version, and which versions
ApiVersions lists.

A listener is a port of ours, through which clients reach one broker of the upstream (the Kafka
cluster behind the gateway).

A version is offered only if the table knows it. A newer version may contain addresses or groups
that no code here looks for. The table has the versions of Apache Kafka 4.3.1, and for passed APIs
also the older ones, which contain no address. docs/reference/protocol-support.md is printed from
this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from groupkeeper.protocol.versions import FEATURES, KNOWN_API_BY_KEY, Feature

VersionRange: TypeAlias = tuple[int, int]
"""The lowest and the highest version."""

PRODUCE: Final = 0
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
TXN_OFFSET_COMMIT: Final = 28


class Treatment(Enum):
    """Who answers a request that arrives on the listener of a broker."""

    OURS = "ours"
    """Answered here. The broker never sees it."""
    REWRITTEN = "rewritten"
    """Passed to the broker, and the reply changed by ``rewriting``."""
    TRANSLATED = "translated"
    """Sent to the broker as a request of another API."""
    SPLIT = "split"
    """Answered here, by the broker, or by both, depending on its content (``splitting``)."""
    PASSED = "passed"
    """Passed to the broker, and its reply passed back. We read neither."""
    LOGIN = "login"
    """Passed to the broker as a whole, while ``client_login`` follows the login. Only with
    ``upstream.identity = "client"``."""


class GatewayApi(NamedTuple):
    """One API and the versions of it that may be offered."""

    name: str
    """Kafka's spelling: ``JoinGroup``."""
    treatment: Treatment
    max_version: int
    min_version: int = 0
    passed_below: int = 0
    """Requests of a lower version are passed to the broker unchanged, whatever ``treatment`` is."""
    notes: str = ""


def _ours(name: str, max_version: int, notes: str = "") -> GatewayApi:
    return GatewayApi(name, Treatment.OURS, max_version, notes=notes)


def _passed(name: str, max_version: int, notes: str = "") -> GatewayApi:
    return GatewayApi(name, Treatment.PASSED, max_version, notes=notes)


def _split(name: str, max_version: int, notes: str, min_version: int = 0) -> GatewayApi:
    return GatewayApi(name, Treatment.SPLIT, max_version, min_version, notes=notes)


def _rewritten(name: str, max_version: int, notes: str, passed_below: int = 0) -> GatewayApi:
    return GatewayApi(
        name, Treatment.REWRITTEN, max_version, passed_below=passed_below, notes=notes
    )


_CONFIGS = "groupkeeper answers about groups and its own node, the broker about the rest."
_KEPT = "A request about the journal topic is refused."
_FOLLOWED = "If upstream.identity is client, groupkeeper reads whether the login succeeded."
_FOLLOWED_FROM_1 = "If upstream.identity is client, only version 1."
_CONSUMER_GROUPS = (
    "Answered with UNSUPPORTED_VERSION if consumer is not in group.rebalance_protocols."
)
_ADDRESSES = "The addresses of brokers in the reply are replaced by those of our listeners."

TABLE: Final[Mapping[int, GatewayApi]] = {
    PRODUCE: _rewritten(
        "Produce",
        13,
        "From version 10 on the reply has addresses of new leaders, which are replaced.",
        passed_below=10,
    ),
    1: _passed(
        "Fetch",
        15,
        "Later versions are not listed: their replies have addresses of brokers after the records.",
    ),
    2: _passed("ListOffsets", 11),
    3: _rewritten("Metadata", 13, f"{_ADDRESSES} The journal topic is left out."),
    8: _ours("OffsetCommit", 10),
    9: _ours("OffsetFetch", 10),
    10: _split(
        "FindCoordinator", 6, "groupkeeper answers for groups, the broker for transactions."
    ),
    11: _ours("JoinGroup", 9),
    12: _ours("Heartbeat", 4),
    13: _ours("LeaveGroup", 5),
    14: _ours("SyncGroup", 5),
    15: _ours("DescribeGroups", 6),
    16: _ours("ListGroups", 5, "Only groupkeeper's own node lists groups; other nodes have none."),
    17: _passed("SaslHandshake", 1, _FOLLOWED_FROM_1),
    18: _ours("ApiVersions", 4, "Lists the versions that both the broker and this table have."),
    19: _passed("CreateTopics", 7),
    20: _split("DeleteTopics", 6, _KEPT, 1),
    21: _split("DeleteRecords", 2, _KEPT),
    22: _passed("InitProducerId", 6),
    23: _passed("OffsetForLeaderEpoch", 4),
    24: _passed("AddPartitionsToTxn", 5),
    25: GatewayApi(
        "AddOffsetsToTxn",
        Treatment.TRANSLATED,
        4,
        notes="The broker gets AddPartitionsToTxn for a partition of the journal topic.",
    ),
    26: _passed("EndTxn", 5),
    27: _passed("WriteTxnMarkers", 2),
    28: _ours(
        "TxnOffsetCommit", 5, "Version 4 only if the broker has Produce 11, 5 only if it has 12."
    ),
    29: _passed("DescribeAcls", 3),
    30: _passed("CreateAcls", 3),
    31: _passed("DeleteAcls", 3),
    32: _split(
        "DescribeConfigs",
        4,
        f"{_CONFIGS} Configs with addresses, such as advertised.listeners, have an empty value.",
        1,
    ),
    33: _split(
        "AlterConfigs",
        2,
        f"{_CONFIGS} Its own configs can be changed only by IncrementalAlterConfigs. {_KEPT}",
    ),
    34: _passed("AlterReplicaLogDirs", 2),
    35: _passed("DescribeLogDirs", 5),
    36: _passed("SaslAuthenticate", 2, _FOLLOWED),
    37: _split("CreatePartitions", 3, _KEPT),
    38: _passed("CreateDelegationToken", 3),
    39: _passed("RenewDelegationToken", 2),
    40: _passed("ExpireDelegationToken", 2),
    41: _passed("DescribeDelegationToken", 3),
    42: _ours("DeleteGroups", 2),
    43: _passed("ElectLeaders", 2),
    44: _split("IncrementalAlterConfigs", 1, f"{_CONFIGS} {_KEPT}"),
    45: _passed("AlterPartitionReassignments", 1),
    46: _passed("ListPartitionReassignments", 0),
    47: _ours("OffsetDelete", 0),
    48: _passed("DescribeClientQuotas", 1),
    49: _passed("AlterClientQuotas", 1),
    50: _passed("DescribeUserScramCredentials", 0),
    51: _passed("AlterUserScramCredentials", 0),
    55: _passed(
        "DescribeQuorum", 1, "Version 2 is not listed: its replies have addresses of controllers."
    ),
    57: _passed("UpdateFeatures", 2),
    60: _rewritten("DescribeCluster", 2, _ADDRESSES),
    61: _passed("DescribeProducers", 0),
    64: _passed("UnregisterBroker", 0),
    65: _passed("DescribeTransactions", 0),
    66: _passed("ListTransactions", 2),
    68: _ours("ConsumerGroupHeartbeat", 1, _CONSUMER_GROUPS),
    69: _ours("ConsumerGroupDescribe", 1, _CONSUMER_GROUPS),
    71: _passed("GetTelemetrySubscriptions", 0),
    72: _passed("PushTelemetry", 0),
    74: _split("ListConfigResources", 1, _CONFIGS),
    75: _rewritten("DescribeTopicPartitions", 0, "The journal topic is left out."),
    80: _passed("AddRaftVoter", 1),
    81: _passed("RemoveRaftVoter", 0),
}
"""Every API that may be offered, by key. Other APIs are never offered: share groups (76-79, 83-87,
90-92), streams groups (88, 89), the keys of controllers, and keys newer than the table.
"""


def treatment(key: int, version: int) -> Treatment | None:
    """Return the treatment of a version of an API; None if it is never offered."""
    api = TABLE.get(key)
    if api is None:
        return None
    if api.treatment is Treatment.OURS:
        own = KNOWN_API_BY_KEY.get(key)
        return Treatment.OURS if own is not None and own.serves(version) else None
    if not api.min_version <= version <= api.max_version:
        return None
    return Treatment.PASSED if version < api.passed_below else api.treatment


def treatments(
    upstream: Mapping[int, VersionRange], *, follows_logins: bool = False
) -> dict[tuple[int, int], Treatment]:
    """Return the treatment of each (key, version) on the listener of a broker that serves the
    versions ``upstream``.

    The result also has versions that are served but not advertised. A request with another version
    closes the connection, as in Kafka, unless it is an ApiVersions. ``follows_logins`` is True if
    ``upstream.identity`` is ``"client"``.
    """
    result = {}
    for key, (lowest, highest) in offered(upstream, follows_logins=follows_logins).items():
        own = KNOWN_API_BY_KEY.get(key)
        ours = _is_ours(key, upstream) and key != ADD_OFFSETS_TO_TXN
        if ours and own is not None:
            lowest = own.lowest_served
        for version in range(lowest, highest + 1):
            found = Treatment.OURS if ours else treatment(key, version)
            if follows_logins and key in LOGIN_APIS:
                found = Treatment.LOGIN
            if found is not None:
                result[key, version] = found
    return result


def offered(
    upstream: Mapping[int, VersionRange], *, follows_logins: bool = False
) -> dict[int, VersionRange]:
    """Return the versions that ApiVersions of a listener lists, by API key. ``upstream`` has the
    versions of its broker.

    APIs that we answer are listed even if the broker lacks them, because it may be a broker without
    groups. The two APIs for offsets in transactions are listed only if the broker has transactions.
    """
    ranges = {}
    for key, api in TABLE.items():
        if _is_ours(key, upstream):
            own = _own_range(key, upstream)
            if own is not None:
                ranges[key] = own
        elif key in upstream:
            lowest, highest = upstream[key]
            lowest, highest = max(lowest, api.min_version), min(highest, api.max_version)
            if follows_logins and key == SASL_HANDSHAKE:
                lowest = max(lowest, _WITH_SASL_AUTHENTICATE)
            if lowest <= highest:
                ranges[key] = lowest, highest
    return ranges


LOGIN_APIS: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The APIs with which a client logs in."""
_WITH_SASL_AUTHENTICATE: Final = 1
"""The first version of SaslHandshake after which clients send SaslAuthenticate requests. After
version 0 they send bare tokens.
"""


def _is_ours(key: int, upstream: Mapping[int, VersionRange]) -> bool:
    """Return True if ApiVersions lists our own range for this API, not the range of the broker."""
    kind = TABLE[key].treatment
    if kind is Treatment.SPLIT:
        return key not in upstream
    return kind in (Treatment.OURS, Treatment.TRANSLATED)


def _own_range(key: int, upstream: Mapping[int, VersionRange]) -> VersionRange | None:
    if key in (ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT) and not has_transactions(upstream):
        return None
    if key == ADD_OFFSETS_TO_TXN:
        return TABLE[key].min_version, TABLE[key].max_version
    own = KNOWN_API_BY_KEY.get(key)
    if own is None:
        return None
    if key == TXN_OFFSET_COMMIT:
        produce = upstream[PRODUCE][1]
        highest = 5 if produce >= 12 else 4 if produce >= 11 else 3
        return own.advertised_min, min(highest, own.max_version)
    return own.advertised_min, own.max_version


def has_transactions(upstream: Mapping[int, VersionRange]) -> bool:
    """Return True if offsets can be committed in transactions of a broker with these versions."""
    return TXN_OFFSET_COMMIT in KNOWN_API_BY_KEY and upstream.keys() >= _TRANSACTIONS


_TRANSACTIONS: Final = frozenset({PRODUCE, 22, ADD_PARTITIONS_TO_TXN, 26, 61})
"""A broker with these APIs has transactions, and describes its producers (61)."""

_NEVER_FEATURES: Final = frozenset({"share.version", "streams.version"})
"""Features of groups that we do not serve."""


def features(upstream: Iterable[Feature]) -> tuple[Feature, ...]:
    """Return the features that a listener lists: our own, which are about groups, and those of the
    upstream that are not about groups.
    """
    own = {feature.name for feature in FEATURES}
    kept = [f for f in upstream if f.name not in own and f.name not in _NEVER_FEATURES]
    return (*kept, *FEATURES)
