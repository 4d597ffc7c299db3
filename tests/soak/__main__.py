"""`make soak`: the real daemon under real clients, and everything bad that we can do to both.

    python -m tests.soak [--minutes 10] [--groups 200] [--members 1000]

Needs a tmpfs of its own for the full disk. It is mounted in a mount namespace of this run, so that
it is gone with it; who is not root gets one in a user namespace, where the system allows that.
Exits 0 only if no judge found anything.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from groupkeeper import read_events
from tests.helpers.daemon.asked_numbers import RefusedError, as_minutes, as_whole_number
from tests.soak import judge
from tests.soak.faults import CannotMount
from tests.soak.ledger import MEMBERS_MAX
from tests.soak.report import Screen, counted
from tests.soak.stage import Stage, describe

MEMBERS = 1_000
"""Where nobody asks for another number, and there are no more groups."""
INSIDE = "GROUPKEEPER_SOAK_INSIDE"
NO_MOUNT = """\
soak: cannot mount a tmpfs, so the disk cannot be filled: {why}
Run it as root (sudo make soak), or where user namespaces are allowed
(sysctl kernel.unprivileged_userns_clone=1, or a container with CAP_SYS_ADMIN)."""


def main() -> int:
    """Run it, in a mount namespace; 0 if no judge found anything."""
    try:
        seconds, groups, members = asked(sys.argv[1:])
    except RefusedError as error:
        sys.stderr.write(f"soak: {error}\n")
        return 2
    if INSIDE not in os.environ:
        return _inside_namespace()
    # a shell that starts us in the background has it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="groupkeeper-soak-"))
    try:
        stage = Stage(directory, seconds, groups, members, Screen())
    except CannotMount as error:
        sys.stderr.write(NO_MOUNT.format(why=error) + "\n")
        return 2
    code = 130
    try:
        code = _run(stage, directory)
    except KeyboardInterrupt:
        pass
    finally:
        stage.clear()
        if code == 0:
            shutil.rmtree(directory)
    return code


def asked(options: list[str]) -> tuple[float, int, int]:
    """Return the seconds, the groups and the members that are asked for; RefusedError where that
    makes no sense.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", default="10")
    parser.add_argument("--groups", default="200")
    parser.add_argument("--members", help="1000, or one for each group where there are more")
    told = parser.parse_args(options)
    seconds = 60 * as_minutes("--minutes", told.minutes)
    groups = as_whole_number("--groups", told.groups, least=1, most=MEMBERS_MAX)
    if told.members is None:
        return seconds, groups, max(MEMBERS, groups)
    # each group has one: one without would never be Stable, and nobody would be the victim
    members = as_whole_number("--members", told.members, least=groups, most=MEMBERS_MAX)
    return seconds, groups, members


def _inside_namespace() -> int:
    options = ["--mount"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None:
        sys.stderr.write(NO_MOUNT.format(why="unshare (util-linux) is not there") + "\n")
        return 2
    tried = subprocess.run(
        ["unshare", *options, "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode:
        sys.stderr.write(NO_MOUNT.format(why=tried.stderr.strip()) + "\n")
        return 2
    command = ["unshare", *options, sys.executable, "-m", "tests.soak", *sys.argv[1:]]
    return run_and_forward(command, {**os.environ, INSIDE: "1"})


def run_and_forward(command: list[str], env: Mapping[str, str]) -> int:
    """Run a command until it has ended, however long that takes after SIGINT or SIGTERM, which it
    gets once, as SIGINT; return its exit code. A session of its own keeps what it starts from
    getting the terminal's Ctrl-C too.
    """
    process: subprocess.Popen[bytes] | None = None
    asked = told = False

    def tell() -> None:
        nonlocal told
        if asked and process is not None and not told:
            told = True
            process.send_signal(signal.SIGINT)

    def forward(*_: object) -> None:
        nonlocal asked
        asked = True
        tell()

    # before the start: a signal that comes in between would end this process alone
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    process = subprocess.Popen(command, env=env, start_new_session=True)
    tell()
    return process.wait()


def _run(stage: Stage, directory: Path) -> int:
    screen = stage.screen
    screen.heading(
        f"Soak: {stage.groups} groups, {stage.members:,} members ({describe(stage.cast.hosts)}), "
        f"{stage.seconds / 60:g} minutes"
    )
    screen.say(f"everything is in {directory}")
    stage.settle()
    screen.heading("Faults")
    stage.play()
    stage.rest()
    screen.heading("Judges")
    fetched = stage.finish()
    ledger, seen = stage.ledger, stage.observer
    history = judge.history_of(read_events(stage.database))
    evictions = judge.evictions(ledger, history, stage.ended_ms)
    lines = seen.log_lines()
    lost = len(ledger.acknowledged - set(history.commits))
    findings = [
        *stage.findings,
        *judge.lost_offsets(ledger.largest, fetched),
        *judge.history_of_commits(ledger, history, fetched),
        *judge.gaps(history),
        *judge.shown(evictions.unjust),
        *judge.slow_callbacks(lines),
        *judge.bugs(lines),
        *judge.memory(seen.lives_mb),
        *judge.without_effect(stage.done, stage.felt),
        *judge.without_commits(ledger, stage.cast.roles, stage.groups),
    ]
    screen.say(
        "memory at the end of each life, in MB: " + " ".join(f"{x:.0f}" for x in seen.lives_mb)
    )
    screen.say(f"faults: {counted(stage.done)}")
    screen.say(f"consumers that their application had to replace: {counted(ledger.anew)}")
    screen.say(
        f"evicted: {len(evictions.unjust)} unjustly, {evictions.silenced} of processes that we "
        f"killed or stopped, {evictions.starved} of processes that the machine gave no CPU, "
        f"{evictions.late} of libraries that were not back a session after an outage, "
        f"{evictions.left_behind} ids that nobody went by any more"
    )
    for finding in findings:
        screen.finding(finding)
    if findings:
        stage.keep(directory)
        screen.say(f"what was found is found again in {directory}")
    screen.last(
        f"soak: {'FAILED' if findings else 'PASSED'}, {len(findings)} findings: "
        f"{stage.seconds / 60:g} min, {stage.groups} groups, {stage.members:,} members, "
        f"{ledger.commits:,} commits acknowledged ({len(ledger.acknowledged):,} offsets, "
        f"{lost} lost) by {stage.fetches + 1} OffsetFetches and {len(history.seqs):,} events, "
        f"{judge.repeated(history):,} sent again by libraries; {sum(stage.done.values())} faults; "
        f"{evictions.total} evicted, {len(evictions.unjust)} unjustly; longest callback "
        f"{seen.slowest_ms:.0f} ms; {seen.lives_mb[0]:.0f} to {seen.lives_mb[-1]:.0f} MB",
        passed=not findings,
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
