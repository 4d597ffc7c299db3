"""The soak finds a second daemon on the same database, and leaves no trace of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.daemon.servers import Groupkeeper
from tests.soak.second_name import SecondName


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Groupkeeper]:
    daemon = Groupkeeper(tmp_path / "daemon", storage_url=f"sqlite:///{tmp_path / 'store.db'}")
    yield daemon.start()
    daemon.stop()


def test_a_second_daemon_is_refused_and_the_first_one_goes_on(
    daemon: Groupkeeper, tmp_path: Path
) -> None:
    second = SecondName(tmp_path / "store.db", tmp_path / "second")
    assert second.come() is None
    assert not [*tmp_path.glob("second-name*")]
    assert second.come() is None, "it comes again in each cycle"
    daemon.restart()


def test_one_that_is_not_refused_is_a_finding(daemon: Groupkeeper, tmp_path: Path) -> None:
    second = SecondName(tmp_path / "store.db", tmp_path / "second")
    second.daemon.entry = ("-m", "tests.helpers.daemon.one_name_daemon")
    finding = second.come()
    assert finding == "a second daemon serves the same database, under another name"
