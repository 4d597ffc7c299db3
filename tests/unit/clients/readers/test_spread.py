"""Spreading: even within one, and compared with the fewest moves that any even spreading needs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from groupkeeper.clients.readers.spread import spread

MEMBERS = ["a", "b", "c", "d", "e"]


def fewest_moves(partitions: int, members: list[str], owners: dict[int, str]) -> int:
    """By trying every way to hand out the shares; what somebody else owns cannot be moved."""
    held = {m: [p for p, owner in owners.items() if owner == m] for m in members}
    foreign = sum(owner not in members for owner in owners.values())
    least, more = divmod(partitions - foreign, len(members))
    shares = [least + (n < more) for n in range(len(members))]
    return min(
        sum(max(0, len(held[m]) - share) for m, share in zip(members, order, strict=True))
        for order in set(permutations(shares))
    )


@st.composite
def groups(draw: st.DrawFn) -> tuple[int, list[str], dict[int, str]]:
    partitions = draw(st.integers(1, 30))
    members = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True))
    anybody = st.sampled_from([*MEMBERS, "somebody else"])
    owners = draw(st.dictionaries(st.integers(0, partitions - 1), anybody))
    return partitions, members, owners


@given(groups())
def test_shares_are_even_and_as_few_partitions_move_as_can_be(group):
    partitions, members, owners = group
    shares = spread(partitions, members, owners)
    given_out = sorted(p for share in shares.values() for p in share)
    assert given_out == [p for p in range(partitions) if owners.get(p, members[0]) in members]
    sizes = [len(shares[member]) for member in members]
    assert max(sizes) - min(sizes) <= 1
    moved = [p for p, owner in owners.items() if owner in members and p not in shares[owner]]
    assert len(moved) == fewest_moves(partitions, members, owners)


@given(groups(), st.randoms(use_true_random=False))
def test_however_the_members_take_their_steps_they_arrive_with_no_detour(group, random):
    """Each gives up and takes one partition at a time, and looks anew before each step."""
    partitions, members, owners = group
    planned = fewest_moves(partitions, members, owners)
    given_up = 0
    for _ in range(5 * partitions + 5):
        steps = list(_steps(partitions, members, owners))
        if not steps:
            break
        member, partition = random.choice(steps)
        if owners.get(partition) == member:
            given_up += 1
            del owners[partition]
        else:
            owners[partition] = member
    assert list(_steps(partitions, members, owners)) == []
    assert given_up == planned


def _steps(
    partitions: int, members: list[str], owners: dict[int, str]
) -> Iterator[tuple[str, int]]:
    shares = spread(partitions, members, owners)
    for member in members:
        yield from ((member, p) for p, o in owners.items() if o == member and p not in shares[o])
        yield from ((member, p) for p in shares[member] if p not in owners)


def test_nobody_is_given_anything_where_nobody_is():
    assert spread(3, [], {0: "a"}) == {}


def test_more_members_than_partitions_leave_some_with_none():
    assert spread(1, ["a", "b"], {0: "b"}) == {"a": [], "b": [0]}
