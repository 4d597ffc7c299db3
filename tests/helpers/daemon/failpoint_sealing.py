"""The process that seals, which kills its daemon and itself at a step that a test chooses.

See ``tests.helpers.daemon.failpoint_daemon``.
"""

from __future__ import annotations

import os

from groupkeeper.storage.event_log.sealing.process import main
from groupkeeper.storage.open import rows_of
from tests.helpers.daemon.failpoint_daemon import at_step

if __name__ == "__main__":
    main(rows_of, lambda step: at_step(step, os.getppid()))
