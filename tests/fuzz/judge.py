"""What a run of ``make fuzz`` against the daemon measured, and what must hold of it."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_RSS_GROWTH = 1.10
"""What the memory may be after the load, against what it was before."""


@dataclass
class Figures:
    """Counted while the daemon is under fire; ``complaints`` reads them at the end."""

    connections: int = 0
    requests: int = 0
    mutated: int = 0
    answered: int = 0
    closed: int = 0
    """Connections that the daemon closed, as it may when it cannot read on."""
    parked: int = 0
    """Connections that waited in a join or sync of a mutated group until the daemon stopped."""
    stuck: list[str] = field(default_factory=list)
    """Connections that were neither answered nor closed, each with what it had asked."""
    quiet_beats: int = 0
    """Answers that members beside the load got, all of them good."""
    quiet_commits: int = 0
    disturbed: list[str] = field(default_factory=list)
    """What went wrong for members beside the load."""
    rss_before_kb: int = 0
    rss_after_kb: int = 0
    bugs: int = 0
    """Internal errors that the daemon counted."""
    bug_lines: list[str] = field(default_factory=list)
    died: str = ""
    exit_code: int = 0
    """Of the clean stop at the end."""

    @property
    def rss_growth(self) -> float:
        """After the load against before."""
        return self.rss_after_kb / max(1, self.rss_before_kb)


def complaints(figures: Figures) -> list[str]:
    """Everything that a run must not show, in words; empty: it passed."""
    found: list[str] = []
    if figures.died:
        found.append(f"the daemon died: {figures.died}")
    if figures.bugs or figures.bug_lines:
        found.append(f"{figures.bugs} internal errors: {'; '.join(figures.bug_lines[:3])}")
    if figures.stuck:
        found.append(f"{len(figures.stuck)} stuck connections: {'; '.join(figures.stuck[:3])}")
    if figures.disturbed:
        found.append(f"members beside were disturbed: {'; '.join(figures.disturbed[:3])}")
    if figures.rss_growth > MOST_RSS_GROWTH:
        found.append(
            f"memory grew from {figures.rss_before_kb} to {figures.rss_after_kb} KB, "
            f"by more than {MOST_RSS_GROWTH - 1:.0%}"
        )
    if figures.exit_code:
        found.append(f"the stop at the end gave {figures.exit_code}")
    needed = ("connections", "mutated", "answered", "quiet_beats", "quiet_commits")
    missing = [name.replace("_", " ") for name in needed if not getattr(figures, name)]
    return found + [f"no {name}: this run shows nothing" for name in missing]


def line(figures: Figures) -> str:
    """The figures in one line."""
    return (
        f"{figures.requests:,} requests ({figures.mutated:,} mutated) on "
        f"{figures.connections:,} connections: {figures.answered:,} answered, "
        f"{figures.closed:,} connections closed by the daemon, {figures.parked} parked to the end, "
        f"{len(figures.stuck)} stuck; {figures.bugs} internal errors; members beside: "
        f"{figures.quiet_beats:,} heartbeats, {figures.quiet_commits:,} commits, "
        f"{len(figures.disturbed)} disturbed; "
        f"RSS {figures.rss_before_kb // 1024} -> {figures.rss_after_kb // 1024} MB "
        f"({figures.rss_growth - 1:+.1%})"
    )
