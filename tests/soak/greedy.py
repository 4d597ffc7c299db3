"""A client that takes all the room there is: for offsets in its group, and for more groups."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.helpers.wire.raw_client import RawClient
from tests.soak.ledger import Ledger, Writer
from tests.soak.raw_members import LARGE_NOTE, MEMBER_ID_REQUIRED, NONE, NOT_READY

GROUP: Final = "greedy"
TOPIC: Final = "wide"
PARTITIONS: Final = 60
"""With their metadata they would take 1.5 MB, more than a group may take here."""
MAX_GROUP_BYTES: Final = 1_048_576
"""Some parts of a fold. A group of the members takes a quarter of it."""
SPARE_GROUPS: Final = 20
"""Groups that may exist beside those of the members and the greedy one."""

_FULL: Final = 28
"""INVALID_COMMIT_OFFSET_SIZE."""
_NO_MORE_GROUPS: Final = 15
"""COORDINATOR_NOT_AVAILABLE."""
_AT_ONCE: Final = 10
"""Partitions of one commit."""


class Greedy:
    """Comes again and again. Each time it commits until its group is full, and names new groups
    until there may be no more; these it deletes.
    """

    def __init__(self, port: int, directory: Path, ledger: Ledger) -> None:
        self.is_group_full = self.are_groups_full = False
        self.findings: list[str] = []
        self._port = port
        path = directory / f"{GROUP}.ledger"
        self._writer = Writer(path)
        ledger.follow(GROUP, path, repeats=False)
        self._thread: threading.Thread | None = None

    def come(self) -> None:
        """Begin, in a thread of its own: a daemon that is stopped answers late."""
        if self._thread is None or not self._thread.is_alive():
            self.is_group_full = self.are_groups_full = False
            self._thread = threading.Thread(target=self._run, name="greedy client", daemon=True)
            self._thread.start()

    def is_refused(self) -> bool:
        """Return whether it met both bounds since it came; if not, it comes again."""
        if self.is_group_full and self.are_groups_full:
            return True
        self.come()
        return False

    def go(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with RawClient(self._port, client_id=GROUP, timeout_s=10) as client:
                self._fill_group(client)
                self._fill_groups(client)
        except OSError:
            return  # the daemon was killed, or is slow

    def _fill_group(self, client: RawClient) -> None:
        for start in range(0, PARTITIONS, _AT_ONCE):
            codes = self._commit(client, range(PARTITIONS)[start : start + _AT_ONCE])
            if _FULL in codes:
                self.is_group_full = True
            self._expect(codes, (NONE, _FULL), "commits")

    def _fill_groups(self, client: RawClient) -> None:
        """One group more than there may be is refused; those that exist are served."""
        named = [f"newcomer-{number}" for number in range(SPARE_GROUPS + 1)]
        codes = [_join(client, group) for group in named]
        self._expect(codes, (MEMBER_ID_REQUIRED, _NO_MORE_GROUPS), "joins new groups")
        if codes.count(MEMBER_ID_REQUIRED) > SPARE_GROUPS:
            self.findings.append(f"more groups were made than the {SPARE_GROUPS} that are allowed")
        if (codes[0], codes[-1]) == (MEMBER_ID_REQUIRED, _NO_MORE_GROUPS):
            self.are_groups_full = True
        self._expect(self._commit(client, [0]), (NONE,), "commits while groups are full")
        client.call("delete_groups", 2, groups_names=named)

    def _commit(self, client: RawClient, partitions: Sequence[int]) -> list[int]:
        offset = self._writer.next_offset(0)
        self._writer.sends(f"{GROUP}-0", GROUP, offset, [*partitions])
        rows = [
            {"partition_index": p, "committed_offset": offset, "committed_metadata": LARGE_NOTE}
            for p in partitions
        ]
        reply = client.call(
            "offset_commit",
            7,
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            topics=[{"name": TOPIC, "partitions": rows}],
        )
        told = {p["partition_index"]: p["error_code"] for p in reply["topics"][0]["partitions"]}
        self._writer.has(f"{GROUP}-0", GROUP, offset, [p for p, c in told.items() if c == NONE])
        return [*told.values()]

    def _expect(self, codes: Iterable[int], allowed: Sequence[int], what: str) -> None:
        odd = sorted(set(codes) - {*allowed, *NOT_READY})
        if odd:
            self.findings.append(f"the greedy client {what}, and is answered {odd}")


def _join(client: RawClient, group: str) -> int:
    reply = client.call(
        "join_group",
        5,
        group_id=group,
        session_timeout=10_000,
        rebalance_timeout=10_000,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    code: int = reply["error_code"]
    return code


def parts_of_group(database: Path) -> int:
    """Count the parts in which the group is folded; 0: it is folded as one, or not yet."""
    with closing(sqlite3.connect(database)) as connection:
        ((count,),) = connection.execute(
            "SELECT count(*) FROM group_parts WHERE group_id = ?", (GROUP,)
        ).fetchall()
    return int(count)
