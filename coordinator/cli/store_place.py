"""The option that names a store: the path of a SQLite file, or a URL as in ``storage.url``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

if TYPE_CHECKING:
    from groupkeeper.storage.event_log.several_logs import LogStore

_VARIABLE: Final = "GROUPKEEPER_STORAGE__PASSWORD_FILE"
"""The environment variable of the setting ``storage.password_file``."""

PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        envvar=_VARIABLE,
        exists=True,
        dir_okay=False,
        help="A file whose first line is the password of the store (Consul: the token), like the "
        "setting storage.password_file.",
    ),
]


class StorePlace(NamedTuple):
    """Where a store is. The text of it (``str``) has no password, for messages and plans."""

    where: Path | str
    """A path, or a URL."""
    password_file: str = ""
    """A file with the password of the user in the URL; "" if there is none. The file is read each
    time the store is opened, because a password may change."""

    def with_password_file(self, file: Path | None) -> StorePlace:
        """Return this place with another password file; the same place if ``file`` is None."""
        return self if file is None else self._replace(password_file=str(file))

    def password(self) -> str | None:
        """Return the password in the file; None if there is no file. Raises StoreRefused if the
        file has no password.
        """
        from groupkeeper.storage.password_file import read_password

        return read_password(self.password_file)

    def logs(self, group_id: str | None = None) -> LogStore:
        """Return an object that reads the event logs of this store (``log_store``). Raises
        StoreRefused if the URL or the password file cannot be used.
        """
        from groupkeeper.storage.open import log_store

        return log_store(self.where, self.password(), group_id)

    def __str__(self) -> str:
        from groupkeeper.storage.open import without_password  # late: only some commands need it

        return str(self.where) if isinstance(self.where, Path) else without_password(self.where)


def store_place(text: str) -> StorePlace:
    """Parse the value of an option: a text with ``://`` is a URL, any other text is a path."""
    return StorePlace(text if "://" in text else Path(text))
