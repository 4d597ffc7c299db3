"""The picture of the rooms in ``docs/architecture.md``, from the imports of the sources."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter

import grimp

ROOT = "groupkeeper"
WITH_ROOMS = "coordinator"
"""The only folder whose rooms have separate boxes. Every other folder is one box."""

ALONE = ("storage", "connections")
"""Clients import these and nothing else of storage."""

Arrow = tuple[str, str]


def picture() -> str:
    """Draw the rooms and their imports as a Mermaid diagram."""
    shown = needed(imports())
    rooms = sorted({room for arrow in imports() for room in arrow})
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {_id(room)}["{room}"]' for room in rooms]
    lines += [f"    {_id(importer)} --> {_id(imported)}" for importer, imported in sorted(shown)]
    return "\n".join([*lines, "```"])


@cache
def imports() -> frozenset[Arrow]:
    """Return every import between two rooms, as (importer, imported)."""
    graph = grimp.build_graph(ROOT, cache_dir=None)
    packages = {module for module in graph.modules if graph.find_children(module)}
    arrows = (
        (_room(importer, packages), _room(imported, packages))
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    )
    return frozenset((a, b) for a, b in arrows if a and b and a != b)


def needed(arrows: Iterable[Arrow]) -> set[Arrow]:
    """Leave out each arrow that follows from others. Raises CycleError if they form a circle."""
    targets: dict[str, set[str]] = {}
    for importer, imported in arrows:
        targets.setdefault(importer, set()).add(imported)
    reached: dict[str, set[str]] = {}
    for room in TopologicalSorter(targets).static_order():
        beyond = [reached[imported] for imported in targets.get(room, ())]
        reached[room] = targets.get(room, set()).union(*beyond)
    return {
        (importer, imported)
        for importer, its in targets.items()
        for imported in its - set().union(*(reached[each] for each in its))
    }


def _room(module: str, packages: set[str]) -> str:
    """Return the room of a module as a path; "" if it is in no room."""
    folder, *rest = module.split(".")[1:] or [""]
    if (folder, *rest[:1]) == ALONE:
        return "/".join(ALONE)
    if folder != WITH_ROOMS:
        return folder if f"{ROOT}.{folder}" in packages else ""
    room = f"{ROOT}.{folder}.{rest[0]}" if rest else ""
    return f"{folder}/{rest[0]}" if room in packages else ""


def _id(room: str) -> str:
    return room.replace("/", "_")
