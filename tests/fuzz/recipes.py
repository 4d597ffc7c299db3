"""Frames described in a few words: how many elements, which text, how long.

A frame of 8 MiB is made of its recipe, so that a search can change one thing of it, and the worst
frames can be kept as lines instead of files.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from groupkeeper.coordinator.handlers.exchange import ELEMENT_WEIGHTS
from groupkeeper.protocol.codec import request_class
from groupkeeper.protocol.consumer_protocol import (
    ConsumerAssignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from tests.fuzz.prepared import MEMBER, TOPIC_ID, WORDS
from tests.helpers.wire.wire_entities import INTEGERS, MILLISECONDS, Shape, served, shapes

MAX_FRAME_BYTES: Final = 8_388_608
"""The default of kafka.max_frame_bytes."""
MAX_STRING_BYTES: Final = 32_767
MAX_COPIES: Final = 12
MOST_ELEMENTS: Final = 19_900
"""Just below the default of kafka.max_request_elements."""

LETTERS: Final = {
    "ascii": b"a",
    "latin": "é".encode(),
    "cjk": "日".encode(),
    "emoji": "\U0001f600".encode(),
    "control": b"\x01",
    "quote": b'"',
    "backslash": b"\\",
    "newline": b"\n",
    "invalid": b"\xff",
    "surrogate": b"\xed\xa0\x80",
}
"""Classes of characters, by what they cost: bytes, UTF-16 units, escapes in JSON, replacements."""
BLOBS: Final = ("zeros", "subscription", "assignment", "many partitions")
SERVED: Final = [each for each in served() if API_BY_KEY[ApiKey(each[0])].serves(each[1])]
NUMBERS: Final = (-1, 0, 1, 2, 7, 32, 1_000, 10_000, 30_000, 2**31 - 1)
COUNTS: Final = (0, 1, 2, 10, 100, 1_000, 1_990, 3_900, 9_900, 19_900, 100_000)
LENGTHS: Final = (0, 1, 15, 16, 100, 250, 1_000, 1_365, 2_048, 4_096, 8_000, 32_767)
BLOB_LENGTHS: Final = (*LENGTHS, 100_000, 200_000, 1_000_000, 4_000_000, 8_300_000)

Gene = str | int | None
"""A count, a number, a word, or ``letter*length`` of text; None is null."""


class Site(NamedTuple):
    """A field of a request, at any depth, by its path: ``topics[].name``."""

    path: str
    shape: Shape


@dataclass(frozen=True)
class Recipe:
    """A request of one API and version, and how many connections send it in one turn."""

    key: int
    version: int
    genes: Mapping[str, Gene] = field(default_factory=dict)
    copies: int = 1

    def frame(self) -> bytes:
        """The frame with its length."""
        client = struct.pack(">h", 2) + b"fz"
        head = struct.pack(">hhi", self.key, self.version, 1) + client
        if API_BY_KEY[ApiKey(self.key)].is_flexible(self.version):
            head += b"\0"
        body = head + _entity(request_class(self.key, self.version), self.genes, "", 0)
        return struct.pack(">i", len(body)) + body

    def fitting(self) -> tuple[Recipe, bytes]:
        """The recipe, with less of everything until its frame is within the limit."""
        recipe = self
        while recipe._size() > MAX_FRAME_BYTES:
            recipe = replace(recipe, genes={p: _less(g) for p, g in recipe.genes.items()})
        frame = recipe.frame()
        if len(frame) - 4 > MAX_FRAME_BYTES:
            return replace(recipe, genes={p: _less(g) for p, g in recipe.genes.items()}).fitting()
        return recipe, frame

    def _size(self) -> int:
        return _size(request_class(self.key, self.version), self.genes, "")

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "key": self.key,
            "version": self.version,
            "copies": self.copies,
            "genes": dict(self.genes),
        }


def first(key: int, version: int) -> Recipe:
    """The recipe that a search begins with: words that the target knows, one of everything."""
    return Recipe(key, version, {s.path: _first_of(key, s) for s in sites(key, version)})


def extremes(key: int, version: int) -> Iterator[Recipe]:
    """Where a search begins: one of everything; as many elements as may be; texts as long as may
    be, of each kind.
    """
    one = first(key, version)
    yield one
    where = sites(key, version)
    texts = [s.path for s in where if s.shape.kafka_type == "string" and not s.shape.is_array]
    most = MOST_ELEMENTS // ELEMENT_WEIGHTS.get(key, 1)
    arrays = [s.path for s in where if s.shape.is_array]
    for path in arrays:
        inside = [text for text in texts if text.startswith(path)]
        yield replace(one, genes={**one.genes, path: most})
        yield replace(one, genes={**one.genes, path: most, **dict.fromkeys(inside, "ascii*8#")})
        for letter in LETTERS:
            many = dict.fromkeys(inside, f"{letter}*400#")
            yield replace(one, genes={**one.genes, path: most, **many})
            long = dict.fromkeys(inside, f"{letter}*32767#")
            yield replace(one, genes={**one.genes, path: 250, **long})
    for letter in LETTERS:
        yield replace(one, genes={**one.genes, **dict.fromkeys(texts, f"{letter}*32767")})


def changed(rng: random.Random, recipe: Recipe) -> Recipe:
    """The recipe with some of its genes drawn anew, and now and then another version."""
    if rng.random() < 0.05:
        return replace(recipe, copies=rng.randint(1, MAX_COPIES))
    if rng.random() < 0.15:
        versions = [version for key, version in SERVED if key == recipe.key]
        version = rng.choice(versions)
        genes = {s.path: recipe.genes.get(s.path, _first(s)) for s in sites(recipe.key, version)}
        recipe = Recipe(recipe.key, version, genes, recipe.copies)
    genes = dict(recipe.genes)
    where = sites(recipe.key, recipe.version)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if where:
            site = rng.choice(where)
            genes[site.path] = _drawn(rng, site, genes.get(site.path))
    return replace(recipe, genes=genes)


@cache
def sites(key: int, version: int) -> tuple[Site, ...]:
    """Every field of a request that is not tagged."""
    return tuple(_sites(request_class(key, version), ""))


def _sites(entity_type: Any, path: str) -> Iterator[Site]:
    for shape in _shapes(entity_type):
        here = f"{path}.{shape.name}" if path else shape.name
        if shape.is_array or shape.entity is None:
            yield Site(here, shape)
        if shape.entity is not None:
            yield from _sites(shape.entity, here)


@cache
def _shapes(entity_type: Any) -> tuple[Shape, ...]:
    return tuple(shape for shape in shapes(entity_type) if shape.tag is None)


# --- genes ----------------------------------------------------------------------------------------


def _first(site: Site) -> Gene:
    shape = site.shape
    if shape.is_array:
        return 1
    if shape.kafka_type in ("bytes", "records"):
        return "subscription*15"
    if shape.kafka_type == "string":
        return next(iter(WORDS.get(shape.name, ("ascii*16",))))
    if shape.kafka_type == "uuid":
        return "known"
    if shape.kafka_type in MILLISECONDS:
        return 10_000
    return _NUMBERS_OF.get(shape.name, 1)


def _first_of(key: int, site: Site) -> Gene:
    return _FIRST_OF[key, site.path] if (key, site.path) in _FIRST_OF else _first(site)


_FIRST_OF: Final[dict[tuple[int, str], Gene]] = {
    # A group without members, in which everyone may commit.
    (ApiKey.OFFSET_COMMIT, "group_id"): "other",
    (ApiKey.OFFSET_COMMIT, "group_instance_id"): None,
    (ApiKey.JOIN_GROUP, "protocols.name"): "range",
    (ApiKey.JOIN_GROUP, "group_instance_id"): None,
    (ApiKey.SYNC_GROUP, "group_id"): "forming",
    (ApiKey.SYNC_GROUP, "member_id"): MEMBER,
    (ApiKey.SYNC_GROUP, "assignments.member_id"): MEMBER,
    (ApiKey.SYNC_GROUP, "group_instance_id"): None,
    (ApiKey.HEARTBEAT, "group_instance_id"): None,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "group_id"): "modern",
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "member_id"): "fz-modern-1",
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "member_epoch"): 0,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "instance_id"): None,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "subscribed_topic_regex"): None,
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "server_assignor"): "uniform",
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "topic_partitions"): 0,
}
"""What makes a request of this API one that does its work."""

_NUMBERS_OF: Final = {
    "generation_id": 1,
    "generation_id_or_member_epoch": -1,
    "partition_index": "index",
    "resource_type": 32,
    "replication_factor": 1,
    "timestamp": -1,
}


def _drawn(rng: random.Random, site: Site, old: Gene) -> Gene:
    shape = site.shape
    if shape.nullable and rng.random() < 0.05:
        return None
    if shape.is_array:
        return _grown(rng, old, COUNTS)
    if shape.kafka_type in ("bytes", "records"):
        return f"{rng.choice(BLOBS)}*{_grown(rng, _length(old), BLOB_LENGTHS)}"
    if shape.kafka_type == "string":
        if rng.random() < 0.3:
            return rng.choice(WORDS.get(shape.name, WORDS["name"]))
        distinct = "#" if rng.random() < 0.5 else ""
        return f"{rng.choice([*LETTERS])}*{_grown(rng, _length(old), LENGTHS)}{distinct}"
    if shape.kafka_type == "uuid":
        return rng.choice(("known", "index", None))
    if shape.kafka_type == "bool":
        return rng.randint(0, 1)
    return rng.choice(("index", *NUMBERS))


def _grown(rng: random.Random, old: Gene, choices: tuple[int, ...]) -> int:
    if isinstance(old, int) and old > 0 and rng.random() < 0.5:
        return max(1, int(old * rng.choice((0.5, 0.9, 1.1, 2, 4))))
    return rng.choice(choices)


def _length(gene: Gene) -> int | None:
    if isinstance(gene, str) and "*" in gene:
        return int(gene.rstrip("#").rpartition("*")[2])
    return None


def _less(gene: Gene) -> Gene:
    if isinstance(gene, int) and gene > 64:
        return int(gene * 0.8)
    if isinstance(gene, str) and "*" in gene:
        kind, _, length = gene.rpartition("*")
        mark = "#" if length.endswith("#") else ""
        number = int(length.rstrip("#"))
        return f"{kind}*{int(number * 0.8) if number > 64 else number}{mark}"
    return gene


# --- bytes ----------------------------------------------------------------------------------------


def _entity(entity_type: Any, genes: Mapping[str, Gene], path: str, at: int) -> bytes:
    flexible = entity_type.__flexible__
    parts: list[bytes] = []
    for shape in _shapes(entity_type):
        here = f"{path}.{shape.name}" if path else shape.name
        gene = genes.get(here)
        if shape.is_array:
            parts.append(_array(shape, genes, here, flexible))
        elif shape.entity is not None:
            parts.append(_entity(shape.entity, genes, here, at))
        else:
            parts.append(_value(shape, gene, at, flexible))
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)


def _array(shape: Shape, genes: Mapping[str, Gene], path: str, flexible: bool) -> bytes:
    count = genes.get(path)
    if count is None and shape.nullable:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    number = count if isinstance(count, int) else 0
    head = _varint(number + 1) if flexible else struct.pack(">i", number)

    def item(at: int) -> bytes:
        if shape.entity is not None:
            return _entity(shape.entity, genes, path, at)
        return _value(shape, genes.get(path + "[]", "index"), at, flexible)

    if number > 1 and item(0) == item(1):
        return head + item(0) * number
    return head + b"".join([item(at) for at in range(number)])


def _value(shape: Shape, gene: Gene, at: int, flexible: bool) -> bytes:
    kafka_type = shape.kafka_type or ""
    layout = INTEGERS.get(kafka_type) or MILLISECONDS.get(kafka_type)
    if layout:
        bits = 8 * struct.calcsize(layout) - 1
        number = at if gene == "index" else gene if isinstance(gene, int) else 1
        return struct.pack(">" + layout, max(-(2**bits), min(number, 2**bits - 1)))
    if kafka_type == "bool":
        return b"\1" if gene else b"\0"
    if kafka_type == "uuid":
        if gene is None:
            return bytes(16)
        return TOPIC_ID.bytes if gene == "known" else UUID(int=at + 1_000).bytes
    if kafka_type == "string":
        raw = None if gene is None and shape.nullable else _text(gene, at)
        return _sized(raw, "h", flexible)
    raw = None if gene is None and shape.nullable else _blob(str(gene))
    return _sized(raw, "i", flexible)


def _sized(raw: bytes | None, layout: str, flexible: bool) -> bytes:
    size = -1 if raw is None else len(raw)
    head = _varint(size + 1) if flexible else struct.pack(">" + layout, size)
    return head + (raw or b"")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(gene: Gene, at: int) -> bytes:
    if gene == "index":
        return b"n%d" % at
    if not isinstance(gene, str) or "*" not in gene:
        return str(gene or "").encode()[:MAX_STRING_BYTES]
    kind, _, length = gene.rpartition("*")
    letter = LETTERS[kind]
    start = b"%d" % at if length.endswith("#") else b""
    number = min(int(length.rstrip("#")), MAX_STRING_BYTES)
    return (start + letter * (max(0, number - len(start)) // len(letter)))[:MAX_STRING_BYTES]


@cache
def _blob(gene: str) -> bytes:
    if "*" not in gene:
        return gene.encode()
    kind, _, length = gene.rpartition("*")
    number = int(length.rstrip("#"))
    if kind == "subscription":
        return encode_subscription(Subscription(0, ["orders"] + [""] * (max(0, number - 20) // 2)))
    if kind == "assignment":
        names = {f"{n:x}": [0] for n in range(number // 14)}
        return encode_assignment(ConsumerAssignment(0, names))
    if kind == "many partitions":
        return encode_assignment(ConsumerAssignment(0, {"orders": list(range(number // 4))}))
    return bytes(number)


def _size(entity_type: Any, genes: Mapping[str, Gene], path: str) -> int:
    """About how long the entity is."""
    size = 1
    for shape in _shapes(entity_type):
        here = f"{path}.{shape.name}" if path else shape.name
        gene = genes.get(here)
        if shape.is_array:
            count = gene if isinstance(gene, int) else 0
            each = _size(shape.entity, genes, here) if shape.entity is not None else 4
            size += 4 + count * each
        elif shape.entity is not None:
            size += _size(shape.entity, genes, here)
        else:
            length = _length(gene) or 8
            size += 2 + (min(length, MAX_STRING_BYTES) if shape.kafka_type == "string" else length)
    return size
