"""The seeds of ``make test``: the first ones, and those that found something."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

IN_TESTS: Final = 50
"""The number of worlds in every ``make test``. ``make sim`` begins after them."""

FOUND: Final[Mapping[int, str]] = {
    80: "SQLite: topics, configs and ends were lost by the second start after a kill that came "
    "between their row and their table",
    104: "the same, in the worlds as they are since commits have metadata and members are slow",
    55088: "the same, as the hour of 2026-11-22 found it",
    801113: "commits that waited for a load of other shards of their lane for as long as it took",
    801216: "the same",
    203894: "the worlds: a fold held more than its append, by a store that began it a turn late",
    202624: "the worlds: a member that was told by OffsetCommit 9 that its group has gone",
    50396: "the worlds: no process was running, for one that had ended kept its lock, or a start "
    "that failed in trouble was not tried again",
    53942: "the worlds: the same",
    50468: "the worlds: the store was read back while offsets expired",
    50940: "the worlds: a connection that broke within a commit sent another commit behind it",
    53297: "the worlds: the same, with a heartbeat behind it",
    51766: "the worlds: offsets that expire with their group, the clock set back",
    51886: "the worlds: the same, of offsets committed after the group was empty",
    146: "the worlds: a commit that names a partition twice, the first time with long metadata",
    170: "the worlds: the same",
}
"""Maps a seed to the bug that it found. All seeds that found a bug in the coordinator are here. For
bugs in the worlds themselves, there are one or more seeds for each cause.

A change of the worlds turns every seed into another world. An old seed is then a world like others.
Each bug of the coordinator has its own test as well.
"""

CONSUMERS_IN_TESTS: Final = 12
"""The number of worlds of consumer groups in every ``make test``."""

CONSUMERS_FOUND: Final[Mapping[int, str]] = {
    63: "what a member had acknowledged did not count if its heartbeat had to wait for an "
    "assignment",
    379: "a static member that leaves for a short time after its session ended while its heartbeat "
    "waited for an assignment: it was never evicted",
    909: "a group that had just become classic, and a restart: a static member that joined again "
    "was told partitions that another one had not given up",
    1144: "a pattern changed to one that matches nothing, while others had the topics of the old "
    "one: nobody read the member's partitions",
    2065: "a client whose pattern matches nothing ended the rebalance of a classic group: nobody "
    "read the partitions that it would have shared out",
    65: "the worlds: a newcomer with other topics in the place of the static leader of a Stable "
    "classic group, which then keeps its assignment",
}
"""As ``FOUND``, for worlds of consumer groups."""
