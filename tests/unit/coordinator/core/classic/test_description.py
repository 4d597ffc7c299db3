"""DescribeGroups for one group (docs/spec/administration.md#describe-groups)."""

from __future__ import annotations

from groupkeeper.coordinator.core.errors import ErrorCode
from groupkeeper.coordinator.core.group_state import GroupState
from groupkeeper.coordinator.core.requests.admin import DescribedMember
from tests.helpers.core.shard_driver import (
    a_member,
    a_stable_group,
    completing,
    protocols,
    stable,
)


def test_absent_group_is_dead(driver):
    """docs/spec/edge-cases.md#edge-105, as far as the core knows it: handlers of old versions drop
    the error.
    """
    result = driver.describe("nobody")
    assert (result.error, result.state) == (ErrorCode.GROUP_ID_NOT_FOUND, GroupState.DEAD)
    assert (result.group_id, result.protocol_type, result.protocol_name) == ("nobody", "", "")
    assert result.members == ()
    assert result.message


def test_stable_group_is_described_with_everything(driver):
    leader, follower = stable(
        driver,
        a_member(driver, instance_id="i1", protocols=protocols("range", subscription=b"one")),
        a_member(driver, protocols=protocols("range", subscription=b"two")),
    )
    result = driver.describe()
    assert (result.error, result.state) == (ErrorCode.NONE, GroupState.STABLE)
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    assert set(result.members) == {
        DescribedMember(
            m.member_id,
            m.instance_id,
            "app",
            "/10.0.0.1",
            m.fields["protocols"][0].metadata,
            f"part-of-{m.member_id}".encode(),
        )
        for m in (leader, follower)
    }
    assert result.message is None


def test_preparing_group_shows_no_protocol_and_no_subscriptions_but_the_assignments_kept(driver):
    """docs/spec/administration.md#describe-groups, docs/spec/joining.md#preparing: from Stable the
    old assignments are kept.
    """
    leader, follower = a_stable_group(driver)
    leader.join()
    result = driver.describe()
    assert (result.state, result.protocol_name) == (GroupState.PREPARING_REBALANCE, "")
    assert result.protocol_type == "consumer"
    assert {m.member_id: (m.member_metadata, m.member_assignment) for m in result.members} == {
        m.member_id: (b"", f"part-of-{m.member_id}".encode()) for m in (leader, follower)
    }


def test_completing_group_shows_no_protocol_and_no_subscriptions(driver):
    completing(driver, a_member(driver), a_member(driver))
    result = driver.describe()
    assert (result.state, result.protocol_name) == (GroupState.COMPLETING_REBALANCE, "")
    assert {(m.member_metadata, m.member_assignment) for m in result.members} == {(b"", b"")}


def test_ids_that_were_only_handed_out_are_not_described(driver):
    driver.join("g")
    result = driver.describe()
    assert (result.error, result.state, result.members) == (
        ErrorCode.NONE,
        GroupState.EMPTY,
        (),
    )
    a_stable_group(driver, "h")
    driver.join("h")
    assert len(driver.describe("h").members) == 2


def test_empty_group_is_described_with_its_type(driver):
    (member,) = a_stable_group(driver, members=1)
    member.leave()
    result = driver.describe()
    assert (result.state, result.protocol_type, result.protocol_name) == (
        GroupState.EMPTY,
        "consumer",
        "",
    )


def test_simple_group_is_described_as_empty_without_type(driver):
    driver.commit("g")
    result = driver.describe()
    assert (result.error, result.state, result.protocol_type) == (
        ErrorCode.NONE,
        GroupState.EMPTY,
        "",
    )


def test_group_with_the_empty_id_is_described(driver):
    """docs/spec/admission.md#order: "" is an ordinary group id here."""
    assert driver.describe("").error is ErrorCode.GROUP_ID_NOT_FOUND
    driver.commit("")
    assert driver.describe("").state == GroupState.EMPTY


def test_descriptions_write_nothing(driver):
    a_stable_group(driver)
    records, events = len(driver.records), len(driver.events)
    driver.describe()
    driver.list_groups()
    assert (len(driver.records), len(driver.events)) == (records, events)
