"""Assignors of other distributions, found through the entry point group ``groupkeeper.assignors``.

The other distribution names a class without arguments, or an instance, in its pyproject.toml::

    [project.entry-points."groupkeeper.assignors"]
    mine = "my_package.assignor:MyAssignor"
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from groupkeeper.coordinator.core.assignors.registry import ASSIGNORS, UnknownAssignorError
from groupkeeper.coordinator.core.assignors.types import PartitionAssignor
from groupkeeper.coordinator.core.consumer.assignment_work import OUR_ASSIGNORS

ENTRY_POINT_GROUP: Final = "groupkeeper.assignors"
"""The group of the entry points. An entry point's name is the assignor's name."""


class AssignorPluginError(RuntimeError):
    """An installed distribution declares an assignor that cannot be used."""


def get_assignor(name: str) -> PartitionAssignor:
    """Return the assignor of that name, ours or another distribution's.

    Only the entry point of that name is imported, so a broken plugin does not affect other names.
    Our own assignors come first: an installed package must not change what ``range`` means. Raises
    UnknownAssignorError if there is no such assignor, and AssignorPluginError if it cannot be used.
    """
    if name in ASSIGNORS:
        return ASSIGNORS[name]
    found = entry_points(group=ENTRY_POINT_GROUP, name=name)
    if not found:
        known = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        raise UnknownAssignorError(name, {**ASSIGNORS, **known})
    # An editable install may be listed twice. A person has to choose between different assignors.
    if len({point.value for point in found}) > 1:
        homes = ", ".join(sorted(_home(point) for point in found))
        raise AssignorPluginError(f"more than one assignor is named {name!r}: {homes}")
    return _load(next(iter(found)))


def installed_assignors() -> list[str]:
    """Return the names of all assignors, ours and others', without importing any."""
    return sorted({*ASSIGNORS, *(point.name for point in entry_points(group=ENTRY_POINT_GROUP))})


def unknown_assignor(names: Iterable[str]) -> str | None:
    """Return why one of these names is no assignor for consumer groups; None if all are. Imports no
    assignor.
    """
    others = [name for name in names if name not in OUR_ASSIGNORS]
    known = {*OUR_ASSIGNORS, *installed_assignors()} if others else {}
    for name in others:
        if name not in known:
            return f"no installed assignor is named {name!r}; known are {', '.join(sorted(known))}"
    return None


def _load(point: EntryPoint) -> PartitionAssignor:
    try:
        loaded = point.load()
        assignor = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise AssignorPluginError(f"{_home(point)} cannot be loaded: {error}") from error
    if getattr(assignor, "name", None) != point.name:
        raise AssignorPluginError(f"{_home(point)} has another name than its entry point")
    if not callable(getattr(assignor, "assign", None)):
        raise AssignorPluginError(f"{_home(point)} has no method assign")
    return cast("PartitionAssignor", assignor)


def _home(point: EntryPoint) -> str:
    distribution = point.dist.name if point.dist is not None else "an unnamed distribution"
    return f"{point.value} of {distribution}"
