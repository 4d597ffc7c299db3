"""The cluster shard: topics of static mode, created, grown and deleted one by one
(docs/design.md#static-mode).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.image import TopicInfo
from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.events import AdminAction
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import TopicRecord, TopicRemoved
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.topics import ChangeTopics, NewTopic
from tests.helpers.core.shard_driver import ORDERS, PAYMENTS

ADMIN = Client("admin", "/10.0.0.9", "User:admin")
NOW = Now(1_000, 1_700_000_000_000)
OTHER_ID = "EEEEEEEEEEEEEEEEEEEEEA"


class Cluster:
    """A cluster shard, and everything that it gave back."""

    def __init__(self, *topics, **limits):
        self.limits = CoreLimits(**limits)
        self.shard = ClusterShard(self.limits)
        self.records, self.events = [], []
        for topic in topics:
            self.change(create=(NewTopic(topic.name, topic.partitions, topic.topic_id),))

    def change(self, **fields):
        """Hand in a ChangeTopics; its result, and the two lists grown."""
        step = self.shard.handle(ChangeTopics(client=ADMIN, **fields), "ticket", NOW)
        self.records += step.records
        self.events += step.events
        (reply,) = step.replies
        assert (reply.ticket, reply.waits) == ("ticket", True)
        again = ClusterShard(self.limits)
        for record in self.records:
            again.apply(record)
        assert again.topics == self.shard.topics
        return reply.result


@pytest.fixture
def cluster():
    """Two topics: orders with twelve partitions, payments with four."""
    return Cluster(ORDERS, PAYMENTS)


def test_shard_starts_without_topics():
    assert ClusterShard(CoreLimits()).topics == {}


def test_created_topic_exists_and_is_written():
    cluster = Cluster()
    result = cluster.change(create=(NewTopic("orders", 12, ORDERS.topic_id),))
    (created,) = result.created
    assert (result.error, result.grown, result.deleted) == (ErrorCode.NONE, (), ())
    assert created == ("orders", ORDERS.topic_id, 12, ErrorCode.NONE, None)
    assert cluster.records == [TopicRecord("orders", ORDERS.topic_id, 12)]
    assert cluster.shard.topics == {"orders": ORDERS}


def test_image_has_the_topics_by_name_and_by_id(cluster):
    image = cluster.shard.image()
    assert image.by_name == {"orders": ORDERS, "payments": PAYMENTS}
    assert image.by_id == {ORDERS.topic_id: ORDERS, PAYMENTS.topic_id: PAYMENTS}
    assert image.accepts_any is False


def test_each_topic_is_checked_on_its_own_in_order(cluster):
    result = cluster.change(
        create=(
            NewTopic("new", 1, OTHER_ID),
            NewTopic("orders", 1, OTHER_ID),
            NewTopic("bad name", 1, OTHER_ID),
            NewTopic("none", 0, OTHER_ID),
        )
    )
    assert [(c.name, c.error) for c in result.created] == [
        ("new", ErrorCode.NONE),
        ("orders", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.INVALID_PARTITIONS),
    ]
    assert all(c.message for c in result.created[1:])
    assert set(cluster.shard.topics) == {"orders", "payments", "new"}
    assert cluster.shard.topics["orders"] == ORDERS


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * 250, "a\n"])
def test_illegal_name_is_refused(name):
    """docs/spec/cluster.md#metadata: Kafka's rules for topic names."""
    cluster = Cluster()
    (created,) = cluster.change(create=(NewTopic(name, 1, OTHER_ID),)).created
    assert created.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert cluster.records == []


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_legal_name_is_accepted(name):
    cluster = Cluster()
    (created,) = cluster.change(create=(NewTopic(name, 1, OTHER_ID),)).created
    assert created.error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
        ("__consumer_offsets", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("__consumer.offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__cluster.metadata", ErrorCode.NONE),
        ("__transaction_state", ErrorCode.NONE),
    ],
)
def test_no_topic_gets_a_name_under_which_kafka_keeps_what_is_in_the_storage_here(name, error):
    cluster = Cluster()
    (created,) = cluster.change(create=(NewTopic(name, 1, OTHER_ID),)).created
    assert created.error is error
    assert bool(created.message) is bool(error)
    assert list(cluster.shard.topics) == [name] * (error is ErrorCode.NONE)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("free", ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_is_wrong_with_a_name_comes_before_what_else_is(cluster, name, error):
    refusal = (ErrorCode.INVALID_CONFIG, "why")
    (created,) = cluster.change(create=(NewTopic(name, 0, OTHER_ID, refusal),)).created
    assert created.error is error
    assert created.message


@pytest.mark.parametrize("partitions", [0, -1, -7])
def test_topic_without_partitions_is_refused(partitions):
    cluster = Cluster()
    (created,) = cluster.change(create=(NewTopic("t", partitions, OTHER_ID),)).created
    assert created.error is ErrorCode.INVALID_PARTITIONS
    assert cluster.shard.topics == {}


def test_topic_grows_and_keeps_its_id(cluster):
    (grown,) = cluster.change(grow=(("orders", 20),)).grown
    assert (grown.name, grown.error, grown.partitions) == ("orders", ErrorCode.NONE, 20)
    assert cluster.shard.topics["orders"] == TopicInfo("orders", ORDERS.topic_id, 20)
    assert cluster.records[-1] == TopicRecord("orders", ORDERS.topic_id, 20)


@pytest.mark.parametrize("partitions", [12, 11, 0, -1])
def test_topic_never_shrinks(cluster, partitions):
    written = len(cluster.records)
    (grown,) = cluster.change(grow=(("orders", partitions),)).grown
    assert grown.error is ErrorCode.INVALID_PARTITIONS
    assert grown.message
    assert cluster.shard.topics["orders"] == ORDERS
    assert len(cluster.records) == written


def test_unknown_topic_does_not_grow(cluster):
    (grown,) = cluster.change(grow=(("nowhere", 3),)).grown
    assert grown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grown.message is None


@pytest.mark.parametrize("by", ["name", "id"])
def test_topic_is_deleted_by_name_or_id(cluster, by):
    named = ("orders", "") if by == "name" else (None, ORDERS.topic_id)
    (deleted,) = cluster.change(delete=(named,)).deleted
    assert (deleted.name, deleted.topic_id) == ("orders", ORDERS.topic_id)
    assert deleted.error is ErrorCode.NONE
    assert set(cluster.shard.topics) == {"payments"}
    assert cluster.records[-1] == TopicRemoved("orders")


def test_unknown_topics_are_not_deleted(cluster):
    result = cluster.change(delete=(("nowhere", ""), (None, OTHER_ID)))
    assert [d.error for d in result.deleted] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert all(d.message for d in result.deleted)
    assert set(cluster.shard.topics) == {"orders", "payments"}


BY_NAME, BY_ID = ("orders", ""), (None, ORDERS.topic_id)


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ((BY_ID, BY_NAME), [("orders", ORDERS.topic_id)] * 2),
        ((BY_NAME, BY_NAME), [BY_NAME] * 2),
        ((BY_ID, BY_ID), [BY_ID] * 2),
        ((BY_ID, BY_ID, BY_NAME), [BY_ID, BY_ID, ("orders", ORDERS.topic_id)]),
    ],
)
def test_a_topic_that_is_named_twice_is_not_deleted(cluster, asked, answered):
    deleted = cluster.change(delete=(*asked, ("payments", ""))).deleted
    assert [(d.name, d.topic_id) for d in deleted[:-1]] == answered
    assert {d.error for d in deleted[:-1]} == {ErrorCode.INVALID_REQUEST}
    assert deleted[-1].error is ErrorCode.NONE
    assert set(cluster.shard.topics) == {"orders"}


def test_a_topic_is_deleted_by_its_id_where_its_name_comes_twice(cluster):
    deleted = cluster.change(delete=(BY_NAME, BY_NAME, BY_ID)).deleted
    assert [d.error for d in deleted] == [*[ErrorCode.INVALID_REQUEST] * 2, ErrorCode.NONE]
    assert set(cluster.shard.topics) == {"payments"}


def test_topic_made_again_has_its_new_id(cluster):
    cluster.change(delete=(("orders", ""),))
    cluster.change(create=(NewTopic("orders", 3, OTHER_ID),))
    assert cluster.shard.topics["orders"] == TopicInfo("orders", OTHER_ID, 3)
    assert ORDERS.topic_id not in cluster.shard.image().by_id


def test_validating_answers_the_same_and_changes_nothing(cluster):
    fields = {
        "create": (NewTopic("new", 3, OTHER_ID), NewTopic("orders", 1, OTHER_ID)),
        "grow": (("payments", 9), ("orders", 1)),
        "delete": (("nowhere", ""),),
    }
    records, events = len(cluster.records), len(cluster.events)
    before = dict(cluster.shard.topics)
    validated = cluster.change(**fields, validate_only=True)
    assert cluster.shard.topics == before
    assert (len(cluster.records), len(cluster.events)) == (records, events)
    done = cluster.change(**fields)
    assert [c.error for c in validated.created] == [c.error for c in done.created]
    assert [c.error for c in validated.grown] == [c.error for c in done.grown]
    assert [c.error for c in validated.deleted] == [c.error for c in done.deleted]


def test_name_given_twice_in_one_request_is_made_at_most_once():
    """Kafka refuses both."""
    cluster = Cluster()
    twice = (NewTopic("t", 1, ORDERS.topic_id), NewTopic("t", 2, OTHER_ID))
    result = cluster.change(create=twice)
    assert [c.error for c in result.created] == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster.shard.topics == {}


@pytest.mark.parametrize("name", ["a_b.c", "a.b.c", "a.b_c"])
def test_name_that_differs_from_another_in_dots_and_underscores_alone_is_refused(name):
    """Both would have one name in metrics (Kafka: Topic.hasCollision)."""
    cluster = Cluster()
    cluster.change(create=(NewTopic("a_b_c", 1, OTHER_ID),))
    (change,) = cluster.change(create=(NewTopic(name, 1, ORDERS.topic_id),)).created
    assert change.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "a_b_c" in change.message
    cluster.change(delete=(("a_b_c", ""),))
    (change,) = cluster.change(create=(NewTopic(name, 1, ORDERS.topic_id),)).created
    assert change.error is ErrorCode.NONE


@pytest.mark.parametrize("validate_only", [True, False])
def test_names_that_differ_so_may_come_in_one_request(validate_only):
    """Kafka asks the topics that were there before, and no others
    (ReplicationControlManager.validateNewTopicNames).
    """
    cluster = Cluster()
    ids = ("a.b", ORDERS.topic_id), ("a_b", OTHER_ID)
    both = tuple(NewTopic(name, 1, topic_id) for name, topic_id in ids)
    result = cluster.change(create=both, validate_only=validate_only)
    assert [c.error for c in result.created] == [ErrorCode.NONE] * 2


def test_name_is_refused_until_every_topic_that_differs_so_is_gone():
    cluster = Cluster()
    both = (NewTopic("a.b", 1, ORDERS.topic_id), NewTopic("a_b", 1, OTHER_ID))
    cluster.change(create=both)
    cluster.change(delete=(("a.b", ""),))
    (change,) = cluster.change(create=both[:1]).created
    assert change.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    cluster.change(delete=(("a_b", ""),))
    assert cluster.shard.metric_names == {}
    (change,) = cluster.change(create=both[:1]).created
    assert change.error is ErrorCode.NONE


def test_partitions_of_all_topics_are_limited():
    cluster = Cluster(ORDERS, max_partitions=20)
    (created,) = cluster.change(create=(NewTopic("t", 9, OTHER_ID),)).created
    assert created.error is ErrorCode.POLICY_VIOLATION
    (grown,) = cluster.change(grow=(("orders", 21),)).grown
    assert grown.error is ErrorCode.POLICY_VIOLATION
    (created,) = cluster.change(create=(NewTopic("t", 8, OTHER_ID),)).created
    assert created.error is ErrorCode.NONE


def test_what_was_changed_is_an_event_with_who_did_it(cluster):
    since = len(cluster.events)
    cluster.change(grow=(("orders", 20),), delete=(("payments", ""), ("nowhere", "")))
    actions = [e for e in cluster.events[since:] if isinstance(e, AdminAction)]
    assert [a.target for a in actions] == ["orders", "payments"]
    assert {(a.client_id, a.client_host, a.principal) for a in actions} == {ADMIN}
    assert all(a.action for a in actions)


def test_shard_has_no_deadlines_and_holds_no_requests(cluster):
    assert cluster.shard.next_deadline() is None
    assert cluster.shard.saved("anything") is None
    step = cluster.shard.loaded(NOW)
    assert not step.replies
    assert not step.records


def test_observed_topics_may_have_any_name_and_any_number_of_partitions():
    cluster = Cluster(max_partitions=1)
    names = ("__consumer_offsets", "__cluster_metadata", "a.b", "a_b")
    topics = tuple(NewTopic(name, 50, f"{name:A>22}") for name in names)
    result = cluster.change(create=topics, observed=True)
    assert {change.error for change in result.created} == {ErrorCode.NONE}
    assert cluster.change(grow=(("a.b", 60),), observed=True).grown[0].error is ErrorCode.NONE
    assert cluster.change(grow=(("a.b", 61),)).grown[0].error is ErrorCode.POLICY_VIOLATION


def test_an_observed_topic_with_a_name_or_an_id_that_exists_is_refused():
    cluster = Cluster(ORDERS)
    for topic in (NewTopic("orders", 3, OTHER_ID), NewTopic("other", 3, ORDERS.topic_id)):
        (change,) = cluster.change(create=(topic,), observed=True).created
        assert change.error is ErrorCode.TOPIC_ALREADY_EXISTS
