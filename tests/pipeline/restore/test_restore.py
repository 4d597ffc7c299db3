"""Restores end to end, against the daemon and against a real Kafka, as a person does them."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from groupkeeper import read_events
from groupkeeper.pipeline.restore.apply import Purpose, clamped, make_plan
from groupkeeper.pipeline.restore.plan import Clamp, Committed, Log, Partition, PlanKind
from tests.helpers.clients.kafka_life import a_consumer, a_new_consumer, commit, join, produce
from tests.pipeline.restore.conftest import (
    SASL_PORT,
    a_moment,
    command,
    open_cluster,
    sqlite_file,
)

ORDERS = [Partition("orders", number) for number in range(4)]
CLICKS = Partition("clicks", 0)
GOOD = {
    ORDERS[0]: Committed(40, 0, "checked ü"),
    ORDERS[1]: Committed(50, 0),
    ORDERS[2]: Committed(60),
    CLICKS: Committed(-5, -1, "odd"),
}
BAD = {ORDERS[0]: Committed(0), ORDERS[1]: Committed(90), ORDERS[3]: Committed(1)}
"""What somebody makes of it, who also deletes the offset of the third partition."""
PURPOSE = Purpose(PlanKind.RESTORE, "what a test knows", 1, 2)


@pytest.fixture(params=["daemon", "kafka"])
def server(request):
    return request.getfixturevalue(request.param)


def offsets(server, group):
    with open_cluster(server.bootstrap) as cluster:
        return cluster.offsets([group])[group]


def reset_badly(server, group):
    with open_cluster(server.bootstrap) as cluster:
        cluster.commit(group, BAD)
        cluster.delete(group, [ORDERS[2]])
    return offsets(server, group)


def iso(ts_ms):
    from groupkeeper.coordinator.cli.pipeline.plan_view import moment

    return moment(ts_ms)


@pytest.fixture
def planned(server, group, tmp_path):
    """A group that somebody reset, and the file of a plan that brings it back; no history asked."""
    with open_cluster(server.bootstrap) as cluster:
        cluster.commit(group, GOOD)
        reset_badly(server, group)
        plan = make_plan(cluster, {group: GOOD}, cluster, PURPOSE)
    file = tmp_path / "plan.json"
    file.write_bytes(plan.encode())
    return file, plan


# --- the whole way --------------------------------------------------------------------------------


@pytest.fixture
def history(server, request, spark, tmp_path):
    """What tells the history of a server: its own store, or an import of its offsets topic."""

    def options():
        if request.node.callspec.params["server"] == "daemon":
            return ["--store", sqlite_file(server)]
        command("dump-offsets", "--server", server.bootstrap, "--out", tmp_path / "dump")
        command("import", tmp_path / "dump", "--tables", tmp_path / "lake")
        return ["--tables", tmp_path / "lake"]

    return options


def test_a_bad_reset_is_undone_and_the_undo_too(server, group, history, tmp_path):
    """A member commits, the group empties, somebody resets it: the member's commits come back."""
    consumer = a_consumer(server.bootstrap, group)
    join(consumer, "orders")
    commit(consumer, {("orders", number): 10 + number for number in range(3)})
    consumer.close()
    with open_cluster(server.bootstrap) as cluster:
        cluster.commit(group, {CLICKS: Committed(-5, -1, "odd"), ORDERS[0]: Committed(40, 0, "ü")})
    good = offsets(server, group)
    before = a_moment()
    bad = reset_badly(server, group)
    assert good != bad
    plan = tmp_path / "plan.json"
    where = [*history(), "--server", server.bootstrap, "--out", plan]

    dry = command("restore", "--group", group, "--as-of", iso(before), *where)
    assert "Nothing was changed" in dry.out
    assert offsets(server, group) == bad

    done = command("restore", "--plan", plan, "--apply")
    assert "1 group changed, and read back as planned" in done.out
    assert offsets(server, group) == good
    assert "Nothing was changed: all is done" in command("restore", "--plan", plan, "--apply").out

    undone = command("restore", "--plan", plan, "--undo", "--apply")
    assert "read back as planned" in undone.out
    assert offsets(server, group) == bad
    assert (
        "Nothing was changed: all is done"
        in command("restore", "--plan", plan, "--undo", "--apply").out
    )


def test_only_the_topics_that_are_named_are_touched(daemon, group, spark, tmp_path):
    with open_cluster(daemon.bootstrap) as cluster:
        cluster.commit(group, {ORDERS[0]: Committed(40), CLICKS: Committed(7)})
        before = a_moment()
        cluster.commit(group, {ORDERS[0]: Committed(0), CLICKS: Committed(0)})
        cluster.commit(group, {Partition("clicks", 1): Committed(9)})
    where = ["--store", sqlite_file(daemon), "--server", daemon.bootstrap]
    options = ["--topic", "orders", "--out", tmp_path / "plan.json", "--apply"]
    command("restore", "--group", group, "--as-of", iso(before), *where, *options)
    now = {key: value.offset for key, value in offsets(daemon, group).items()}
    assert now == {ORDERS[0]: 40, CLICKS: 0, Partition("clicks", 1): 9}
    misspelt = ["--topic", "order", "--out", tmp_path / "nothing.json"]
    told = command("restore", "--group", group, "--as-of", iso(before), *where, *misspelt).err
    assert (
        "has no offset of topic 'order', neither at that moment nor now: is the name right?" in told
    )


def test_a_moment_before_the_group_and_a_group_that_nobody_knows(daemon, group, spark):
    with open_cluster(daemon.bootstrap) as cluster:
        cluster.commit(group, {ORDERS[0]: Committed(1)})
    where = ["--store", sqlite_file(daemon), "--server", daemon.bootstrap]
    early = command("restore", "--group", group, "--as-of", "2020-01-01", *where, code=4)
    assert "had no committed offset at 2020-01-01T00:00:00.000Z" in early.err
    nobody = command("restore", "--group", "nobody", "--as-of", "1s", *where, code=4)
    assert "has no event of group 'nobody'" in nobody.err


# --- applying -------------------------------------------------------------------------------------


def test_the_event_log_names_the_plan_and_has_the_metadata_as_it_was(daemon, group, tmp_path):
    with open_cluster(daemon.bootstrap) as cluster:
        cluster.commit(group, BAD)
        plan = make_plan(cluster, {group: GOOD}, cluster, PURPOSE)
    (tmp_path / "plan.json").write_bytes(plan.encode())
    command("restore", "--plan", tmp_path / "plan.json", "--apply")
    events = list(read_events(sqlite_file(daemon), group_id=group))
    restored = [each for each in events if each["client_id"].startswith("groupkeeper-restore/")]
    assert {each["kind"] for each in restored} == {"commit", "offset_deleted"}
    assert {each["client_id"] for each in restored} == {f"groupkeeper-restore/{plan.id}"}
    written = {
        (topic["topic"], partition["partition"], partition["offset"], partition["metadata"])
        for each in restored
        for topic in each["topics"]
        for partition in topic["partitions"]
        if each["kind"] == "commit"
    }
    # confluent-kafka alone would put a NUL behind every metadata
    assert written == {(*key, value.offset, value.metadata) for key, value in GOOD.items()}


def test_a_group_with_members_is_refused_and_the_members_are_named(server, group, planned):
    file, _ = planned
    consumer = a_consumer(server.bootstrap, group, client_id="billing-7")
    join(consumer, "clicks")
    try:
        now = offsets(server, group)
        refused = command("restore", "--plan", file, "--apply", code=1)
        assert "billing-7 at /127.0.0.1" in refused.err
        assert "stop every consumer" in refused.err
        assert offsets(server, group) == now
        with open_cluster(server.bootstrap) as cluster:
            owner = cluster.owners(group)[Partition("clicks", 0)]
        assert owner == "billing-7 at /127.0.0.1"
    finally:
        consumer.close()
    assert "read back" in command("restore", "--plan", file, "--apply").out
    assert offsets(server, group) == GOOD


def test_a_group_of_the_consumer_protocol_is_restored_when_it_is_empty(kafka, group, tmp_path):
    """KIP-848: the broker has it, DescribeGroups of before does not know it."""
    consumer = a_new_consumer(kafka.bootstrap, group)
    join(consumer, "orders")
    commit(consumer, {("orders", 0): 9})
    with open_cluster(kafka.bootstrap) as cluster:
        plan = make_plan(cluster, {group: GOOD}, cluster, PURPOSE)
    (tmp_path / "plan.json").write_bytes(plan.encode())
    refused = command("restore", "--plan", tmp_path / "plan.json", "--apply", code=1)
    assert "the group has members" in refused.err
    consumer.close()
    command("restore", "--plan", tmp_path / "plan.json", "--apply")
    assert offsets(kafka, group) == GOOD


def test_a_value_that_somebody_changed_since_refuses_the_plan(server, group, planned):
    file, _ = planned
    with open_cluster(server.bootstrap) as cluster:
        cluster.commit(group, {ORDERS[3]: Committed(2)})
    now = offsets(server, group)
    refused = command("restore", "--plan", file, "--apply", code=1)
    assert "orders-3 has 2, the plan knows 1 and none" in refused.err
    assert offsets(server, group) == now


def test_a_plan_is_read_by_programs_too(server, group, planned):
    file, plan = planned
    said = command("restore", "--plan", file, "-o", "json").content
    assert said["id"] == plan.id
    assert said["outcomes"] == [{"group": group, "result": "pending", "changed": 4, "message": ""}]
    assert not said["applied"]


def test_a_file_that_was_edited_is_refused(planned):
    file, _ = planned
    file.write_bytes(file.read_bytes().replace(b"checked", b"changed"))
    assert "checksum" in command("restore", "--plan", file, "--apply", code=1).err


def test_a_server_that_asks_who_one_is_is_told_by_every_client(kafka, group, tmp_path):
    settings = tmp_path / "client.properties"
    settings.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=admin\nsasl.password=secret\n"
    )
    with open_cluster(kafka.bootstrap) as cluster:
        cluster.commit(group, BAD)
        plan = make_plan(cluster, {group: GOOD}, cluster, PURPOSE)
    (tmp_path / "plan.json").write_bytes(plan.encode())
    who = ["--server", f"127.0.0.1:{SASL_PORT}", "--client-config", settings]
    command("restore", "--plan", tmp_path / "plan.json", *who, "--apply")
    assert offsets(kafka, group) == GOOD
    command("dump-offsets", "--out", tmp_path / "dump", *who)
    settings.write_text(settings.read_text().replace("secret", "guessed"))
    refused = command("restore", "--plan", tmp_path / "plan.json", *who, "--timeout", 5, code=1)
    assert "cannot connect" in refused.err


# --- clamping -------------------------------------------------------------------------------------


def test_the_logs_of_kafka_clamp_and_a_coordinator_without_records_does_not(kafka, daemon, group):
    """``short`` has lost its first 30 records, and never had more than 60."""
    from kafka import TopicPartition
    from kafka.admin import KafkaAdminClient

    short = [Partition("short", number) for number in range(4)]
    for server in (kafka, daemon):
        creator = AdminClient({"bootstrap.servers": server.bootstrap})
        creator.create_topics([NewTopic("short", 3, 1)])["short"].result(30)
    produce(kafka.bootstrap, "short", 3, 60)
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    admin.delete_records({TopicPartition("short", number): 30 for number in range(3)})
    admin.close()
    values = dict(zip(short, (5, 10**6, 45, 45), strict=True))
    wanted = {group: {key: Committed(offset, 0, "m") for key, offset in values.items()}}

    with open_cluster(kafka.bootstrap) as there, open_cluster(daemon.bootstrap) as here:
        assert there.keeps_records({"short"})
        assert not here.keeps_records({"short"})
        assert there.logs(set(short)) == dict.fromkeys(short[:3], Log(30, 60))
        of_kafka = make_plan(there, wanted, there, PURPOSE)
        of_ours = make_plan(here, wanted, here, PURPOSE)
        of_both = make_plan(here, wanted, there, PURPOSE)
    targets = [each.target for each in of_kafka.content.groups[0].changes]
    assert targets == [
        Committed(30, -1, "m"),
        Committed(60, -1, "m"),
        Committed(45, 0, "m"),
        None,
    ]
    assert [each.clamp for _, each in clamped(of_kafka)] == [
        Clamp.LOG_START,
        Clamp.LOG_END,
        Clamp.NO_PARTITION,
    ]
    assert of_both.content.groups == of_kafka.content.groups
    assert of_both.content.data == kafka.bootstrap
    assert [each.clamp for _, each in clamped(of_ours)] == [Clamp.NO_PARTITION]
    assert "not clamped" in of_ours.content.data
