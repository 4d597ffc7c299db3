"""Reads a password from a file that a setting names, such as ``storage.password_file``."""

from __future__ import annotations

from pathlib import Path

from groupkeeper.storage.base import StoreRefused


def read_password(path: str, setting: str = "storage.password_file") -> str | None:
    """Return the first line of a file; None if ``path`` is empty.

    ``setting`` is the name of the setting in messages. Raises StoreRefused if the file cannot be
    read, or if the line is empty.
    """
    if not path:
        return None
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8"
        raise StoreRefused(f"{setting}: {path}: {reason}") from error
    if not lines or not lines[0]:
        raise StoreRefused(f"{setting}: {path}: its first line is empty")
    return lines[0]
