"""Migrates thousands of groups between coordinators. Spark tasks make the plan, apply it and verify
it.

Each task opens its own clients and handles some of the groups. If a task cannot reach a server, it
returns an error for each of its groups and does not fail, so Spark never repeats a task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from groupkeeper.pipeline.restore.apply import (
    Outcome,
    Purpose,
    Result,
    apply,
    check,
    make_sealed,
    plan_groups,
    verify,
)
from groupkeeper.pipeline.restore.cluster import ClusterEndpoint, ClusterError, ClusterGroup
from groupkeeper.pipeline.restore.drift import drift
from groupkeeper.pipeline.restore.plan import (
    Committed,
    GroupPlan,
    Partition,
    Plan,
    PlanKind,
    renamed,
)

CLIENT_ID: Final = "groupkeeper-migrate"
"""The client id for reads; writes use the plan's client id."""

TASKS_A_CORE: Final = 2

KNOWN_TYPES: Final = frozenset({"", "classic", "consumer"})
"""Types of groups that have ordinary committed offsets. Old brokers send no type, so it is ""."""


class MigrationRoute(NamedTuple):
    """The source and the target of a migration, and the topics with another name at the target."""

    source: ClusterEndpoint
    target: ClusterEndpoint
    data: ClusterEndpoint | None
    """The cluster with the records that the target's consumers read. None: no offset is clamped to
    the start or the end of its log.
    """
    topics: Mapping[str, str] = {}


class Planned(msgspec.Struct, frozen=True):
    """The plan that a task made for one group, or the reason why there is no plan."""

    group: GroupPlan | None = None
    """None if the group has no committed offset, or if ``error`` has the reason."""
    clamps: bool = False
    name: str = ""
    error: str = ""


class Migration(NamedTuple):
    """A plan, and the groups that need attention before it is applied."""

    plan: Plan
    empty: list[str]
    """Groups without a committed offset. The plan does not have them."""
    active: list[str]
    """Groups with members at the source, whose offsets keep changing."""
    failed: dict[str, str]
    """Maps each group that could not be planned to the reason."""

    def left_out(self) -> list[Outcome]:
        """Return an outcome for each group that could not be planned."""
        return [
            Outcome(group, Result.REFUSED, 0, f"is left out of the plan: {error}")
            for group, error in sorted(self.failed.items())
        ]


class MigrationStep(StrEnum):
    """The step to run with a plan."""

    CHECK = "check"
    APPLY = "apply"
    VERIFY = "verify"


def plan_migration(
    spark: SparkSession,
    route: MigrationRoute,
    created_ms: int,
    patterns: Collection[str] = (),
) -> Migration:
    """Plan the migration of all classic and consumer groups of the source. With patterns, plan only
    the groups that match one.

    Offsets that a group has only at the target stay. Raises ClusterError if the source, the target
    or the cluster with the records does not answer.
    """
    with ExitStack() as stack:
        source = stack.enter_context(route.source.open(CLIENT_ID))
        # checked once here, not for every group
        stack.enter_context(route.target.open(CLIENT_ID))
        if route.data is not None and route.data != route.target:
            stack.enter_context(route.data.open(CLIENT_ID))
        listed = [each for each in source.groups().values() if _is_wanted(each, patterns)]
    names = sorted(each.group for each in listed)
    planned = list(_spread(spark, names, partial(_plan_task, route), Planned))
    groups = sorted((each.group for each in planned if each.group), key=lambda each: each.group)
    purpose = Purpose(
        PlanKind.MIGRATION,
        f"the groups of {route.source.address}",
        created_ms,
        topics=dict(sorted(route.topics.items())),
    )
    data = route.data.address if route.data and any(each.clamps for each in planned) else None
    plan = make_sealed(groups, route.target.address, data, purpose)
    return Migration(
        plan,
        sorted(each.name for each in planned if not each.group and not each.error),
        sorted(each.group for each in listed if each.state and not each.is_idle),
        {each.name: each.error for each in planned if each.error},
    )


def run_plan(
    spark: SparkSession, target: ClusterEndpoint, plan: Plan, step: MigrationStep
) -> list[Outcome]:
    """Run one step of a plan at ``target``: check, apply or verify. Return the outcome of each
    group, sorted by group. Spark tasks handle the groups in parallel.
    """
    encoder = msgspec.json.Encoder()
    groups = [encoder.encode(each).decode() for each in plan.content.groups]
    task = partial(_run_task, target, plan.client_id, step)
    return sorted(_spread(spark, groups, task, Outcome), key=lambda each: each.group)


def source_drift(spark: SparkSession, source: ClusterEndpoint, plan: Plan) -> list[Outcome]:
    """Return an outcome for each group: ``REFUSED`` if its offsets at the source have changed since
    the plan was made (``drift``).
    """
    encoder = msgspec.json.Encoder()
    groups = [encoder.encode(each).decode() for each in plan.content.groups]
    task = partial(_source_task, source, plan.content.topics)
    return sorted(_spread(spark, groups, task, Outcome), key=lambda each: each.group)


def _is_wanted(listed: ClusterGroup, patterns: Collection[str]) -> bool:
    if listed.type.lower() not in KNOWN_TYPES:
        return False
    return not patterns or any(fnmatchcase(listed.group, each) for each in patterns)


# --- tasks, which run in the worker processes of Spark --------------------------------------------


def _plan_task(route: MigrationRoute, names: Sequence[str]) -> Iterator[Planned]:
    try:
        with ExitStack() as stack:
            source = stack.enter_context(route.source.open(CLIENT_ID))
            target = stack.enter_context(route.target.open(CLIENT_ID))
            data = None
            if route.data is not None:
                same = route.data == route.target
                data = target if same else stack.enter_context(route.data.open(CLIENT_ID))
            offsets = source.offsets(names)
            wanted, failed = _mapped(offsets, route.topics)
            yield from failed
            groups, clamps = plan_groups(target, wanted, data, lambda partition: False)
    except ClusterError as error:
        yield from (Planned(name=name, error=str(error)) for name in names)
        return
    for each in groups:
        if each.changes:
            yield Planned(each, clamps, each.group)
        else:
            yield Planned(name=each.group)


def _mapped(
    offsets: Mapping[str, Mapping[Partition, Committed]], topics: Mapping[str, str]
) -> tuple[dict[str, Mapping[Partition, Committed]], list[Planned]]:
    wanted: dict[str, Mapping[Partition, Committed]] = {}
    failed = []
    for group, each in offsets.items():
        try:
            wanted[group] = renamed(each, topics)
        except ValueError as error:
            failed.append(Planned(name=group, error=str(error)))
    return wanted, failed


_STEPS: Final = {
    MigrationStep.CHECK: check,
    MigrationStep.APPLY: apply,
    MigrationStep.VERIFY: verify,
}


def _run_task(
    target: ClusterEndpoint, client_id: str, step: MigrationStep, encoded: Sequence[str]
) -> Iterator[Outcome]:
    groups = [msgspec.json.decode(each, type=GroupPlan) for each in encoded]
    reported: set[str] = set()
    try:
        with target.open(client_id) as cluster:
            for outcome in _STEPS[step](cluster, groups):
                reported.add(outcome.group)
                yield outcome
    except ClusterError as error:
        for each in groups:
            if each.group not in reported:
                yield Outcome(each.group, Result.FAILED, 0, f"{error}. Run this again")


def _source_task(
    source: ClusterEndpoint, topics: Mapping[str, str], encoded: Sequence[str]
) -> Iterator[Outcome]:
    groups = [msgspec.json.decode(each, type=GroupPlan) for each in encoded]
    try:
        with source.open(CLIENT_ID) as cluster:
            now = cluster.offsets([each.group for each in groups])
            outcomes = list(drift(groups, now, topics, cluster.owners))
    except ClusterError as error:
        outcomes = [Outcome(each.group, Result.FAILED, 0, str(error)) for each in groups]
    yield from outcomes


Task: TypeAlias = Callable[[Sequence[str]], Iterator[msgspec.Struct]]
Told = TypeVar("Told", bound=msgspec.Struct)


def _spread(
    spark: SparkSession, items: Sequence[str], task: Task, kind: type[Told]
) -> Iterator[Told]:
    """Divide the items among Spark tasks, call ``task`` once in each, and yield all results.

    ``kind`` is the type of a result.
    """
    if not items:
        return
    tasks = min(len(items), TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    slices = [(list(items[at::tasks]),) for at in range(tasks)]
    rows = spark.createDataFrame(slices, "items array<string>").repartition(tasks)
    results = rows.mapInArrow(partial(_in_arrow, task), "result string")
    for row in results.collect():
        yield msgspec.json.decode(row["result"], type=kind)


def _in_arrow(task: Task, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    encoder = msgspec.json.Encoder()
    for batch in batches:
        for row in batch.to_pylist():
            results = [encoder.encode(each).decode() for each in task(row["items"])]
            yield pa.RecordBatch.from_pydict({"result": results})
