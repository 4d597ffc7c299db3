"""A group of 10,000 partitions: Kafka creates 5,000 at once, and the topic grows by the others.

`make test-pipeline` has a group of 1,000, because a broker needs minutes for ten times as many.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from groupkeeper.pipeline.restore.apply import Purpose, Result, apply, make_plan
from groupkeeper.pipeline.restore.plan import Committed, Partition, PlanKind
from tests.pipeline.restore.conftest import open_cluster

LOOKS = 1500


@pytest.fixture(params=[1_000, pytest.param(10_000, marks=pytest.mark.spark_long)])
def wide(request) -> list[Partition]:
    return [Partition(f"wide-{request.param}", number) for number in range(request.param)]


@pytest.fixture(params=["daemon", "kafka"])
def server(request, wide):
    server = request.getfixturevalue(request.param)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topic, partitions = wide[0].topic, len(wide)
    admin.create_topics([NewTopic(topic, partitions // 2, 1)], request_timeout=120)[topic].result()
    grown = admin.create_partitions([NewPartitions(topic, partitions)], request_timeout=120)
    grown[topic].result()
    # the broker answers before it knows them itself; minutes, on a machine that is busy
    for _ in range(LOOKS):
        if len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == partitions:
            return server
        time.sleep(0.2)
    raise AssertionError(f"{topic} did not grow")


def test_every_partition_of_a_wide_group_is_restored_and_taken_back(server, group, wide):
    now = {key: Committed(key.partition) for key in wide}
    wanted = {
        group: {
            key: Committed(key.partition // 2, -1, "m" if key.partition % 100 == 1 else "")
            for key in wide
            if key.partition % 10
        }
    }
    with open_cluster(server.bootstrap) as cluster:
        cluster.commit(group, now)
        assert cluster.offsets([group])[group] == now
        # no log is asked: the topic is empty there, and everything would be clamped to 0
        plan = make_plan(cluster, wanted, None, Purpose(PlanKind.RESTORE, "test", 1, 2))
        (outcome,) = apply(cluster, plan.content.groups)
        assert outcome.result is Result.APPLIED, outcome
        # the first partition stays 0 in a way: it goes, as every tenth does
        assert outcome.changed == len(wide)
        assert cluster.offsets([group])[group] == wanted[group]
        (back,) = apply(cluster, plan.undo(3).content.groups)
        assert back.result is Result.APPLIED, back
        assert cluster.offsets([group])[group] == now
