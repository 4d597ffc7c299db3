"""The decisions of docs/understand/differences.md: what may differ from Apache Kafka, and where.

The page's table is printed from here (``python -m tests.helpers.printed.printed_docs``), and this
is the comparison's allow-list: a difference that no rule covers fails the target, and so does a
rule that its case does not need. A decision without rules says why no comparison can meet it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.conformance.kafka.arrays import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    configs_and,
    configs_are,
    no_configs,
    no_loggers,
    our_features,
    served_keys,
)
from tests.conformance.kafka.comparison import CLOSED, PARKED, Difference

MOST = 20
"""More decisions than this are too many to call the daemon Kafka's equal."""

OUR_KEYS = frozenset(
    {
        "commit.monotonic",
        "rebalance.max.join.ms",
        "initial.rebalance.delay.ms",
        "offsets.retention.minutes",
    }
)
"""Configs of groups that Kafka does not have."""


@dataclass(frozen=True)
class Rule:
    """Where a difference may be found, and what it may be."""

    case: str
    """The scripted case that shows it, and the only one that may where ``given_up_by`` is empty."""
    apis: frozenset[str]
    fields: str
    """A regular expression over the whole path."""
    holds: Callable[[Any, Any], bool]
    """Whether this is it, given Kafka's value and ours."""
    versions: range = range(100)
    given_up_by: str = ""
    """The API whose request must have left the answered one to wait in vain; where empty, none."""

    def covers(self, found: Difference) -> bool:
        """Say whether it allows this difference."""
        is_here = found.given_up_by == self.given_up_by if self.given_up_by else self.is_of(found)
        return (
            is_here
            and found.api in self.apis
            and found.version in self.versions
            and re.fullmatch(self.fields, found.field) is not None
            and self.holds(found.kafka, found.ours)
        )

    def is_of(self, found: Difference) -> bool:
        """Say whether its case found this."""
        return found.case.rpartition("-")[0] == self.case


@dataclass(frozen=True)
class Decision:
    """One way in which we differ on purpose: one reason, wherever it shows."""

    title: str
    apis: str
    versions: str
    fields: str
    why: str
    rules: tuple[Rule, ...] = ()
    beyond: str = ""
    """What of it no comparison can meet, and why not."""

    @property
    def anchor(self) -> str:
        """The place of the page to cite: its number may change, its title does not."""
        return self.title.lower().replace(" ", "-")

    @property
    def shown_by(self) -> str:
        """The cases that show it, and what none can."""
        cases = list(dict.fromkeys(f"`{rule.case}`" for rule in self.rules))
        return "; ".join(filter(None, [", ".join(cases), self.beyond]))


def _rule(
    case: str, apis: str, fields: str, holds: Callable[[Any, Any], bool], **more: Any
) -> Rule:
    return Rule(case, frozenset(apis.split()), fields, holds, **more)


def _answered(*codes: int) -> Callable[[Any, Any], bool]:
    """Kafka lets wait what we answer with one of these."""
    return lambda kafka, ours: kafka == PARKED and ours.get("error_code") in codes


def _closed(kafka: Any, ours: Any) -> bool:
    """We close the connection where Kafka answers."""
    return ours == CLOSED and kafka not in (CLOSED, PARKED)


def _is(kafka: Any, ours: Any) -> Callable[[Any, Any], bool]:
    return lambda theirs, mine: (theirs, mine) == (kafka, ours)


NOTHING = (None, "", b"", [], -1)


def _ours_alone(kafka: Any, ours: Any) -> bool:
    return kafka in NOTHING and ours not in NOTHING


def _kafkas_alone(kafka: Any, ours: Any) -> bool:
    return kafka not in NOTHING and ours in NOTHING


def _all_but_internal(kafka: Any, ours: Any) -> bool:
    """All topics: ours are Kafka's but for the one in which it keeps groups."""
    names = [sorted(topic["name"] for topic in topics) for topics in (kafka, ours)]
    return names[0] == sorted([*names[1], "__consumer_offsets"])


def _larger(kafka: Any, ours: Any) -> bool:
    """An end of a partition: Kafka's counts records, ours follows commits."""
    return kafka == 0 and ours > 0


def _next_epoch(kafka: Any, ours: Any) -> bool:
    return bool(ours == kafka + 1)


def _larger_share(kafka: Any, ours: Any) -> bool:
    """Partitions: a third of them in Kafka, half of them here."""
    return (len(kafka), len(ours)) == (4, 6)


def _all_not_half(kafka: Any, ours: Any) -> bool:
    """Partitions: half of them in Kafka, all of them here."""
    return (len(kafka), len(ours)) == (6, 12)


def _one_alone(kafka: Any, ours: Any) -> bool:
    return _ours_alone(kafka, ours) or _kafkas_alone(kafka, ours)


_CREATE, _ALTER = "create_topics", "incremental_alter_configs"

DECISIONS: tuple[Decision, ...] = (
    Decision(
        "Nobody waits in vain",
        "JoinGroup, SyncGroup",
        "all",
        "the answer",
        "Kafka never answers these requests, or only after a timeout. We answer them at once: (1) "
        "If a member sends two joins or syncs, the older one gets REBALANCE_IN_PROGRESS. (2) If a "
        "member is removed, its waiting sync gets UNKNOWN_MEMBER_ID. (3) If a member is removed "
        "because the group is full, the others no longer wait for it. (4) If a join names a "
        "protocol twice, we use the first of the two. Kafka counts both: it never answers a new "
        "member, and answers a known one with UNKNOWN_SERVER_ERROR. (5) If one member sends a "
        "subscription that cannot be read, the joins of its group are answered.",
        (
            _rule(
                "a_member_joins_twice_at_once",
                "join_group",
                "",
                _answered(27),
                given_up_by="join_group",
            ),
            _rule(
                "a_member_syncs_twice_at_once",
                "sync_group",
                "",
                _answered(27),
                given_up_by="sync_group",
            ),
            _rule(
                "leaving_of_a_member_that_waits_to_sync",
                "sync_group",
                "",
                _answered(25),
                given_up_by="leave_group",
            ),
            _rule("the_slowest_of_too_many_is_sent_away", "join_group", "", _answered(0)),
            _rule("a_new_member_names_a_protocol_twice", "join_group", "", _answered(0)),
            _rule("a_subscription_that_cannot_be_read", "join_group", "", _answered(0)),
            _rule("a_protocol_named_twice", "join_group", "error_code", _is(-1, 0)),
            _rule(
                "a_protocol_named_twice",
                "join_group",
                "generation_id|protocol_type|protocol_name|leader|member_id|members",
                _ours_alone,
            ),
        ),
    ),
    Decision(
        "No records are kept",
        "Produce, Fetch, ListOffsets, Metadata, CreateTopics, DescribeConfigs, "
        "IncrementalAlterConfigs",
        "all",
        "values about records: errors of Produce, ends and replicas of partitions, their leader "
        "epochs, sessions of Fetch, configs of topics",
        "groupkeeper stores offsets and groups, but no records. We would have to invent values "
        "that only a log of records has.",
        (
            _rule(
                "records_are_refused",
                "produce",
                "responses.partition_responses.error_code",
                lambda kafka, ours: ours == 44,
            ),
            _rule(
                "records_are_refused",
                "produce",
                "responses.partition_responses.error_message",
                _ours_alone,
            ),
            _rule(
                "records_are_refused",
                "produce",
                "responses.partition_responses.(base_offset|log_start_offset)",
                _kafkas_alone,
            ),
            _rule(
                "nothing_is_fetched",
                "fetch",
                "responses.partitions.(high_watermark|last_stable_offset)",
                _larger,
            ),
            _rule(
                "odd_bodies_of_produce",
                "produce",
                "responses.partition_responses.error_code",
                lambda kafka, ours: ours == 44,
            ),
            _rule(
                "odd_bodies_of_produce",
                "produce",
                "responses.partition_responses.error_message",
                _ours_alone,
            ),
            _rule(
                "odd_bodies_of_fetch",
                "fetch",
                "session_id",
                lambda kafka, ours: kafka != 0 and ours == 0,
            ),
            # The epoch of the last fetched record. No log of ours can show that there was none.
            _rule("odd_bodies_of_fetch", "fetch", "responses.partitions.error_code", _is(1, 0)),
            _rule(
                "odd_bodies_of_fetch",
                "fetch",
                "responses.partitions.(high_watermark|last_stable_offset|log_start_offset)",
                _is(-1, 0),
            ),
            _rule("odd_bodies_of_create_topics", "create_topics", "topics.configs", _kafkas_alone),
            _rule("ends_of_partitions", "list_offsets", "topics.partitions.offset", _larger),
            _rule("topics_are_created", "create_topics", "topics.configs", _kafkas_alone),
            _rule(
                "configs_of_a_topic",
                "describe_configs",
                "results.configs",
                configs_are(TOPIC_CONFIGS),
            ),
            _rule(
                "configs_of_a_topic",
                "incremental_alter_configs",
                "responses.error_code",
                _is(0, 44),
            ),
            _rule(
                "configs_of_a_topic",
                "incremental_alter_configs",
                "responses.error_message",
                _ours_alone,
            ),
        ),
        "no case for Metadata: a single broker, too, has one replica and leader epoch 0",
    ),
    Decision(
        "Settings stand in a file",
        "DescribeConfigs, IncrementalAlterConfigs, ListConfigResources",
        "all",
        "everything of the resource types BROKER, BROKER_LOGGER and CLIENT_METRICS",
        "A broker stores these settings in its cluster; groupkeeper has them in its configuration "
        "file, and describes them as read-only. It has no loggers and no client metrics. To accept "
        "a value and ignore it would be worse than to refuse it.",
        (
            _rule(
                "configs_of_the_broker",
                "describe_configs",
                "results.configs",
                configs_are(BROKER_CONFIGS),
            ),
            _rule("configs_of_the_broker", "describe_configs", "results.configs", no_configs),
            _rule("configs_of_the_broker", "describe_configs", "results.error_code", _is(0, 42)),
            _rule(
                "configs_of_the_broker", "describe_configs", "results.error_message", _ours_alone
            ),
            _rule(
                "configs_of_the_broker",
                "incremental_alter_configs",
                "responses.error_code",
                lambda kafka, ours: kafka in (-1, 0, 40, 42) and ours in (42, 44),
            ),
            _rule(
                "configs_of_the_broker",
                "incremental_alter_configs",
                "responses.error_message",
                _ours_alone,
            ),
            _rule(
                "client_metrics_are_listed",
                "list_config_resources",
                "config_resources",
                _kafkas_alone,
            ),
            _rule(
                "odd_bodies_of_list_config_resources",
                "list_config_resources",
                "config_resources",
                no_loggers,
            ),
        ),
    ),
    Decision(
        "Four configs of groups are our own",
        "DescribeConfigs, IncrementalAlterConfigs",
        "all",
        "the four keys below",
        "Classic groups need them, and Kafka has no such keys. Each is off by default.",
        (
            _rule(
                "configs_of_our_own",
                "describe_configs",
                "results.configs",
                configs_and(OUR_KEYS),
            ),
            _rule(
                "odd_bodies_of_describe_configs",
                "describe_configs",
                "results.configs",
                configs_and(OUR_KEYS),
            ),
            _rule(
                "configs_of_our_own",
                "incremental_alter_configs",
                "responses.error_code",
                _is(40, 0),
            ),
            _rule(
                "configs_of_our_own",
                "incremental_alter_configs",
                "responses.error_message",
                _kafkas_alone,
            ),
        ),
    ),
    Decision(
        "What is not served is not listed",
        "ApiVersions, FindCoordinator",
        "all",
        "api_keys, features; the coordinator of transactions and of share groups",
        "We do not serve share and streams groups, transactions and some APIs of admin tools. A "
        "client that does not find an API uses an older one, or reports that it is missing. An "
        "API that works only partly would be worse.",
        (
            _rule("served_versions", "api_versions", "api_keys", served_keys),
            _rule(
                "served_versions",
                "api_versions",
                "supported_features|finalized_features",
                our_features,
            ),
            _rule(
                "served_versions",
                "api_versions",
                "finalized_features_epoch",
                lambda kafka, ours: kafka > ours > 0,
            ),
            _rule(
                "the_coordinator_of_transactions",
                "find_coordinator",
                r"(coordinators\.)?error_code",
                _is(0, 15),
            ),
            _rule(
                "the_coordinator_of_transactions",
                "find_coordinator",
                r"(coordinators\.)?(node_id|host|port)",
                _kafkas_alone,
            ),
            *[
                _rule(case, "find_coordinator", "coordinators.error_code", _is(42, 15))
                for case in (
                    "lookups_with_keys_that_no_share_group_has",
                    "odd_bodies_of_find_coordinator",
                )
            ],
        ),
    ),
    Decision(
        "Old versions that are sent unasked are served",
        "OffsetCommit, OffsetFetch",
        "OffsetCommit 0-1, OffsetFetch 0",
        "the answer",
        "Sarama and others send these versions without asking which ones are served. Kafka 4 "
        "closes the connection. We do not advertise them.",
        (
            _rule(
                "versions_that_kafka_dropped",
                "offset_commit",
                "connection",
                _is("closed", "answered"),
                versions=range(2),
            ),
            _rule(
                "versions_that_kafka_dropped",
                "offset_fetch",
                "connection",
                _is("closed", "answered"),
                versions=range(1),
            ),
        ),
    ),
    Decision(
        "One way back where storage fails",
        "all that write, and SyncGroup and OffsetFetch while a shard loads",
        "all",
        "error codes: see below",
        "If a write to the store (an append) fails, we load the groups in it again from the store, "
        "and evict nobody. Kafka undoes single changes, and answers a sync with a code that is "
        "fatal to its own client.",
        beyond="no case: a broker ends if its only log directory fails, and both sides have "
        "loaded before the first case",
    ),
    Decision(
        "A slow store or a slow process evicts nobody",
        "Heartbeat, and all that wait for a timer",
        "all",
        "when the answer comes",
        "The answers NONE and REBALANCE_IN_PROGRESS are also right after a crash, so they do not "
        "wait for earlier writes. If a process was stopped for some time, its clock advances by at "
        "most a second before it has read the heartbeats that have arrived.",
        beyond="no case: whether a stopped broker first reads or first evicts is chance, and we "
        "cannot make its disk slow from outside",
    ),
    Decision(
        "Everything has a limit",
        "all",
        "all",
        "the answer to a request that is too large",
        "One request may hold the loop for at most 100 ms. Memory is finite, and a store limits "
        "the size of one step. The limits are listed below.",
        (
            _rule("too_much_for_one_request", "join_group describe_groups", "", _closed),
            _rule(
                "more_partitions_than_kafka_counts",
                "create_topics create_partitions",
                "(topics|results).error_code",
                _is(-1, 44),
            ),
            _rule(
                "more_partitions_than_kafka_counts",
                "create_topics create_partitions",
                "(topics|results).error_message",
                _ours_alone,
            ),
            _rule("too_large_for_kafkas_log", "sync_group", "error_code", _is(-1, 0)),
            _rule(
                "too_large_for_kafkas_log",
                "sync_group",
                "assignment|protocol_type|protocol_name",
                _ours_alone,
            ),
        ),
        "a reply of 64 MiB and data that nobody reads are not made",
    ),
    Decision(
        "Generations start again at 1",
        "JoinGroup",
        "all",
        "generation_id after 2147483647",
        "In Kafka the next number is negative, which means that there is no generation. Here the "
        "group continues.",
        beyond="no case: it would need 2147483647 rebalances, or a forged record in Kafka's log",
    ),
    Decision(
        "A topic that Metadata creates is shown by it",
        "Metadata",
        "all, where auto_create_topics is set",
        "topics.error_code, topics.topic_id, topics.partitions",
        "Kafka first answers UNKNOWN_TOPIC_OR_PARTITION, because its controller is on another "
        "node, and the client repeats the request.",
        (
            _rule("a_topic_that_metadata_creates", "metadata", "topics.error_code", _is(3, 0)),
            _rule(
                "a_topic_that_metadata_creates",
                "metadata",
                "topics.topic_id|topics.partitions",
                _ours_alone,
            ),
        ),
    ),
    Decision(
        "A value with spaces around it is trimmed",
        "ListConfigResources",
        "all",
        "config_resources",
        "Kafka accepts such a value, fails to apply it, and then no longer lists the group.",
        (
            _rule(
                "a_value_with_spaces_around_it",
                "list_config_resources",
                "config_resources",
                _ours_alone,
            ),
        ),
    ),
    Decision(
        "An unknown operation is the client's mistake",
        "IncrementalAlterConfigs",
        "all",
        "error_code, error_message",
        "We answer INVALID_REQUEST with a message. Kafka fails, and answers UNKNOWN_SERVER_ERROR.",
        (
            _rule(
                "an_unknown_operation",
                "incremental_alter_configs",
                "responses.error_code",
                _is(-1, 42),
            ),
            _rule(
                "an_unknown_operation",
                "incremental_alter_configs",
                "responses.error_message",
                _ours_alone,
            ),
            _rule(
                "odd_bodies_of_incremental_alter_configs",
                "incremental_alter_configs",
                "responses.error_code",
                _is(-1, 42),
            ),
            _rule(
                "odd_bodies_of_incremental_alter_configs",
                "incremental_alter_configs",
                "responses.error_message",
                _ours_alone,
            ),
        ),
    ),
    Decision(
        "There are no internal topics",
        "Metadata, OffsetCommit, OffsetDelete, ListOffsets, Fetch, Produce, CreatePartitions, "
        "DeleteTopics, DescribeConfigs, IncrementalAlterConfigs, ConsumerGroupHeartbeat",
        "all",
        "answers about `__consumer_offsets`: it is not listed, and it is an unknown topic in "
        "requests",
        "We have the data of that topic in the storage. The name is still reserved: as in Kafka, "
        "nobody can create the topic.",
        (
            _rule("there_are_no_internal_topics", "metadata", "topics", _all_but_internal),
            _rule(
                "there_are_no_internal_topics",
                "metadata offset_commit offset_delete list_offsets fetch create_partitions "
                "describe_configs incremental_alter_configs",
                r"(topics|responses|results)\.(partitions\.)?error_code",
                _is(0, 3),
            ),
            _rule(
                "there_are_no_internal_topics",
                "metadata list_offsets describe_configs",
                r"topics\.(topic_id|partitions(\.(offset|leader_epoch))?)|results\.configs",
                _kafkas_alone,
            ),
            _rule(
                "there_are_no_internal_topics",
                "fetch",
                r"responses\.partitions\..*",
                lambda _kafka, ours: ours in NOTHING,
            ),
            _rule(
                "there_are_no_internal_topics",
                "consumer_group_heartbeat",
                r"assignment\.topic_partitions",
                lambda _kafka, ours: ours in NOTHING,
            ),
            _rule(
                "there_are_no_internal_topics",
                "produce",
                "responses.partition_responses.error_code",
                _is(17, 44),
            ),
            _rule(
                "there_are_no_internal_topics",
                "produce",
                "responses.partition_responses.error_message",
                _ours_alone,
            ),
            _rule(
                "there_are_no_internal_topics",
                "create_partitions incremental_alter_configs",
                "(results|responses).error_message",
                _ours_alone,
            ),
        ),
        "DeleteTopics is not asked: it would take the broker's groups",
    ),
    Decision(
        "Configs without effect have a plain check",
        "CreateTopics, IncrementalAlterConfigs",
        "all",
        "error_code, error_message",
        "For a config without effect we check only name and type. We do not check the bounds and "
        "choices of topic configs, and have no keys of share groups. A number, such as a broker's "
        "id, must have plain digits. Kafka accepts digits of any script, hexadecimal floats and "
        "NaN.",
        (
            *[
                _rule(case, api, f"{of}.error_code", _is(*codes))
                for case, api, of, codes in (
                    ("values_of_topic_configs_that_one_side_takes", _CREATE, "topics", (40, 0)),
                    ("values_of_topic_configs_that_one_side_takes", _CREATE, "topics", (0, 40)),
                    ("values_of_topic_configs_that_one_side_takes", _ALTER, "responses", (40, 3)),
                    ("numbers_in_every_script", _ALTER, "responses", (0, 40)),
                    ("configs_of_share_groups", _ALTER, "responses", (0, 40)),
                    ("other_spellings_of_a_brokers_id", _ALTER, "responses", (0, 42)),
                )
            ],
            _rule(
                "values_of_topic_configs_that_one_side_takes",
                _CREATE,
                "topics.error_message",
                _one_alone,
            ),
            _rule(
                "values_of_topic_configs_that_one_side_takes",
                _CREATE,
                "topics.(topic_id|num_partitions|replication_factor|topic_config_error_code)",
                _one_alone,
            ),
            *[
                _rule(case, _ALTER, "responses.error_message", _ours_alone)
                for case in (
                    "numbers_in_every_script",
                    "configs_of_share_groups",
                    "other_spellings_of_a_brokers_id",
                )
            ],
        ),
    ),
    Decision(
        "A conversion shares out every partition once",
        "DescribeGroups, ConsumerGroupHeartbeat, ConsumerGroupDescribe",
        "all",
        "the state and epoch of the group, and the partitions assigned to its members",
        "A static member that joins by the classic protocol may make the group a classic one. If "
        "another member then still waits for a partition, we begin a rebalance. In Kafka the group "
        "is Stable, and nobody reads the partition before the next rebalance. A conversion also "
        "ends the rebalance of a classic group. If nobody reads some partitions then, we begin an "
        "epoch. In Kafka the join of a static member, or of a member without topics, begins no "
        "epoch. Each member keeps the partitions of its last assignment. In Kafka it keeps none "
        "after an abandoned rebalance, and gets its target after a downgrade, so two members may "
        "read one partition. It also keeps what it must still give up: the partitions that it "
        "reported with its last join and that nobody was assigned. In Kafka these go to others at "
        "once. If we fail over before the members of a downgraded group have joined again, they "
        "rebalance again. In Kafka the group is then Stable, and nobody reads the partitions of "
        "the member that left.",
        (
            _rule(
                "a_member_waits_while_a_static_one_is_replaced",
                "describe_groups",
                "groups.group_state",
                _is("Stable", "PreparingRebalance"),
            ),
            _rule(
                "a_member_waits_while_a_static_one_is_replaced",
                "describe_groups",
                r"groups\.(protocol_data|members\.member_(metadata|assignment))",
                _kafkas_alone,
            ),
            *[
                _rule("a_static_member_changes_its_protocol_after_another_one_left", *rule)
                for rule in (
                    (
                        "consumer_group_heartbeat consumer_group_describe",
                        r"member_epoch|groups\.(group|assignment|members\.member)_epoch",
                        _next_epoch,
                    ),
                    (
                        "consumer_group_heartbeat consumer_group_describe",
                        r"(groups\.members\.(target_)?)?assignment\.topic_partitions\.partitions",
                        _all_not_half,
                    ),
                )
            ],
            _rule(
                "a_group_that_has_just_become_classic_becomes_a_consumer_group_again",
                "consumer_group_describe",
                r"groups\.members\.assignment\.topic_partitions\.partitions",
                _larger_share,
            ),
            _rule(
                "a_group_that_has_just_become_classic_becomes_a_consumer_group_again",
                "consumer_group_describe",
                r"groups\.members\.assignment\.topic_partitions",
                _kafkas_alone,
            ),
            *[
                _rule(
                    "a_cooperative_member_has_not_yet_joined_without_what_it_must_give_up",
                    "consumer_group_heartbeat consumer_group_describe",
                    *rule,
                )
                for rule in (
                    (r"(groups\.members\.)?assignment\.topic_partitions", _kafkas_alone),
                    (
                        r"groups\.members\.assignment\.topic_partitions\.partitions",
                        _all_not_half,
                    ),
                )
            ],
        ),
    ),
    Decision(
        "A member without topics gets no partitions",
        "ConsumerGroupHeartbeat, ConsumerGroupDescribe",
        "all",
        "the partitions assigned to the members, and their targets",
        "A member that joins with an empty list of topics begins no epoch. If the group waits for "
        "its assignment interval and the join computes the target, Kafka divides the topics as if "
        "the new member had those of the others. Nobody reads its share before the next epoch. We "
        "divide the topics among the members that subscribe to them.",
        (
            _rule(
                "a_newcomer_without_topics_while_a_target_is_owed",
                "consumer_group_heartbeat",
                "assignment.topic_partitions.partitions",
                _larger_share,
            ),
            _rule(
                "a_newcomer_without_topics_while_a_target_is_owed",
                "consumer_group_describe",
                "groups.members.target_assignment.topic_partitions.partitions",
                _larger_share,
            ),
            _rule(
                "a_newcomer_without_topics_while_a_target_is_owed",
                "consumer_group_describe",
                "groups.members.target_assignment.topic_partitions",
                _kafkas_alone,
            ),
        ),
    ),
    Decision(
        "An old instance id is free",
        "ConsumerGroupHeartbeat",
        "all",
        "the answer to a join",
        "A member of a consumer group that joins again, with its own member id and another "
        "instance id, has only the new one. Kafka keeps the old one for it, too: a join with the "
        "old one gets UNRELEASED_INSTANCE_ID, and UNKNOWN_MEMBER_ID after that member has left. "
        "Kafka also gives the member itself no partitions until the next epoch. No client that "
        "was tested changes its instance id.",
        (
            _rule(
                "a_static_member_joins_under_another_instance_id",
                "consumer_group_heartbeat",
                "assignment.topic_partitions",
                _ours_alone,
            ),
            _rule(
                "a_static_member_joins_under_another_instance_id",
                "consumer_group_heartbeat",
                "error_code",
                _is(111, 0),
            ),
            _rule(
                "a_static_member_joins_under_another_instance_id",
                "consumer_group_heartbeat",
                "error_message",
                _kafkas_alone,
            ),
            _rule(
                "a_static_member_joins_under_another_instance_id",
                "consumer_group_heartbeat",
                "member_id|assignment",
                _ours_alone,
            ),
            _rule(
                "a_static_member_joins_under_another_instance_id",
                "consumer_group_heartbeat",
                "member_epoch|heartbeat_interval",
                lambda kafka, ours: kafka == 0 < ours,
            ),
        ),
    ),
    Decision(
        "A new pattern leaves no partition unread",
        "ConsumerGroupHeartbeat, ConsumerGroupDescribe, ListGroups",
        "all",
        "the epoch and state of the group, and the partitions assigned to its members",
        "A member may change its pattern to one that matches nothing, while other members "
        "subscribe to the topics of the old pattern. In Kafka no epoch begins, and nobody reads "
        "the member's partitions before the next one. We begin an epoch.",
        (
            _rule(
                "one_of_two_of_one_topic_changes_to_a_pattern_that_matches_nothing",
                "consumer_group_describe",
                r"groups\.(group|assignment)_epoch",
                _next_epoch,
            ),
            _rule(
                "one_of_two_of_one_topic_changes_to_a_pattern_that_matches_nothing",
                "consumer_group_describe list_groups",
                r"groups\.group_state",
                _is("Reconciling", "Assigning"),
            ),
            _rule(
                "one_of_two_of_one_topic_changes_to_a_pattern_that_matches_nothing",
                "consumer_group_heartbeat",
                "member_epoch",
                _next_epoch,
            ),
            _rule(
                "one_of_two_of_one_topic_changes_to_a_pattern_that_matches_nothing",
                "consumer_group_heartbeat",
                "assignment",
                _ours_alone,
            ),
        ),
    ),
    Decision(
        "Data of a sticky assignor is ignored",
        "ConsumerGroupHeartbeat",
        "all",
        "the answer to a join",
        "The leader of a classic group may put user data into assignments. A group with such data "
        "is not converted, because its assignor may need the data. But the data of the assignors "
        "`sticky` and `cooperative-sticky` says only what each member was assigned. librdkafka "
        "sends it from the second rebalance on. Kafka then answers GROUP_ID_NOT_FOUND, which is "
        "fatal to the new client. We convert the group.",
        (
            _rule(
                "a_cooperative_leader_puts_the_data_of_a_member_into_its_assignment",
                "consumer_group_heartbeat",
                "error_code",
                _is(69, 0),
            ),
            _rule(
                "a_cooperative_leader_puts_the_data_of_a_member_into_its_assignment",
                "consumer_group_heartbeat",
                "error_message",
                _kafkas_alone,
            ),
            _rule(
                "a_cooperative_leader_puts_the_data_of_a_member_into_its_assignment",
                "consumer_group_heartbeat",
                "member_id|assignment",
                _ours_alone,
            ),
            _rule(
                "a_cooperative_leader_puts_the_data_of_a_member_into_its_assignment",
                "consumer_group_heartbeat",
                "member_epoch|heartbeat_interval",
                lambda kafka, ours: kafka == 0 < ours,
            ),
        ),
    ),
)
"""In the order of docs/understand/differences.md, which numbers them."""


def table() -> str:
    """The decisions as a table of the page."""
    head = "| # | decision | APIs | versions | fields | the comparison meets it in | why |"
    rows = [
        f'| <a id="{d.anchor}"></a>{n} | {d.title} | {d.apis} | {d.versions} | {d.fields} '
        f"| {d.shown_by} | {d.why} |"
        for n, d in enumerate(DECISIONS, 1)
    ]
    return "\n".join([head, "| --- " * 7 + "|", *rows])


def allowed_by(found: Difference) -> tuple[int, Rule] | None:
    """The number of the decision that allows a difference, and its rule; None where none does."""
    for number, decision in enumerate(DECISIONS, 1):
        for rule in decision.rules:
            if rule.covers(found):
                return number, rule
    return None


def decision_of(found: Difference) -> int | None:
    """The number of the decision that allows a difference; None where none does."""
    allowed = allowed_by(found)
    return None if allowed is None else allowed[0]
