"""Members of the classic protocol with a cooperative assignor (KIP-429), in worlds whose groups
change their type.

They read on while they join, and give up only what their leader takes from them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from tests.simulation.classic_clients import SESSION_MS, ClassicClient, Rejoin
from tests.simulation.consumer_clients import Disconnected, Held

LOSES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    }
)
"""Errors after which a member may no longer read its partitions (onPartitionsLost)."""

WAITS_S: Final = SESSION_MS / 1000 - 1
"""The longest time to give up partitions. The clients send no heartbeat meanwhile."""


class CooperativeClient(ClassicClient):
    """One consumer with the assignor ``cooperative-sticky``."""

    assignor = "cooperative-sticky"
    _has_lost = False

    def _subscription(self) -> Subscription:
        """Give up the topics that it no longer subscribes to. Report the other partitions."""
        names = {info.topic_id: info.name for info in self.world.topics_by_name().values()}
        self._give_up({(topic, n) for topic, n in self.held if names.get(topic) not in self.topics})
        owned: dict[str, list[int]] = {}
        for topic, number in sorted(self.held):
            owned.setdefault(names[topic], []).append(number)
        generation_id = self._generation_id if self.held else -1
        return Subscription(3, [*self.topics], None, owned, generation_id)

    async def _take(self, assigned: Held) -> None:
        self.world.took(self, assigned - self.held)
        self.held |= assigned
        if gone := self.held - assigned:
            self.world.seen["cooperative members give up partitions"] += 1
            await asyncio.sleep(min(self.world.user_takes_s(), WAITS_S))
            self._give_up(gone)
            raise Rejoin

    def _share_out(self) -> tuple[tuple[str, bytes], ...]:
        """As a leader, assign a partition that moves to nobody until its member has given it up."""
        subscriptions = {who: decode_subscription(data) for who, data in self._members.items()}
        owners: dict[tuple[str, int], str] = {}
        for who in sorted(subscriptions, key=lambda each: subscriptions[each].generation_id):
            for topic, numbers in subscriptions[who].owned_partitions.items():
                owners |= dict.fromkeys([(topic, number) for number in numbers], who)
        shares = []
        for who, data in super()._share_out():
            share = {
                topic: [n for n in numbers if owners.get((topic, n), who) == who]
                for topic, numbers in decode_assignment(data).partitions.items()
            }
            shares.append((who, encode_assignment(ConsumerAssignment(1, share))))
        return tuple(shares)

    async def _work(self) -> None:
        # As a real client, it goes on in its generation if the process was restarted meanwhile.
        with suppress(Disconnected):
            await super()._work()

    async def _react(self, code: ErrorCode) -> None:
        self._has_lost = self._has_lost or code in LOSES
        await super()._react(code)

    def _end_generation(self) -> None:
        if self._has_lost:
            self._has_lost = False
            self._abandon()

    def _give_up(self, partitions: Held) -> None:
        self.world.released(self, partitions)
        self.held -= partitions
