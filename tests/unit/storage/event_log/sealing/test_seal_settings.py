"""What a host may say of the files that its event log is sealed into."""

from __future__ import annotations

from pathlib import Path

from groupkeeper.storage.event_log.sealing.sealer import SealSettings


def test_the_directory_may_be_a_text():
    assert SealSettings(directory="log") == SealSettings(directory=Path("log"))
