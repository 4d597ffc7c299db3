"""Reads the password of a store's user from a file (setting ``storage.password_file``)."""

from __future__ import annotations

from pathlib import Path

from groupkeeper.storage.base import StoreRefused


def read_password(path: str) -> str | None:
    """Return the first line of a file; None if ``path`` is empty.

    Raises StoreRefused if the file cannot be read, or if the line is empty.
    """
    if not path:
        return None
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise StoreRefused(f"storage.password_file: {path}: {reason}") from error
    if not lines or not lines[0]:
        raise StoreRefused(f"storage.password_file: {path}: its first line is empty")
    return lines[0]
