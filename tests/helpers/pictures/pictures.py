"""`make pictures`: every page of the reports in Chromium, with 0, 8 and 10,000 groups.

    python -m tests.helpers.pictures.pictures [FOLDER]

It makes tables of made-up events, writes the reports, and opens each page in a light and a dark, a
wide and a narrow window. It fails if a page writes to the console, is wider than its window, is
larger than 5 MB, or has more than six screens on a telephone. The pictures stay in FOLDER
(var/pictures), to be looked at.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from groupkeeper.coordinator.core import events as core
from tests.pipeline.events import DAY_MS, at, commit

MAX_BYTES: Final = 5_000_000
TELEPHONE: Final = (390, 844)
WIDE: Final = (1400, 900)
MAX_SCREENS: Final = 6
MINUTE_MS: Final = 60_000
TODAY_MS: Final = 20_780 * DAY_MS
"""2026-11-23, 00:00 UTC."""


def made_up(groups: int) -> list[dict[str, Any]]:
    """Return the events of two hours of some groups. Most of them work, and some fall behind, stop,
    rewind or rebalance.
    """
    dice = random.Random(groups)
    said: list[tuple[int, Any]] = [(0, _ends(0, groups))]
    for number in range(groups):
        said += _group(number, groups, dice)
    for minute in range(1, 120, 4):
        said.append((minute * MINUTE_MS, _ends(minute, min(groups, 100))))
    said.sort(key=lambda each: each[0])
    return [make(seq, TODAY_MS + at_ms) for seq, (at_ms, make) in enumerate(said, 1)]


def _ends(minute: int, groups: int) -> Any:
    topics = [
        core.EndTopic(_topic(number), "", [core.EndPartition(0, 1000 + 500 * minute)])
        for number in range(max(groups, 1))
    ]
    return lambda seq, ts: at(seq, core.EndOffset(topics=topics), ts)


def _topic(number: int) -> str:
    return f"orders-{number:05}"


def _group(number: int, groups: int, dice: random.Random) -> Iterator[tuple[int, Any]]:
    name = ("billing", "search", "mail")[number % 3] + f".team-{number % 17}.{number:05}"
    if number == 1:
        name += ".with-a-name-that-no-line-of-a-telephone-has-room-for-whatever-it-does" * 2
    client = {
        "group_id": name,
        "client_id": f"app-{number % 40}",
        "client_host": f"/10.0.{number % 9}.{number % 250}",
        "principal": f"User:team-{number % 17}",
        "generation_id": 3,
    }
    member = {**client, "member_id": f"m-{number}"}
    yield 1, lambda seq, ts: at(seq, core.MemberJoin(**member), ts)
    step = 3 if groups <= 100 else 40
    before = 0
    for minute in range(1 + number % 3, 120, step):
        if number % 7 == 3 and minute > 50:
            break
        offset = max(before, 1000 + 500 * minute - number % 50 * 100)
        if number % 5 == 2 and dice.random() < 0.3:
            offset = max(before - 200_000, 0)
        moved = [(_topic(number), 0, offset, before)]
        by = {"group": name, "client_id": client["client_id"], "member": f"m-{number}"}
        yield minute * MINUTE_MS, _commit(moved, by)
        before = offset
    if number % 4 == 1:
        yield from _storm(member, 4 if groups > 100 else 25)


def _commit(moved: list[tuple[str, int, int, int]], by: dict[str, str]) -> Any:
    return lambda seq, ts: commit(seq, moved, ts_ms=ts, **by)


def _storm(member: dict[str, Any], rounds: int) -> Iterator[tuple[int, Any]]:
    for n in range(rounds):
        start = core.RebalanceStart(**member, reason="member_join", members=2)
        end = core.RebalanceEnd(
            group_id=member["group_id"], generation_id=n, duration_ms=900 + 40 * n, members=2
        )
        refused = core.CommitRejected(**member, error="ILLEGAL_GENERATION", count=n + 1)
        at_ms = (30 + n) * MINUTE_MS // 2
        for later, event in ((0, start), (5000, end), (6000, refused)):
            yield at_ms + later, lambda seq, ts, event=event: at(seq, event, ts)


def write_pages(groups: int, folder: Path) -> Path:
    """Make tables of this number of groups, and write their reports. Return the folder of the
    pages.
    """
    from groupkeeper.pipeline.reports.jobs import REPORTS, write_reports
    from groupkeeper.pipeline.reports.report import Scope
    from groupkeeper.pipeline.run import run
    from groupkeeper.pipeline.spark.session import spark_session
    from groupkeeper.pipeline.tables.lake import Lake
    from groupkeeper.storage.event_log.sealing.segment_writer import write_segments

    (folder / "log").mkdir(parents=True)
    write_segments(folder / "log", made_up(groups))
    size = sum(file.stat().st_size for file in (folder / "log").rglob("*.gz"))
    spark = spark_session("pictures", input_bytes=size)
    run(spark, str(folder / "log"), str(folder / "tables"), say=lambda _: None)
    pages = folder / "pages"
    write_reports(Scope(spark, Lake(str(folder / "tables"))), REPORTS, pages, say)
    return pages


def look(pages: Path, pictures: Path, prefix: str) -> list[str]:
    """Open every page in every window, and keep a picture. Return a line for each problem."""
    from playwright.sync_api import sync_playwright

    found = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if found is None:
        sys.exit("no chromium here: install it (Debian: apt install chromium), or set CHROMIUM")
    wrong: list[str] = []
    pictures.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=found, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for width, height in (WIDE, TELEPHONE):
                size = {"width": width, "height": height}
                window = browser.new_context(color_scheme=scheme, viewport=size)
                for file in sorted(pages.glob("*.html")):
                    name = f"{prefix}-{file.stem}-{scheme}-{width}"
                    wrong += _problems(window, file, name, pictures / f"{name}.png")
        browser.close()
    return wrong


def _problems(window: Any, file: Path, name: str, picture: Path) -> Iterator[str]:
    """Yield a line for each problem of a page in one window."""
    page = window.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.goto(file.as_uri())
    if file.stem == "groups" and (link := page.query_selector("tbody a")):
        link.click()
    page.wait_for_timeout(100)
    width, height = page.viewport_size["width"], page.viewport_size["height"]
    wide, high = page.evaluate("[document.documentElement.scrollWidth, document.body.scrollHeight]")
    page.screenshot(path=picture, full_page=True)
    yield from (f"{name}: the console says {text}" for text in told)
    if wide > width:
        yield f"{name}: {wide} pixels wide, in a window of {width}"
    if width == TELEPHONE[0] and high > MAX_SCREENS * height:
        yield f"{name}: {high / height:.1f} screens"
    if file.stat().st_size > MAX_BYTES:
        yield f"{name}: {file.stat().st_size:,} bytes"
    say(f"{name}: {high / height:.1f} screens, {file.stat().st_size:,} bytes")
    page.close()


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "var/pictures").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    wrong = []
    for groups in (0, 8, 10_000):
        pages = write_pages(groups, folder / str(groups))
        wrong += look(pages, folder, str(groups))
    for line in wrong or ["nothing is wrong"]:
        say(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
