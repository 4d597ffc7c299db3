"""Run the process that computes target assignments (``coordinator.runtime.work_process``):

python -m groupkeeper.coordinator.embed.assign
"""

from groupkeeper.coordinator.embed.assignor_plugins import get_assignor
from groupkeeper.coordinator.runtime.work_process import main

if __name__ == "__main__":
    main(get_assignor)
