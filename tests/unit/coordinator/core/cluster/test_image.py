"""Images of topics that follow each other: versions, and what changed between two of them."""

from __future__ import annotations

from groupkeeper.coordinator.cluster.topics import Topics
from groupkeeper.coordinator.core.cluster.image import (
    MAX_DELETED_NAMES,
    TopicImage,
    TopicInfo,
    keep_names,
)

A = TopicInfo("a", "AAAAAAAAAAAAAAAAAAAAAA", 1)
B = TopicInfo("b", "BBBBBBBBBBBBBBBBBBBBBA", 2)
C = TopicInfo("c", "CCCCCCCCCCCCCCCCCCCCCA", 3)


def test_the_next_image_has_the_names_of_new_deleted_and_grown_topics():
    was = TopicImage.of(A, B)
    image = was.followed_by([A._replace(partitions=4), C])
    assert image.difference.changed == {"a", "b", "c"}
    assert image.difference.deleted == {"b"}
    assert image == TopicImage.of(A._replace(partitions=4), C), "versions are not compared"


def test_a_topic_with_a_new_id_was_deleted_and_created():
    was = TopicImage.of(A, B)
    image = was.followed_by([A._replace(topic_id=C.topic_id), B])
    assert image.difference == ({"a"}, {"a"})
    assert image.created_version == image.version


def test_a_topic_without_an_id_that_gets_one_was_changed_and_not_deleted():
    was = TopicImage.of(A._replace(topic_id=""))
    assert was.followed_by([A]).difference == ({"a"}, set())


def test_only_a_new_topic_raises_the_version_of_creation():
    first = TopicImage.of().followed_by([A])
    assert (first.version, first.created_version) == (1, 1)
    grown = first.followed_by([A._replace(partitions=9)])
    assert (grown.version, grown.created_version) == (2, 1)
    gone = grown.followed_by([])
    assert (gone.version, gone.created_version) == (3, 1)
    again = gone.followed_by([A, B])
    assert (again.version, again.created_version) == (4, 4)


def test_the_difference_from_the_image_before_is_found_once():
    was = TopicImage.of().followed_by([A])
    image = was.followed_by([A, B])
    assert image.difference_from(was) is image.difference


def test_a_shard_that_missed_images_learns_of_all_their_changes():
    """It was loaded while the others got them."""
    first = TopicImage.of().followed_by([A, B])
    last = first.followed_by([B]).followed_by([B, C])
    assert last.difference.changed == {"c"}
    assert last.difference_from(first) == ({"a", "c"}, {"a"})
    assert last.difference_from(TopicImage.of()) == ({"b", "c"}, set())
    assert last.difference_from(last) == (set(), set())


def test_every_change_of_the_topics_makes_the_next_version():
    topics = Topics()
    assert topics.image.version == 0
    topics.replace({"a": A})
    assert topics.image.version == 1
    assert not topics.replace({"a": A})
    assert topics.image.version == 1, "nothing has changed"
    topics.replace({"a": A, "b": B})
    assert (topics.image.version, topics.image.difference.changed) == (2, {"b"})


def test_only_the_newest_names_of_deleted_topics_are_kept():
    names: dict[str, str] = {}
    for number in range(MAX_DELETED_NAMES + 5):
        topic = TopicInfo(f"t{number}", f"id{number}", 1)
        keep_names(names, TopicImage.of(topic), {topic.name})
    assert len(names) == MAX_DELETED_NAMES
    assert ("id4" in names, names["id5"]) == (False, "t5")
