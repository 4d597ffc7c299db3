"""The option that names a store: the path of a SQLite file, or a URL as in ``storage.url``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class StorePlace(NamedTuple):
    """Where a store is. Its text (``str``) is without a password, for messages and plans."""

    where: Path | str
    """A path, or a URL."""

    def __str__(self) -> str:
        from groupkeeper.storage.open import without_password  # late: only some commands need it

        return str(self.where) if isinstance(self.where, Path) else without_password(self.where)


def store_place(text: str) -> StorePlace:
    """Return the place that an option names."""
    return StorePlace(text if "://" in text else Path(text))
