"""Storages of other distributions, each installed as a directory on the import path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from groupkeeper import GroupCoordinator
from groupkeeper.coordinator.cli.main import app
from groupkeeper.storage.backends.memory import MemoryOffsetStorage
from groupkeeper.storage.base import OffsetStorage, StoreBusy, StoreRefused
from groupkeeper.storage.event_log.sealing.sealer import SealSettings
from groupkeeper.storage.event_log.sealing.storage import SealedStorage
from groupkeeper.storage.open import ENTRY_POINTS, open_storage, rows_of, url_error

SHELF = '''
    """A store that names a shelf: "shelf://NAME"."""

    from groupkeeper.storage.backends.memory import MemoryOffsetStorage
    from groupkeeper.storage.base import StoreBusy


    class Shelf:
        """Delegates to memory, and has no event log."""

        def __init__(self, url, append_timeout_ms, clock):
            self.name, self.append_timeout_ms = url.removeprefix("shelf://"), append_timeout_ms
            self._memory = inner = MemoryOffsetStorage(clock=clock)
            self.limits = inner.limits
            for name in ("open", "close", "acquire", "renew", "release", "load", "append"):
                setattr(self, name, getattr(inner, name))
            for name in ("unfolded", "stats", "check_after_unclean_end"):
                setattr(self, name, getattr(inner, name))


    def with_events(url, *, append_timeout_ms, clock):
        return MemoryOffsetStorage(clock=clock)


    def busy(url, **settings):
        raise StoreBusy("the shelf is away")


    def broken(url, **settings):
        raise OSError("no license file")


    def no_store(url, **settings):
        return object()
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a distribution with these entry points on the import path."""

    def put(distribution: str, **points: str) -> None:
        home = tmp_path / distribution
        info = home / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        (home / f"{distribution}_shelf.py").write_text(dedent(SHELF))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
        lines = [f"{name} = {distribution}_shelf:{what}" for name, what in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINTS}]", *lines, ""]))
        monkeypatch.syspath_prepend(str(home))

    yield put
    for name in [name for name in sys.modules if name in ("theirs_shelf", "others_shelf")]:
        del sys.modules[name]


def opened(url: str, seal: SealSettings | None = None, **others: bool) -> OffsetStorage:
    return open_storage(url, append_timeout_ms=700, seal=seal, **others)


async def test_a_scheme_of_another_distribution_opens_its_store(install) -> None:
    install("theirs", shelf="Shelf")
    storage = opened("shelf://top")
    assert (storage.name, storage.append_timeout_ms) == ("top", 700)
    coordinator = GroupCoordinator(storage)
    await coordinator.start()
    assert coordinator.is_ready
    await coordinator.stop()


def test_a_scheme_is_known_without_importing_its_package(install) -> None:
    install("theirs", shelf="Shelf")
    assert url_error("shelf://top") is None
    assert "theirs_shelf" not in sys.modules


def test_check_config_accepts_it(install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPKEEPER_STORAGE__URL", "shelf://top")
    assert CliRunner().invoke(app, ["check-config"]).exit_code != 0
    install("theirs", shelf="Shelf")
    done = CliRunner().invoke(app, ["check-config"])
    assert (done.exit_code, "shelf://top" in done.output) == (0, True)


@pytest.mark.parametrize("url", ["memory:", "sqlite:///a.db"])
def test_a_package_cannot_replace_our_schemes(install, url: str) -> None:
    install("theirs", memory="no_store", sqlite="no_store", kafka="with_events")
    assert type(opened(url)).__name__ in ("MemoryOffsetStorage", "SqliteOffsetStorage")
    with pytest.raises(StoreRefused, match="use kafka://HOST:PORT,HOST:PORT/TOPIC"):
        opened("kafka://host")


def test_two_packages_with_one_scheme_are_a_matter_for_a_person(install) -> None:
    install("theirs", shelf="Shelf")
    install("others", shelf="Shelf")
    with pytest.raises(StoreRefused, match=r"others_shelf:Shelf, theirs_shelf:Shelf.*remove one"):
        opened("shelf://top")


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("Missing", "shelf storage, which theirs_shelf:Missing adds, fails: AttributeError"),
        ("broken", r"theirs_shelf:broken adds, fails: OSError\('no license file'\)"),
        ("no_store", "returned a object, which is no OffsetStorage"),
    ],
)
def test_a_package_that_makes_no_store_is_refused_in_one_line(install, what, says) -> None:
    install("theirs", shelf=what)
    with pytest.raises(StoreRefused, match=says) as refusal:
        opened("shelf://top")
    assert "\n" not in str(refusal.value)


def test_the_errors_of_a_store_reach_the_caller_as_they_are(install) -> None:
    install("theirs", shelf="busy")
    with pytest.raises(StoreBusy, match="the shelf is away"):
        opened("shelf://top")


def test_a_store_with_events_is_sealed(install, tmp_path: Path) -> None:
    install("theirs", shelf="with_events")
    sealed = opened("shelf://top", SealSettings(directory=tmp_path / "log"))
    assert isinstance(sealed, SealedStorage)
    assert isinstance(sealed.store, MemoryOffsetStorage)


def test_a_store_without_events_is_sealed_only_if_that_is_possible(install, tmp_path) -> None:
    install("theirs", shelf="Shelf")
    seal = SealSettings(directory=tmp_path / "log")
    assert not isinstance(opened("shelf://top", seal, seal_if_possible=True), SealedStorage)
    with pytest.raises(StoreRefused, match=r'set log\.sealing to "auto"'):
        opened("shelf://top", seal)


def test_its_rows_are_not_read_by_other_processes(install) -> None:
    install("theirs", shelf="with_events")
    with pytest.raises(StoreRefused, match="shelf: keeps no log that can be read from here"):
        rows_of("shelf://top")
