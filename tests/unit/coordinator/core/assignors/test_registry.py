"""The assignors by name."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.assignors.registry import ASSIGNORS
from groupkeeper.coordinator.core.assignors.types import StickyPartitionAssignor


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
def test_an_assignor_bears_the_name_it_is_found_under(name):
    assert ASSIGNORS[name].name == name


def test_only_the_sticky_one_starts_from_a_previous_assignment():
    able = [name for name, one in ASSIGNORS.items() if isinstance(one, StickyPartitionAssignor)]
    assert able == ["sticky"]
