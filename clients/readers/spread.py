"""Decide which member reads which partition, with even shares and the fewest moves (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def spread(
    partitions: int, members: Iterable[str], owners: Mapping[int, str]
) -> dict[str, list[int]]:
    """Return the partitions that each member should have. ``owners`` has the present owners.

    A partition whose owner is not a member is left out until it is free. Every member computes the
    result by itself. The result does not change while members claim and hand over partitions
    according to it. Only a member with more than an even share hands over partitions, and no member
    gets more than its share.
    """
    names = sorted(set(members))
    held: dict[str, list[int]] = {name: [] for name in names}
    free = []
    for partition in range(partitions):
        owner = owners.get(partition)
        if owner is None:
            free.append(partition)
        elif owner in held:
            held[owner].append(partition)
    if not names:
        return {}
    least, more = divmod(len(free) + sum(map(len, held.values())), len(names))
    # the larger shares are for members that already have so many: each of them saves a move
    favoured = set(sorted(names, key=lambda name: (len(held[name]) <= least, name))[:more])
    share = {name: least + (name in favoured) for name in names}
    surplus = [p for name in names for p in held[name][share[name] :]]
    to_give = iter([*free, *sorted(surplus)])
    target = {name: held[name][: share[name]] for name in names}
    for name in names:
        target[name] += [next(to_give) for _ in range(share[name] - len(target[name]))]
    return target
