"""What the answers of a transaction mean."""

from __future__ import annotations

import kazoo.exceptions as kazoo
import pytest

from groupkeeper.storage.connections.zookeeper_errors import (
    NodeChanged,
    NodeMissing,
    NotAllowed,
    TransactionRefused,
    ZooKeeperError,
)
from groupkeeper.storage.connections.zookeeper_transaction import (
    CheckNode,
    CreateNode,
    DeleteNode,
    SetNode,
    check_answers,
    size_of,
)

UNDONE = kazoo.RolledBackError()
NOT_TRIED = kazoo.RuntimeInconsistency()

OPERATIONS = (CheckNode("/a"), SetNode("/b", b"x", 3), CreateNode("/c"), DeleteNode("/d"))


def test_a_transaction_that_was_done_raises_nothing() -> None:
    check_answers(OPERATIONS, [True, object(), "/c", True])


@pytest.mark.parametrize(
    ("answers", "position", "kind"),
    [
        ([kazoo.NoNodeError(), NOT_TRIED, NOT_TRIED, NOT_TRIED], 0, NodeMissing),
        ([UNDONE, kazoo.BadVersionError(), NOT_TRIED, NOT_TRIED], 1, NodeChanged),
        ([UNDONE, UNDONE, kazoo.NoAuthError(), NOT_TRIED], 2, NotAllowed),
        ([UNDONE, UNDONE, UNDONE, kazoo.BadArgumentsError()], 3, ZooKeeperError),
        ([NOT_TRIED, NOT_TRIED, NOT_TRIED, NOT_TRIED], 0, ZooKeeperError),
    ],
)
def test_the_operation_that_failed_is_named(
    answers: list[object], position: int, kind: type[Exception]
) -> None:
    with pytest.raises(TransactionRefused) as refused:
        check_answers(OPERATIONS, answers)
    assert refused.value.position == position
    assert type(refused.value.error) is kind
    assert OPERATIONS[position].path in str(refused.value)


def test_a_size_counts_paths_in_bytes_and_values() -> None:
    plain = size_of(CreateNode("/a"))
    assert size_of(CreateNode("/é", b"12345")) == plain + 1 + 5
    assert size_of(CheckNode("/a")) == size_of(DeleteNode("/a")) == plain
