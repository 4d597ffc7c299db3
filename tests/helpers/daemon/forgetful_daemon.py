"""The normal daemon on a disk that fails to sync once after a file appears, and then forgets the
pages. The variable ``FAIL_SYNC_FILE`` names the file, which is then deleted.
"""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from pathlib import Path
from random import Random

from groupkeeper.__main__ import main
from tests.helpers.storage.forgetful_disk import Cached, ForgetfulDisk

ORDER = Path(os.environ["FAIL_SYNC_FILE"])


def fails(_: Cached) -> bool:
    """Return whether this sync fails."""
    with suppress(FileNotFoundError):
        ORDER.unlink()
        return True
    return False


if __name__ == "__main__":
    disk = ForgetfulDisk(None, Random())
    disk.fails = fails
    # A killed process leaves what the cache has; only after a failed sync this is not the same.
    atexit.register(disk.forget)
    main()
