"""The ranges of shards that a load of PostgreSQL reads."""

from __future__ import annotations

import pytest

from groupkeeper.storage.backends.postgres.values import ranges_of


@pytest.mark.parametrize(
    ("shards", "ranges"),
    [
        ([], []),
        ([3], [(3, 3)]),
        (range(-1, 50), [(-1, 49)]),
        ([7, -1, 5, 0, 6], [(-1, 0), (5, 7)]),
        ([1, 3, 5], [(1, 1), (3, 3), (5, 5)]),
    ],
)
def test_neighbouring_shards_are_one_range(
    shards: list[int], ranges: list[tuple[int, int]]
) -> None:
    assert ranges_of(shards) == ranges
