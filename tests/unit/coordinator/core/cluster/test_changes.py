"""Configs of groups in the cluster shard: set, taken back, and what is refused
(docs/spec/administration.md#group-configs).
"""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.cluster.shard import ClusterShard
from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.limits import CoreLimits
from groupkeeper.coordinator.core.now import Now
from groupkeeper.coordinator.core.records import GroupConfigs
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.core.requests.topics import AlterGroupConfigs, GroupConfigChange

ADMIN = Client("admin", "/10.0.0.9", "User:admin")
NOW = Now(1_000, 1_700_000_000_000)
SESSION = "consumer.session.timeout.ms"


class Cluster:
    """A cluster shard, and everything that it gave back."""

    def __init__(self, **limits):
        self.limits = CoreLimits(**limits)
        self.shard = ClusterShard(self.limits)
        self.records, self.events = [], []

    def alter(self, *groups, validate_only=False):
        """Hand in an AlterGroupConfigs; the errors of its groups, and the two lists grown."""
        changes = tuple(GroupConfigChange(g, tuple(pairs.items())) for g, pairs in groups)
        request = AlterGroupConfigs(ADMIN, changes, validate_only)
        step = self.shard.handle(request, "ticket", NOW)
        self.records += step.records
        self.events += step.events
        (reply,) = step.replies
        assert (reply.ticket, reply.waits) == ("ticket", True)
        assert reply.result.error is ErrorCode.NONE
        assert [r.group_id for r in reply.result.groups] == [g for g, _ in groups]
        again = ClusterShard(self.limits)
        for record in self.records:
            again.apply(record)
        assert again.configs == self.shard.configs
        return [(r.error, r.message) for r in reply.result.groups]

    def set(self, group, **pairs):
        """Change one group; underscores stand for dots."""
        ((error, _),) = self.alter((group, {k.replace("_", "."): v for k, v in pairs.items()}))
        return error


def test_what_is_set_is_written_and_told():
    cluster = Cluster()
    assert cluster.set("g", commit_monotonic="true", offsets_retention_minutes="5") == 0
    configs = {"commit.monotonic": "true", "offsets.retention.minutes": "5"}
    assert cluster.shard.configs == {"g": configs}
    assert cluster.records == [GroupConfigs("g", configs)]
    (event,) = cluster.events
    assert (event.group_id, event.target, event.action) == ("g", "g", "alter_group_configs")
    assert event.detail == "commit.monotonic=true offsets.retention.minutes=5"
    assert (event.client_id, event.client_host, event.principal) == tuple(ADMIN)


def test_a_change_leaves_other_keys_alone():
    cluster = Cluster()
    cluster.set("g", commit_monotonic="true")
    cluster.set("g", rebalance_max_join_ms="1000")
    assert cluster.shard.configs["g"] == {
        "commit.monotonic": "true",
        "rebalance.max.join.ms": "1000",
    }
    assert cluster.events[-1].detail == "rebalance.max.join.ms=1000"


def test_the_last_key_taken_back_takes_the_group_out():
    cluster = Cluster()
    cluster.set("g", commit_monotonic="true")
    cluster.set("g", commit_monotonic=None)
    assert cluster.shard.configs == {}
    assert cluster.records[-1] == GroupConfigs("g", {})
    assert cluster.events[-1].detail == "-commit.monotonic"


@pytest.mark.parametrize(
    "pairs", [{}, {SESSION: None}, {"nowhere": None}, {"commit.monotonic": "true"}]
)
def test_what_changes_nothing_is_not_written(pairs):
    cluster = Cluster()
    cluster.set("g", commit_monotonic="true")
    assert cluster.alter(("g", pairs)) == [(ErrorCode.NONE, None)]
    assert len(cluster.records) == len(cluster.events) == 1


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        (SESSION, " 46000 ", "46000"),
        (SESSION, "0046000", "46000"),
        (SESSION, "+46000", "46000"),
        ("rebalance.max.join.ms", "2147483647", "2147483647"),
        ("commit.monotonic", " True ", "true"),
    ],
)
def test_values_are_kept_in_one_form(key, value, kept):
    cluster = Cluster()
    assert cluster.alter(("g", {key: value})) == [(ErrorCode.NONE, None)]
    assert cluster.shard.configs == {"g": {key: kept}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nowhere", "1"),
        (SESSION, "x"),
        (SESSION, ""),
        (SESSION, "46000.0"),
        (SESSION, "44999"),
        (SESSION, "60001"),
        (SESSION, "99999999999"),
        (SESSION, "\u00a046000"),
        (SESSION, "\uff14\uff16000"),
        (SESSION, "4" * 5_000),
        ("share.isolation.level", "read_committed"),
        ("consumer.heartbeat.interval.ms", "45000"),
        ("commit.monotonic", "yes"),
        ("offsets.retention.minutes", "0"),
        ("rebalance.max.join.ms", "-1"),
        ("rebalance.max.join.ms", "2147483648"),
        ("initial.rebalance.delay.ms", "2147483648"),
    ],
)
def test_a_wrong_value_refuses_the_group_as_a_whole(key, value):
    cluster = Cluster()
    ((error, message),) = cluster.alter(("g", {"commit.monotonic": "true", key: value}))
    assert error is ErrorCode.INVALID_CONFIG
    assert message
    assert cluster.shard.configs == {}
    assert cluster.records == []


def test_each_group_is_judged_on_its_own():
    cluster = Cluster()
    answers = cluster.alter(
        ("a", {"commit.monotonic": "true"}),
        ("", {"commit.monotonic": "true"}),
        ("b", {"nowhere": "1"}),
        ("c", {"commit.monotonic": "false"}),
    )
    assert [error for error, _ in answers] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.NONE,
    ]
    assert set(cluster.shard.configs) == {"a", "c"}


def test_validating_answers_the_same_and_changes_nothing():
    cluster = Cluster(max_configured_groups=1)
    groups = [("a", {"commit.monotonic": "true"}), ("b", {"commit.monotonic": "true"})]
    validated = cluster.alter(*groups, validate_only=True)
    assert cluster.shard.configs == {}
    assert (cluster.records, cluster.events) == ([], [])
    assert cluster.alter(*groups) == validated


def test_so_many_groups_may_have_configs_and_no_more():
    cluster = Cluster(max_configured_groups=2)
    assert cluster.set("a", commit_monotonic="true") is ErrorCode.NONE
    assert cluster.set("b", commit_monotonic="true") is ErrorCode.NONE
    assert cluster.set("c", commit_monotonic="true") is ErrorCode.POLICY_VIOLATION
    assert cluster.set("a", commit_monotonic="false") is ErrorCode.NONE
    assert cluster.set("a", commit_monotonic=None) is ErrorCode.NONE
    assert cluster.set("c", commit_monotonic="true") is ErrorCode.NONE


def test_a_lowered_limit_leaves_what_is_there_and_lets_it_be_changed():
    cluster = Cluster(max_configured_groups=0)
    for group in ("a", "b"):
        cluster.shard.apply(GroupConfigs(group, {"commit.monotonic": "true"}))
        cluster.records.append(GroupConfigs(group, {"commit.monotonic": "true"}))
    assert cluster.set("a", commit_monotonic="false") is ErrorCode.NONE
    assert cluster.set("c", commit_monotonic="true") is ErrorCode.POLICY_VIOLATION


def test_what_would_be_too_large_for_the_storage_is_refused_from_there_on():
    cluster = Cluster(max_step_bytes=4_000)
    groups = [(str(n) * 50, {"commit.monotonic": "true"}) for n in range(4)]
    errors = [error for error, _ in cluster.alter(*groups)]
    assert errors == [ErrorCode.NONE] * 2 + [ErrorCode.POLICY_VIOLATION] * 2
    assert len(cluster.records) == 2


def test_a_key_that_is_not_known_any_more_goes_with_the_next_change():
    cluster = Cluster()
    cluster.shard.apply(GroupConfigs("g", {"share.isolation.level": "read_committed"}))
    assert cluster.alter(("g", {"commit.monotonic": "true"})) == [(ErrorCode.NONE, None)]
    assert cluster.shard.configs == {"g": {"commit.monotonic": "true"}}
