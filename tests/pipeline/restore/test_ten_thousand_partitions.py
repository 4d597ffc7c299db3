"""A group of 10,000 partitions: Kafka creates 5,000 at once, the others come by growing."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from groupkeeper.pipeline.restore.apply import Purpose, Result, apply, make_plan
from groupkeeper.pipeline.restore.plan import Committed, Partition, PlanKind
from tests.pipeline.restore.conftest import open_cluster

PARTITIONS = 10_000
AT_ONCE = 5_000
TOPIC = "wide"
LOOKS = 1500


@pytest.fixture(params=["daemon", "kafka"])
def server(request):
    server = request.getfixturevalue(request.param)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(TOPIC, AT_ONCE, 1)], request_timeout=120)[TOPIC].result()
    grown = admin.create_partitions([NewPartitions(TOPIC, PARTITIONS)], request_timeout=120)
    grown[TOPIC].result()
    # the broker answers before it knows them itself; minutes, on a machine that is busy
    for _ in range(LOOKS):
        if len(admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions) == PARTITIONS:
            return server
        time.sleep(0.2)
    raise AssertionError(f"{TOPIC} did not grow")


def test_ten_thousand_partitions_are_restored_and_taken_back(server, group):
    wide = [Partition(TOPIC, number) for number in range(PARTITIONS)]
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
        assert outcome.changed == PARTITIONS
        assert cluster.offsets([group])[group] == wanted[group]
        (back,) = apply(cluster, plan.undo(3).content.groups)
        assert back.result is Result.APPLIED, back
        assert cluster.offsets([group])[group] == now
