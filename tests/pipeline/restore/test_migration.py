"""Groups from Kafka to groupkeeper and back, many at once; by hand with MIGRATE_GROUPS=2000."""

from __future__ import annotations

import os
import sys
import time
from random import Random

import pytest

from groupkeeper.pipeline.restore.apply import Result, apply
from groupkeeper.pipeline.restore.cluster import ClusterEndpoint
from groupkeeper.pipeline.restore.migrate import (
    MigrationRoute,
    MigrationStep,
    plan_migration,
    run_plan,
    source_drift,
)
from groupkeeper.pipeline.restore.plan import Committed, Partition
from tests.pipeline.restore.conftest import TOPICS, command, open_cluster

GROUPS = int(os.environ.get("MIGRATE_GROUPS", "200"))
"""Not ``GROUPS``: bash takes that for itself, and would leave the default without a word."""
HALF_WAY = 3
"""Groups that are done when the first apply dies."""


def test_groups_go_from_kafka_to_groupkeeper_and_back(kafka, daemon, spark):
    random = Random(7)
    names = [f"migrated-{number:04}" for number in range(GROUPS)]
    partitions = [Partition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
    lives = {
        name: {
            each: Committed(random.randrange(100), -1, random.choice(["", "", f"m {name}"]))
            for each in random.sample(partitions, random.randrange(1, len(partitions)))
        }
        for name in names
    }
    with open_cluster(kafka.bootstrap) as cluster:
        for name, offsets in lives.items():
            cluster.commit(name, offsets)

    began = time.monotonic()
    there = MigrationRoute(
        ClusterEndpoint(kafka.bootstrap),
        ClusterEndpoint(daemon.bootstrap),
        ClusterEndpoint(daemon.bootstrap),
    )
    migration = plan_migration(spark, there, 1, ["migrated-*"])
    assert (len(migration.plan.content.groups), migration.failed) == (GROUPS, {})

    # the first apply dies between two groups, and is continued by running it again
    with ClusterEndpoint(daemon.bootstrap).open(migration.plan.client_id) as cluster:
        dies = apply(cluster, migration.plan.content.groups)
        for _ in range(HALF_WAY):
            next(dies)
    outcomes = run_plan(spark, there.target, migration.plan, MigrationStep.APPLY)
    results = [outcome.result for outcome in outcomes]
    assert results.count(Result.DONE_BEFORE) == HALF_WAY
    assert results.count(Result.APPLIED) == GROUPS - HALF_WAY
    assert told(daemon, names) == lives
    assert all(
        o.is_well for o in run_plan(spark, there.target, migration.plan, MigrationStep.VERIFY)
    )
    assert all(o.is_well for o in source_drift(spark, there.source, migration.plan))

    # Kafka forgets them, and gets them back
    delete_groups(kafka.bootstrap, names)
    assert not any(told(kafka, names).values())
    back = MigrationRoute(there.target, there.source, there.source)
    returned = plan_migration(spark, back, 2, ["migrated-*"])
    outcomes = run_plan(spark, back.target, returned.plan, MigrationStep.APPLY)
    assert {outcome.result for outcome in outcomes} == {Result.APPLIED}
    assert told(kafka, names) == lives
    took_s = time.monotonic() - began
    sys.stdout.write(
        f"{GROUPS} groups, {sum(map(len, lives.values()))} offsets, Kafka -> groupkeeper -> Kafka "
        f"in {took_s:.0f} s\n"
    )

    # rolled back: what was brought is gone again
    outcomes = run_plan(spark, back.target, returned.plan.undo(3), MigrationStep.APPLY)
    assert {outcome.result for outcome in outcomes} == {Result.APPLIED}
    assert not any(told(kafka, names).values())


def told(server, names):
    with open_cluster(server.bootstrap) as cluster:
        return cluster.offsets(names)


def delete_groups(bootstrap, names):
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for at in range(0, len(names), 100):
        for done in admin.delete_consumer_groups(names[at : at + 100]).values():
            done.result(60)


def test_topics_are_mapped_drift_is_told_and_the_target_keeps_what_it_had(
    kafka, daemon, spark, tmp_path
):
    orders, clicks = Partition("orders", 1), Partition("clicks", 1)
    with open_cluster(kafka.bootstrap) as source, open_cluster(daemon.bootstrap) as target:
        source.commit("mapped-1", {orders: Committed(11, 0, "m")})
        target.commit("mapped-1", {orders: Committed(3)})
        file = tmp_path / "plan.json"
        where = ["--from", kafka.bootstrap, "--server", daemon.bootstrap, "--out", file]
        command("migrate", *where, "--group", "mapped-*", "--map", "orders=clicks", "--apply")
        assert target.offsets(["mapped-1"])["mapped-1"] == {
            orders: Committed(3),
            clicks: Committed(11, -1, "m"),
        }
        still = command("migrate", "--plan", file, "--verify", "--from", kafka.bootstrap)
        assert "1 group as planned\n" in still.out
        assert "1 group unchanged since the plan was made\n" in still.out
        source.commit("mapped-1", {orders: Committed(12)})
        moved = command("migrate", "--plan", file, "--verify", "--from", kafka.bootstrap, code=1)
        assert "changed at the source" in moved.err
        target.commit("mapped-1", {clicks: Committed(13)})
        drifted = command("migrate", "--plan", file, "--apply", code=1)
        assert "clicks-1 has 13, the plan knows none and 11 'm'" in drifted.err


def test_a_source_without_such_groups_is_told(kafka, daemon, spark, tmp_path):
    where = ["--from", kafka.bootstrap, "--server", daemon.bootstrap, "--out", tmp_path / "p.json"]
    nothing = command("migrate", *where, "--group", "no-such-*", code=4)
    assert "no group there" in nothing.err


def test_a_source_that_is_not_there_is_told(daemon, spark, tmp_path):
    where = ["--from", "127.0.0.1:1", "--server", daemon.bootstrap, "--out", tmp_path / "p.json"]
    gone = command("migrate", *where, "--timeout", "2", code=1)
    assert "cannot connect" in gone.err


@pytest.mark.parametrize("options", [["--server"], ["--server", "{daemon}", "--data"]])
def test_a_target_that_is_not_there_ends_with_one_line_and_no_plan(
    kafka, daemon, spark, tmp_path, options
):
    with open_cluster(kafka.bootstrap) as cluster:
        cluster.commit("stranded-1", {Partition("orders", 0): Committed(1)})
    file = tmp_path / "p.json"
    there = [each.format(daemon=daemon.bootstrap) for each in options]
    where = ["--from", kafka.bootstrap, *there, "127.0.0.1:1", "--out", file]
    gone = command("migrate", *where, "--group", "stranded-*", "--timeout", "2", code=1)
    assert "127.0.0.1:1: cannot connect" in gone.err
    assert len([line for line in gone.err.splitlines() if line.startswith("groupkeeper: 1")]) == 1
    assert (gone.out, file.exists()) == ("", False)


def test_a_group_that_cannot_be_planned_is_told_and_fails_the_command(
    kafka, daemon, spark, tmp_path
):
    orders, clicks = Partition("orders", 0), Partition("clicks", 0)
    with open_cluster(kafka.bootstrap) as cluster:
        cluster.commit("collides-both", {orders: Committed(1), clicks: Committed(2)})
        cluster.commit("collides-one", {orders: Committed(3)})
    asked = ["migrate", "--from", kafka.bootstrap, "--server", daemon.bootstrap]
    asked += ["--map", "orders=clicks"]
    alone = tmp_path / "alone.json"
    none = command(*asked, "--group", "collides-both", "--out", alone, code=1)
    assert "collides-both: two topics would become 'clicks'" in none.err
    assert (none.out, alone.exists()) == ("", False)

    asked += ["--group", "collides-*"]
    seen = command(*asked, "--out", tmp_path / "dry.json", code=1)
    assert "collides-both: is left out of the plan: two topics" in seen.err
    assert "1 group ready to be changed" in seen.out
    done = command(*asked, "--out", tmp_path / "p.json", "--apply", "-o", "json", code=1)
    results = {each["group"]: each["result"] for each in done.content["outcomes"]}
    assert results == {"collides-one": "applied", "collides-both": "refused"}
