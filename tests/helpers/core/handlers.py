"""Replaces the function that handles a type of request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from groupkeeper.coordinator.core.dispatch import ABSENT_GROUP, HANDLERS


def handle_with(patch: pytest.MonkeyPatch, kind: type, function: Callable[..., Any]) -> None:
    """Let a function of (shard, group, request, ticket) handle a kind of request."""
    for functions in (*HANDLERS.values(), ABSENT_GROUP):
        patch.setitem(functions, kind, function)
