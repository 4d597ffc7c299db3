"""The option that names a store: the path of a SQLite file, or a URL as in ``storage.url``."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class StorePlace(NamedTuple):
    """The place of a store. ``str`` returns it without the password, for messages and plans."""

    where: Path | str
    """A path, or a URL."""

    def __str__(self) -> str:
        from groupkeeper.storage.open import without_password  # late: only some commands need it

        return str(self.where) if isinstance(self.where, Path) else without_password(self.where)


def store_place(text: str) -> StorePlace:
    """Parse the value of an option: a text with ``://`` is a URL, any other text is a path."""
    return StorePlace(text if "://" in text else Path(text))
