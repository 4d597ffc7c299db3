"""Assignors of other distributions, each installed as a directory on the import path."""

from __future__ import annotations

import asyncio
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from groupkeeper.coordinator.core.assignors.registry import ASSIGNORS, UnknownAssignorError
from groupkeeper.coordinator.core.assignors.types import MemberSubscription, TopicPartition
from groupkeeper.coordinator.core.consumer.assigning import GroupSpec
from groupkeeper.coordinator.core.consumer.assignment_work import AssignmentNames, AssignmentWork
from groupkeeper.coordinator.daemon.config import Settings
from groupkeeper.coordinator.embed.assignor_plugins import (
    ENTRY_POINT_GROUP,
    AssignorPluginError,
    get_assignor,
    installed_assignors,
    unknown_assignor,
)
from groupkeeper.coordinator.embed.group_coordinator import GroupCoordinator
from groupkeeper.coordinator.runtime.settings import CoordinatorConfig
from groupkeeper.coordinator.runtime.workers import Workers
from groupkeeper.storage.backends.memory import MemoryOffsetStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

GREEDY = """
    class GreedyAssignor:
        name = "greedy"

        def assign(self, members, partitions):
            first, *others = sorted(member.member_id for member in members)
            return {first: sorted(partitions), **{member_id: [] for member_id in others}}

    greedy = GreedyAssignor()

    class Nameless:
        def assign(self, members, partitions):
            return {}

    class Idle:
        name = "idle"

    class Failing:
        def __init__(self):
            raise OSError("no license file")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a distribution with these entry points on the import path."""

    def put(distribution: str, **points: str) -> None:
        home = tmp_path / distribution
        info = home / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        (home / f"{distribution}_module.py").write_text(dedent(GREEDY))
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n")
        lines = [f"{name} = {distribution}_module:{what}" for name, what in points.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINT_GROUP}]", *lines, ""]))
        monkeypatch.syspath_prepend(str(home))

    yield put
    for name in [name for name in sys.modules if name in ("theirs_module", "others_module")]:
        del sys.modules[name]


def test_ours_are_found_without_any_other_distribution():
    assert get_assignor("range") is ASSIGNORS["range"]


def test_a_misspelt_name_is_answered_with_the_names_there_are():
    with pytest.raises(UnknownAssignorError, match="'rnage'; known are range, roundrobin, sticky"):
        get_assignor("rnage")


@pytest.mark.parametrize("what", ["GreedyAssignor", "greedy"])
def test_a_class_or_an_instance_of_another_distribution_is_found_by_name(install, what):
    install("theirs", greedy=what)
    members = [MemberSubscription("b", ["t"]), MemberSubscription("a", ["t"])]
    assignment = get_assignor("greedy").assign(members, [TopicPartition("t", 0)])
    assert assignment == {"a": [TopicPartition("t", 0)], "b": []}


def test_installed_assignors_are_named_without_importing_them(install):
    install("theirs", greedy="GreedyAssignor", broken="Missing")
    assert installed_assignors() == ["broken", "greedy", "range", "roundrobin", "sticky"]
    assert "theirs_module" not in sys.modules


def test_another_distribution_cannot_take_one_of_our_names(install):
    install("theirs", range="GreedyAssignor")
    assert get_assignor("range") is ASSIGNORS["range"]


def test_an_unknown_name_is_answered_with_all_there_are(install):
    install("theirs", greedy="GreedyAssignor")
    with pytest.raises(UnknownAssignorError, match="greedy, range, roundrobin, sticky"):
        get_assignor("gredy")


def test_two_distributions_with_one_name_are_a_matter_for_a_person(install):
    install("theirs", greedy="GreedyAssignor")
    install("others", greedy="GreedyAssignor")
    with pytest.raises(AssignorPluginError, match=r"others_module.* of others, theirs_module"):
        get_assignor("greedy")


@pytest.mark.parametrize(
    ("name", "what", "says"),
    [
        ("greedy", "Missing", "cannot be loaded"),
        ("greedy", "Failing", "cannot be loaded: no license file"),
        ("greedy", "Nameless", "has another name than its entry point"),
        ("other", "GreedyAssignor", "has another name than its entry point"),
        ("idle", "Idle", "has no method assign"),
    ],
)
def test_one_that_cannot_be_used_is_told_with_its_distribution(install, name, what, says):
    install("theirs", **{name: what})
    with pytest.raises(AssignorPluginError, match=f"theirs_module:{what} of theirs {says}"):
        get_assignor(name)


async def test_the_other_process_finds_the_assignors_of_other_distributions(install):
    """It gets this process's import path."""
    install("theirs", greedy="GreedyAssignor")
    workers = Workers(60_000, 10)
    outcome = asyncio.get_running_loop().create_future()
    work = AssignmentWork(
        group_id="g",
        epoch=1,
        assignor="greedy",
        spec=GroupSpec([3], [[0]], [0, 0], [[], []]),
        names=AssignmentNames([("m-1", None), ("m-2", None)], ["orders"]),
    )
    workers.begin(work, outcome.set_result)
    assert await outcome == [[0, 1, 2], []]
    await asyncio.wait(workers.stop())
    assert "theirs_module" not in sys.modules, "not imported here"


def test_a_name_in_the_settings_that_no_assignor_has_is_named(install) -> None:
    wrong = "no installed assignor is named 'greedy'; known are range, roundrobin, sticky, uniform"
    assert unknown_assignor(("uniform", "greedy")) == wrong
    with pytest.raises(ValueError, match="consumer_assignors: no installed assignor"):
        GroupCoordinator(
            MemoryOffsetStorage(), CoordinatorConfig(consumer_assignors=("uniform", "greedy"))
        )
    with pytest.raises(ValueError, match=r"group\.consumer_assignors: no installed"):
        Settings(group={"consumer_assignors": ["greedy"]})
    install("theirs", greedy="theirs_module:GreedyAssignor")
    assert unknown_assignor(("uniform", "greedy")) is None
    assert Settings(group={"consumer_assignors": ["greedy"]}).group.consumer_assignors
