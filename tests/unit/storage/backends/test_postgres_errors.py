"""What the errors of PostgreSQL say to an operator."""

from __future__ import annotations

import asyncpg
import pytest

from groupkeeper.storage.backends.postgres.link import explained
from groupkeeper.storage.base import StorageError, StoreBusy, StoreRefused


@pytest.mark.parametrize(
    ("error", "grant"),
    [
        ("permission denied for database app", "GRANT CREATE ON DATABASE app"),
        ("permission denied for schema groupkeeper", "GRANT USAGE, CREATE ON SCHEMA groupkeeper"),
        (
            "permission denied for table journal",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE journal",
        ),
        ("something else", "GRANT this user the rights on all tables"),
    ],
)
def test_a_missing_right_is_named_with_its_grant(error: str, grant: str) -> None:
    told = explained("postgresql://db/app", asyncpg.InsufficientPrivilegeError(error))
    assert isinstance(told, StoreRefused)
    assert error in str(told)
    assert grant in str(told)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            asyncpg.ProtocolViolationError("unsupported startup parameter: search_path"),
            StoreRefused,
            "a pooler",
        ),
        (
            asyncpg.InvalidSQLStatementNameError("prepared statement does not exist"),
            StoreRefused,
            "a pooler",
        ),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute"), StoreBusy, "a standby"),
        (asyncpg.CannotConnectNowError("is starting up"), StoreBusy, "is starting up"),
        (ConnectionResetError("reset"), StoreBusy, "no answer from the server"),
        (asyncpg.DataError("x"), StorageError, "x"),
    ],
)
def test_each_error_says_whether_a_retry_may_help(
    error: Exception, kind: type[StorageError], words: str
) -> None:
    told = explained("postgresql://db/app", error)
    assert type(told) is kind
    assert words in str(told)
