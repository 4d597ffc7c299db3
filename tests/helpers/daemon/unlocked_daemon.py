"""The normal daemon on a file system whose locks do nothing: ``flock`` succeeds for every process.

Some network file systems and containers are like this. Then only the lease epoch in the database
protects the store.
"""

from __future__ import annotations

import fcntl

from groupkeeper.__main__ import main


def flock(_file: int, _operation: int) -> None:
    """Lock nothing."""


if __name__ == "__main__":
    fcntl.flock = flock
    main()
