"""What is said of a file of the store that cannot be opened."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from groupkeeper.storage.base import StorageError, StoreBusy
from groupkeeper.storage.file_lock import FORBIDDEN, cannot_open


@pytest.mark.parametrize("number", sorted(FORBIDDEN))
def test_a_file_that_may_not_be_written_is_no_matter_of_another_process(number: int) -> None:
    told = str(cannot_open(Path("/data/g.db"), OSError(number, os.strerror(number))))
    assert told == (
        f"/data/g.db: cannot be opened ({os.strerror(number)}); let this user write to it and to "
        "its directory, or name another file"
    )


def test_other_reasons_are_told_as_they_are() -> None:
    error = cannot_open(Path("/data/g.db"), OSError(errno.EIO, "Input/output error"))
    assert type(error) is StorageError
    assert str(error) == "/data/g.db: cannot be opened: Input/output error"
    assert isinstance(cannot_open(Path("g"), OSError(errno.ENOSPC, "full")), StoreBusy)
