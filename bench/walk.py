"""List the files that a request passes from its bytes to its answer, in order.

    python -m bench.walk            a JoinGroup and an OffsetCommit
    python -P bench/walk.py         the same of the tree that PYTHONPATH names, an older one too

A file is listed if one of its functions runs. The store is in memory, so files of other stores are
not listed. docs/architecture.md has the result.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from pathlib import Path
from typing import Any

# Replaced before the import of the tree, which keeps these functions. Time passes only when it is
# read. So the trace makes no request slow, which would run the code for slow requests.
time.monotonic = time.perf_counter = itertools.count(1_000.0, 2e-5).__next__

from bench import hot_bench  # noqa: E402

TREE = Path(hot_bench.__file__).resolve().parents[1]
SOURCES = ("coordinator", "protocol", "storage")


class Walk:
    """Records the files whose functions are called within its ``with`` block."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = {}
        """File -> the functions that ran in it. Both are in the order of their first call."""
        self._known: dict[str, str | None] = {}

    def __enter__(self) -> Walk:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: Any, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename not in self._known:
            self._known[code.co_filename] = _name(code.co_filename)
        name = self._known[code.co_filename]
        if name is not None:
            functions = self.files.setdefault(name, [])
            if code.co_name not in functions:
                functions.append(code.co_name)


def _name(filename: str) -> str | None:
    """Return the path of a source file of the product in the tree; None for other files."""
    path = Path(filename).resolve()
    if not path.is_relative_to(TREE) or path.relative_to(TREE).parts[0] not in SOURCES:
        return None
    return str(path.relative_to(TREE))


async def walk_of(wire: Any, frame: bytes) -> dict[str, list[str]]:
    """Send a request, and return the files that run until its answer is written."""
    wire.transport.writes.clear()
    for _ in range(100):  # earlier work has ended after this
        await asyncio.sleep(0)
    with Walk() as walk:
        wire.connection.data_received(frame)
        while not wire.transport.writes:  # noqa: ASYNC110 - a fake transport has no event to wait for
            await asyncio.sleep(0)
    return walk.files


async def walks() -> dict[str, dict[str, list[str]]]:
    """Return the walks of a JoinGroup of a first member, and of a commit of ten offsets."""
    bench = hot_bench.Bench(hot_bench.MemoryOffsetStorage())
    await bench.coordinator.start()
    new, old = bench.wires[:2]
    old.prepare(await old.join())
    joining = {
        "group_id": new.group_id,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    member_id = (await new.call("join_group", 9, member_id="", **joining))["member_id"]
    values = joining | {"member_id": member_id}
    join = hot_bench.encode_request("join_group", 9, values, 7, "bench")
    await walk_of(old, old.commit)  # the first one creates its counter
    found = {
        "JoinGroup": await walk_of(new, join),
        "OffsetCommit": await walk_of(old, old.commit),
    }
    await bench.coordinator.stop()
    return found


def main() -> None:
    """Print the files."""
    for api, files in asyncio.run(walks()).items():
        print(f"{api}: {len(files)} files")
        for name, functions in files.items():
            print(f"  {name:48} {', '.join(functions)}")


if __name__ == "__main__":
    main()
