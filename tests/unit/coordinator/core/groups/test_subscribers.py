"""The index from topics to the groups that subscribe to them."""

from __future__ import annotations

from groupkeeper.coordinator.core.groups.subscribers import Subscribers


def test_a_topic_has_the_groups_that_subscribe_to_it():
    subscribers = Subscribers()
    subscribers.change("g", set(), {"a", "b"})
    subscribers.change("f", set(), {"b"})
    assert subscribers.of(["a"]) == ["g"]
    assert subscribers.of(["b", "a"]) == ["f", "g"], "each once"
    assert subscribers.of(["unknown"]) == []


def test_a_group_that_changes_its_topics_is_found_by_the_new_ones_only():
    subscribers = Subscribers()
    subscribers.change("g", set(), {"a", "b"})
    subscribers.change("g", {"a", "b"}, {"b", "c"})
    assert [subscribers.of([topic]) for topic in "abc"] == [[], ["g"], ["g"]]


def test_a_group_that_goes_leaves_the_others_of_its_topics():
    subscribers = Subscribers()
    for group in "fgh":
        subscribers.change(group, set(), {"a", "b"})
    subscribers.change("g", {"a", "b"}, {"a"})
    assert [subscribers.of([topic]) for topic in "ab"] == [["f", "g", "h"], ["f", "h"]]
    subscribers.change("f", {"a", "b"}, set())
    subscribers.change("h", {"a", "b"}, set())
    subscribers.change("i", set(), {"a", "b"})
    assert [subscribers.of([topic]) for topic in "ab"] == [["g", "i"], ["i"]]


def test_a_deleted_group_leaves_nothing():
    subscribers = Subscribers()
    subscribers.change("g", set(), {"a", "b"})
    subscribers.change("g", {"a", "b"}, set())
    assert vars(subscribers) == vars(Subscribers())
