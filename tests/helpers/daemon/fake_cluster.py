"""A coordinator in memory, in place of ``pipeline.restore.cluster.Cluster``, for tests of plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from groupkeeper.pipeline.restore.cluster import ClusterError, ClusterGroup, GroupBusy
from groupkeeper.pipeline.restore.plan import Committed, Log, Partition


class FakeCluster:
    """Groups and their offsets. It records each write, and can fail before a chosen one."""

    address = "fake:9092"

    def __init__(
        self,
        offsets: Mapping[str, Mapping[Partition, Committed]],
        logs: Mapping[Partition, Log] | None = None,
    ) -> None:
        self.stored = {group: dict(each) for group, each in offsets.items()}
        self.partition_logs = dict(logs or {})
        self.states: dict[str, str] = {}
        self.member_names: dict[str, list[str]] = {}
        self.writes: list[tuple[str, str]] = []
        self.dies_before: str | None = None
        self.joined_unseen: set[str] = set()
        self.meanwhile: dict[str, dict[Partition, Committed]] = {}
        """Group -> the offsets that another client commits during the first write."""
        self.committed_over: dict[str, dict[Partition, Committed]] = {}

    def groups(self) -> dict[str, ClusterGroup]:
        return {
            group: ClusterGroup(group, self.states.get(group, "Empty"), "classic")
            for group in self.stored
        }

    def members(self, group: str) -> list[str]:
        return self.member_names.get(group, [])

    def offsets(self, groups: Sequence[str]) -> dict[str, dict[Partition, Committed]]:
        return {group: dict(self.stored.get(group, {})) for group in groups}

    def existing(self, partitions: Collection[Partition]) -> set[Partition]:
        return self.partition_logs.keys() & set(partitions)

    def logs(self, partitions: Collection[Partition]) -> dict[Partition, Log]:
        return {each: log for each, log in self.partition_logs.items() if each in partitions}

    def commit(self, group: str, offsets: Mapping[Partition, Committed]) -> None:
        self._write("commit", group)
        self.stored.setdefault(group, {}).update(offsets)
        self.stored[group].update(self.committed_over.get(group, {}))

    def delete(self, group: str, partitions: Collection[Partition]) -> None:
        self._write("delete", group)
        for each in partitions:
            del self.stored[group][each]

    def _write(self, what: str, group: str) -> None:
        if self.dies_before == group:
            raise ClusterError("fake:9092: closed the connection")
        if group in self.joined_unseen:
            raise GroupBusy(f"fake:9092: group {group!r} has members")
        self.writes.append((what, group))
        for other, offsets in self.meanwhile.items():
            self.stored[other].update(offsets)
        self.meanwhile = {}
