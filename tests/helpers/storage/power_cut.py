"""Simulates what a power cut would leave of a directory, from the syncs in it.

``PowerCut`` records each sync, rename, deletion and removed directory below a folder, in order. It
knows what the disk certainly has: the content of a file at its last sync, under the names that its
directory had at the last sync of the directory. A deletion counts at once, because a disk may
execute it before anybody waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Told = Callable[[str, str], None]


class PowerCut:
    """Records the changes and syncs below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[tuple[str, str]] = []
        """[(operation, path relative to the folder)], in order. "." is the folder itself."""
        self.after_each: Callable[[], None] = lambda: None
        self._content: dict[int, bytes] = {}
        """Inode -> the synced content of the file."""
        self._names: dict[Path, dict[str, int]] = {folder: {}}
        """Directory -> the names in it at its last sync -> inode."""

    @contextmanager
    def recording(self, patch: pytest.MonkeyPatch) -> Iterator[PowerCut]:
        """Record everything until the end of the block."""
        with patch.context() as context:
            for name in ("fsync", "fdatasync"):
                context.setattr(os, name, self._synced(getattr(os, name)))
            context.setattr(os, "rename", self._renamed(os.rename))
            for name in ("unlink", "remove", "rmdir"):
                context.setattr(os, name, self._deleted(getattr(os, name)))
            yield self

    def note(self, step: str) -> None:
        """Add a step of the store to the order."""
        self._tell(step, "")

    def leave(self, target: Path) -> None:
        """Write what a power cut at this moment would leave."""
        self._leave(self.folder, target)

    def _leave(self, folder: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for name, inode in self._names.get(folder, {}).items():
            if folder / name in self._names:
                self._leave(folder / name, target / name)
            else:
                (target / name).write_bytes(self._content.get(inode, b""))

    def _tell(self, did: str, what: str) -> None:
        self.done.append((did, what))
        self.after_each()

    def _below(self, path: Any) -> str | None:
        path = Path(os.fsdecode(path))
        return str(path.relative_to(self.folder)) if path.is_relative_to(self.folder) else None

    def _synced(self, sync: Callable[[int], None]) -> Callable[[int], None]:
        def recorded(fd: int) -> None:
            sync(fd)
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            if (what := self._below(path)) is None:
                return
            if path.is_dir():
                self._names[path] = {each.name: each.stat().st_ino for each in path.iterdir()}
                for each in path.iterdir():
                    if each.is_dir():
                        self._names.setdefault(each, {})
            else:
                self._content[os.fstat(fd).st_ino] = path.read_bytes()
                # The next sync of the directory makes the name durable, if there is none yet.
            self._tell("sync", what)

        return recorded

    def _renamed(self, rename: Callable[..., None]) -> Callable[..., None]:
        def recorded(source: Any, target: Any, **options: Any) -> None:
            rename(source, target, **options)
            if (what := self._below(target)) is not None:
                self._tell("rename", what)

        return recorded

    def _deleted(self, delete: Callable[..., None]) -> Callable[..., None]:
        def recorded(path: Any, **options: Any) -> None:
            delete(path, **options)
            if (what := self._below(path)) is not None:
                gone = self.folder / what
                self._names.get(gone.parent, {}).pop(gone.name, None)
                self._names.pop(gone, None)
                self._tell("delete", what)

        return recorded
