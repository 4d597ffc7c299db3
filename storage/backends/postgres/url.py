"""Splits the URL of a store in PostgreSQL into the parts that asyncpg, the schema and messages need
(pure).
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

DEFAULT_SCHEMA: Final = "groupkeeper"
SCHEMES: Final = ("postgresql", "postgres")


class PostgresUrl(NamedTuple):
    """The address of a store."""

    dsn: str
    """The URL for asyncpg, with its secrets."""
    schema: str
    name: str
    """The URL for messages, without user, password and parameters."""
    password: str | None = None
    """The password from elsewhere than the URL. None: it is in the URL, or asyncpg finds it in the
    environment."""


def parse_url(url: str, password: str | None = None) -> PostgresUrl:
    """Split a URL into its parts. Raises ValueError if it is no URL of PostgreSQL."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not parts.path.strip("/"):
        raise ValueError("use postgresql://USER@HOST/DATABASE")
    asked = parse_qsl(parts.query)
    schemas = [value for key, value in asked if key == "schema"]
    query = urlencode([(key, value) for key, value in asked if key != "schema"])
    where = parts.netloc.rpartition("@")[2]
    return PostgresUrl(
        urlunsplit(parts._replace(query=query)),
        schemas[-1] if schemas else DEFAULT_SCHEMA,
        f"{parts.scheme}://{where}{parts.path}",
        password,
    )
