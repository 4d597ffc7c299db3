"""The process that assigns, with assignors that behave badly:

python -m tests.helpers.runtime.bad_assignors
"""

from __future__ import annotations

import os
import stat
import sys
import time

from groupkeeper.coordinator.runtime.work_process import main


class Assignor:
    """Gives the partitions to the members in turn. ``before`` is called first, and may
    misbehave.
    """

    def __init__(self, name, before=lambda: None):
        self.name = name
        self._before = before

    def assign(self, members, partitions):
        self._before()
        count = len(members)
        return {member.member_id: list(partitions[at::count]) for at, member in enumerate(members)}


class Twice(Assignor):
    def assign(self, members, partitions):
        return {member.member_id: list(partitions) for member in members}


def endless():
    while True:
        pass


def fork(leaves_group):
    """Start a process that holds the pipes for longer than a test takes, and never return."""
    if os.fork() == 0:
        if leaves_group:
            os.setsid()
        time.sleep(30)
        os._exit(0)
    endless()


def start(keeps_pipes):
    """Start a process that outlives a test. Raise a ValueError with its id."""
    pid = os.fork()
    if pid == 0:
        if not keeps_pipes:
            os.closerange(0, 100)
        time.sleep(300)
        os._exit(0)
    tell(pid)


def tell(number):
    raise ValueError(number)


def open_sockets():
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return sum(_is_socket(number) for number in numbers)


def _is_socket(number):
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


ASSIGNORS = [
    Assignor("in_order"),
    Assignor("raises", lambda: 1 / 0),
    Assignor("exits", lambda: os._exit(3)),
    Assignor("endless", endless),
    Assignor("forks", lambda: fork(leaves_group=False)),
    Assignor("forks_away", lambda: fork(leaves_group=True)),
    Assignor("starts", lambda: start(keeps_pipes=True)),
    Assignor("starts_quietly", lambda: start(keeps_pipes=False)),
    Assignor("prints", lambda: sys.stdout.write("I am computing")),
    Assignor("pid", lambda: tell(os.getpid())),
    Assignor("descriptors", lambda: tell(f"{open_sockets()} sockets")),
    Twice("twice"),
]
FOUND = {assignor.name: assignor for assignor in ASSIGNORS}

if __name__ == "__main__":
    main(FOUND.__getitem__)
