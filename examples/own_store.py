"""Committed offsets in a store of your own: here a JSON file a group, with four methods over it."""

import asyncio
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from groupkeeper import (
    GroupCoordinator,
    GroupOffsets,
    OffsetAndMetadata,
    OffsetManager,
    PersistentOffsetStorage,
)


class JsonFiles:
    """A method that waits for something would be ``async``; these are quick."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def store(self, group_id: str, topic: str, partition: int, offset: OffsetAndMetadata) -> None:
        offsets = {name: dict(rows) for name, rows in self.fetch_all(group_id).items()}
        offsets.setdefault(topic, {})[partition] = offset
        new = self._file(group_id).with_suffix(".new")
        with new.open("w") as file:
            json.dump(
                {t: {p: asdict(each) for p, each in rows.items()} for t, rows in offsets.items()},
                file,
            )
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._file(group_id))

    def fetch(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        return self.fetch_all(group_id).get(topic, {}).get(partition)

    def fetch_all(self, group_id: str) -> GroupOffsets:
        if not self._file(group_id).exists():
            return {}
        stored = json.loads(self._file(group_id).read_text())
        return {
            topic: {int(p): OffsetAndMetadata(**each) for p, each in rows.items()}
            for topic, rows in stored.items()
        }

    def delete(self, group_id: str) -> None:
        self._file(group_id).unlink(missing_ok=True)

    def _file(self, group_id: str) -> Path:
        return self.folder / f"{group_id.encode().hex()}.json"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for life in ("first", "second"):
            coordinator = GroupCoordinator(PersistentOffsetStorage(JsonFiles(Path(folder))))
            await coordinator.start()
            offsets = OffsetManager(coordinator)
            print(f"{life} life begins with", await offsets.get_all_offsets("billing"))
            await offsets.commit_offset("billing", "orders", 0, 42)
            await coordinator.stop()


if __name__ == "__main__":
    asyncio.run(main())
