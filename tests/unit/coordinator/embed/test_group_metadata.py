"""The states of members that a host sees in a consumer group."""

from __future__ import annotations

import pytest

from groupkeeper.coordinator.core.group_state import STATES_OF, GroupState
from groupkeeper.coordinator.core.group_type import GroupType
from groupkeeper.coordinator.core.requests.admin import GroupView, MemberView
from groupkeeper.coordinator.core.requests.client import Client
from groupkeeper.coordinator.embed.group_metadata import MemberState, group_metadata


def state_of(group: GroupState, *, is_parked: bool = False, is_behind: bool = False) -> MemberState:
    member = MemberView(
        "m", None, Client("app", "/10.0.0.1"), b"", b"", 1, 1, is_parked, is_behind, None, None
    )
    view = GroupView("g", group, "consumer", "uniform", None, 3, 0, (member,))
    return group_metadata(view).members["m"].state


@pytest.mark.parametrize("state", [GroupState.ASSIGNING, GroupState.RECONCILING])
def test_a_member_below_its_target_reconciles(state: GroupState) -> None:
    assert state_of(state, is_behind=True) is MemberState.RECONCILING
    assert state_of(state) is MemberState.STABLE
    assert state_of(state, is_parked=True, is_behind=True) is MemberState.JOINING


@pytest.mark.parametrize(
    "state", [each for group_type in GroupType for each in STATES_OF[group_type]]
)
def test_every_state_of_every_type_of_groups_can_be_shown(state: GroupState) -> None:
    assert isinstance(state_of(state), MemberState)
