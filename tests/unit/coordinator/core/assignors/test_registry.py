"""The assignors by name."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.assignors.registry import (
    ASSIGNORS,
    UnknownAssignorError,
    get_assignor,
)
from groupkeeper.coordinator.core.assignors.types import StickyPartitionAssignor


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
def test_an_assignor_bears_the_name_it_is_found_under(name):
    assert get_assignor(name).name == name


def test_a_misspelt_name_is_answered_with_the_names_there_are():
    with pytest.raises(UnknownAssignorError, match="'rnage'; there are range, roundrobin, sticky"):
        get_assignor("rnage")


def test_only_the_sticky_one_starts_from_a_previous_assignment():
    able = [name for name, one in ASSIGNORS.items() if isinstance(one, StickyPartitionAssignor)]
    assert able == ["sticky"]
