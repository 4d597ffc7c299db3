"""The daemon as it was before it locked its database: a lock for each name, and any number of
names.
"""

from __future__ import annotations

from groupkeeper.__main__ import main
from groupkeeper.storage.backends.sqlite import store_files
from tests.helpers.daemon import unlocked_daemon

if __name__ == "__main__":
    unlocked_daemon.fcntl.flock = unlocked_daemon.flock
    store_files._refuse_second_name = lambda path, status: None
    store_files._refuse_shared_log = lambda path: None
    main()
