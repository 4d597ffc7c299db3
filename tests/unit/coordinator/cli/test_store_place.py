"""The option ``--store``."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupkeeper.coordinator.cli.store_place import StorePlace, store_place


@pytest.mark.parametrize(
    ("text", "where", "shown"),
    [
        ("groupkeeper.db", Path("groupkeeper.db"), "groupkeeper.db"),
        ("/data/a:b.db", Path("/data/a:b.db"), "/data/a:b.db"),
        ("zookeeper://h:1/kafka", "zookeeper://h:1/kafka", "zookeeper://h:1/kafka"),
        ("postgresql://me:secret@h/db", "postgresql://me:secret@h/db", "postgresql://me:***@h/db"),
    ],
)
def test_a_store_is_a_path_or_a_url_and_no_password_is_shown(
    text: str, where: Path | str, shown: str
) -> None:
    assert store_place(text) == StorePlace(where)
    assert str(store_place(text)) == shown
