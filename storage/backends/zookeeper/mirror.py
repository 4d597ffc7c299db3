"""Writes the mirror, a copy of the groups for other programs (``storage.backends.mirror``). Its
znodes are those in which Kafka's consumers before 0.9 kept their state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from groupkeeper.storage.backends.mirror.mirrored import (
    NO_NODES,
    MirroredGroup,
    MirroredSubscription,
    registration,
)
from groupkeeper.storage.backends.zookeeper.mirror_nodes import (
    EphemeralNodes,
    delete_empty,
    replace_offsets,
)
from groupkeeper.storage.connections.zookeeper import ZooKeeperSession
from groupkeeper.storage.connections.zookeeper_settings import ZooKeeperSettings
from groupkeeper.storage.event_log.log_clock import wall_clock_ms


@dataclass
class _Written:
    """The znodes of a group that this session has written: by path, the value of each."""

    ids: dict[str, MirroredSubscription] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)


class ZooKeeperMirrorSession:
    """Writes the mirror over one session. ZooKeeper deletes the znodes of members and owners when
    the session ends.
    """

    def __init__(self, session: ZooKeeperSession, chroot: str) -> None:
        self._session = session
        self._chroot = chroot
        self._written: dict[str, _Written] = {}

    @property
    def why_ended(self) -> str | None:
        why = self._session.why_ended
        return None if why is None else str(why)

    async def wait_ended(self) -> object:
        return await self._session.wait_ended()

    async def close(self) -> None:
        await self._session.close()

    async def write(
        self, group_id: str, wanted: MirroredGroup | None, partitions: Mapping[str, int]
    ) -> bool:
        session = self._session
        root = f"{self._chroot}/consumers/{group_id}"
        nodes = NO_NODES if wanted is None else wanted
        written = self._written.setdefault(group_id, _Written())
        now_s = wall_clock_ms() // 1000
        ids = EphemeralNodes[MirroredSubscription](
            session, f"{root}/ids", lambda subscribed: registration(subscribed, now_s)
        )
        owners = EphemeralNodes[str](session, f"{root}/owners", str.encode)
        are_ids_ours = await ids.replace(written.ids, nodes.ids)
        are_owners_ours = await owners.replace(written.owners, nodes.owners)
        await replace_offsets(session, f"{root}/offsets", written.offsets, nodes.offsets)
        if wanted is None:
            del self._written[group_id]
            await delete_empty(session, root)
        return are_ids_ours and are_owners_ours


def zookeeper_mirror(
    settings: ZooKeeperSettings,
) -> Callable[[], Awaitable[ZooKeeperMirrorSession]]:
    """Return a function that opens a session of a mirror."""

    async def open_session() -> ZooKeeperMirrorSession:
        session = ZooKeeperSession(settings)
        await session.open()
        return ZooKeeperMirrorSession(session, settings.address.chroot)

    return open_session
