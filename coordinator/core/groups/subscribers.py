"""Which groups of a shard subscribe to each topic. If a topic changes, only the groups that
subscribe to it are checked.

Classic groups are not in this map: their members watch the topics themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Set


class Subscribers:
    """Maps the name of a topic to the groups that subscribe to it. The topic need not exist."""

    def __init__(self) -> None:
        self._groups_of: dict[str, Set[str]] = {}
        """Topic -> group ids. The topics to which only one group subscribes share one frozen set,
        because a member may subscribe to 20,000 topics.
        """

    def change(self, group_id: str, was: Set[str], now: Set[str]) -> None:
        """Replace the subscribed topics ``was`` of a group by ``now``. For a deleted group ``now``
        is empty.
        """
        groups_of = self._groups_of
        added = now - was
        alone = frozenset(added).difference(groups_of)
        for topic in added - alone:
            groups = groups_of[topic]
            if isinstance(groups, set):
                groups.add(group_id)
            else:
                groups_of[topic] = {*groups, group_id}
        groups_of.update(dict.fromkeys(alone, frozenset((group_id,))))
        for topic in was - now:
            groups = groups_of[topic]
            if len(groups) == 1:
                del groups_of[topic]
            else:
                assert isinstance(groups, set), "several groups are never frozen"
                groups.remove(group_id)

    def of(self, topics: Iterable[str]) -> list[str]:
        """Return the ids of the groups that subscribe to any of these topics, sorted."""
        groups_of = self._groups_of
        return sorted({group for topic in topics for group in groups_of.get(topic, ())})
