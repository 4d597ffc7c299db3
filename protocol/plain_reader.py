"""Read entities whose bytes are plain: one generated function for each class of kio.

Nearly every request is plain: nothing in it is cut off, too large or unknown. The function reads
such bytes two to three times as fast as the safe reader (``protocol/reader.py``). It reads nearly
every field without calling another Python function. It refuses bytes with any of these:

- a length or a count beyond the end
- more array elements than the budget
- a null that is not allowed
- text that is not UTF-8
- a tagged field

The safe reader then reads the body from its beginning. So only the safe reader knows the exact
rules and raises errors. A property test compares both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct, error, unpack_from
from typing import Any, Final, TypeAlias
from uuid import UUID

from groupkeeper.protocol.errors import ProtocolError
from groupkeeper.protocol.fields import LAYOUTS, EntityClass, WireField, wire_fields
from groupkeeper.protocol.packing import MAX_STRING_BYTES

ReadPlain: TypeAlias = Callable[[bytes, int, int], Any]
"""A function of (bytes, offset, budget of elements) that returns the entity at the offset. If the
bytes are not plain, it returns None or raises one of ``NOT_PLAIN``.
"""

NOT_PLAIN: Final = (IndexError, UnicodeDecodeError, error, ProtocolError)
"""The errors that a ``ReadPlain`` may raise instead of returning None."""

_NULL_UUID: Final = bytes(16)
_LONGEST_VARINT: Final = 5


@cache
def plain_reader(entity_type: EntityClass) -> ReadPlain:
    """Return the generated function that reads plain bytes of this class."""
    source = _Source()
    try:
        entity = source.add_entity(entity_type, "    ")
    except _NullableEntity:
        return _never_plain
    lines = ["def read(data, p, left):", "    end = len(data)", *source.lines]
    code = "\n".join([*lines, f"    return {entity}"])
    filename = f"<reader of {entity_type.__name__} v{entity_type.__version__}>"
    exec(compile(code, filename, "exec"), source.names)  # noqa: S102  our own source
    read: ReadPlain = source.names["read"]
    return read


class _NullableEntity(Exception):
    """Raised for an entity that may be null. Few requests contain one."""


def _never_plain(_data: bytes, _offset: int, _max_elements: int) -> None:
    return None


def long_length(data: bytes, after: int) -> tuple[int, int]:
    """Return a compact length of several bytes, and the position after it. ``after`` is the
    position after its first byte.

    Raises IndexError if the varint is cut off, and ProtocolError if it has more than five bytes.
    """
    value = data[after - 1] & 0x7F
    for number in range(1, _LONGEST_VARINT):
        byte = data[after]
        after += 1
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value - 1, after
    raise ProtocolError("bad_varint", "a varint of more than five bytes")


def _uuid(raw: bytes) -> UUID | None:
    return None if raw == _NULL_UUID else UUID(bytes=raw)


class _Source:
    """The source code of one function, and the names that it uses.

    ``p`` is the position, ``n`` a length, ``left`` the budget of elements. Each value has its own
    variable.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "int16": Struct(">h").unpack_from,
            "int32": Struct(">i").unpack_from,
            "unpack_from": unpack_from,
            "long_length": long_length,
            "uuid": _uuid,
        }
        self._count = 0

    def add_entity(self, entity_type: EntityClass, indent: str) -> str:
        """Add the lines that read an entity. Return the name of its variable."""
        flexible: bool = entity_type.__flexible__
        plain, tagged = wire_fields(entity_type)
        values = self._add_fields(plain, indent, flexible=flexible)
        values |= {field.name: self._named("default", field.default) for field in tagged}
        if flexible:
            self._add(indent, "if data[p]: return None", "p += 1")
        entity = self._new("e")
        # This bypasses the __init__ of the frozen dataclass, which costs several times as much.
        create = self._named("new", entity_type.__new__)
        self._add(indent, f"{entity} = {create}({self._named('cls', entity_type)})")
        for name, value in values.items():
            setter = self._named(f"set_{name}", getattr(entity_type, name).__set__)
            self._add(indent, f"{setter}({entity}, {value})")
        return entity

    def _add_fields(
        self, fields: list[WireField], indent: str, *, flexible: bool
    ) -> dict[str, str]:
        """Add the lines that read the fields in order. Return the variable of each field."""
        values: dict[str, str] = {}
        layout = ""
        run: list[str] = []
        for field in [*fields, None]:
            if field is not None and field.layout:
                # Adjacent fixed-size fields are unpacked at once.
                layout += field.layout
                values[field.name] = self._new("v")
                run.append(values[field.name])
                continue
            if run:
                self._add_fixed(indent, layout, "".join(f"{name}, " for name in run))
                layout, run = "", []
            if field is not None:
                values[field.name] = self._add_field(field, indent, flexible=flexible)
        return values

    def _add_field(self, field: WireField, indent: str, *, flexible: bool) -> str:
        if field.is_array:
            return self._add_array(field, indent, flexible=flexible)
        if field.entity is not None:
            if field.nullable:
                raise _NullableEntity
            return self.add_entity(field.entity, indent)
        return self._add_sized(field.kafka_type, indent, flexible=flexible, nullable=field.nullable)

    def _add_array(self, field: WireField, indent: str, *, flexible: bool) -> str:
        value = self._new("v")
        inner = self._add_length(value, indent, "int32", flexible=flexible, nullable=field.nullable)
        # Each element has at least one byte.
        self._add(inner, "left -= n", "if left < 0 or n > end - p: return None")
        layout = LAYOUTS.get(field.kafka_type)
        if layout is not None:
            self._add(inner, f'{value} = unpack_from(f">{{n}}{layout}", data, p)')
            self._add(inner, f"p += n * {Struct('>' + layout).size}")
            return value
        items = self._new("items")
        self._add(inner, f"{items} = []", "for _ in range(n):")
        body = inner + "    "
        if field.entity is not None:
            item = self.add_entity(field.entity, body)
        else:
            item = self._add_sized(field.kafka_type, body, flexible=flexible, nullable=False)
        self._add(body, f"{items}.append({item})")
        self._add(inner, f"{value} = tuple({items})")
        return value

    def _add_sized(self, kafka_type: str, indent: str, *, flexible: bool, nullable: bool) -> str:
        """Add the lines that read a string, bytes or a UUID. Return the variable."""
        value = self._new("v")
        if kafka_type == "uuid":
            self._add(indent, "if p + 16 > end: return None", f"{value} = uuid(data[p : p + 16])")
            self._add(indent, "p += 16")
            return value
        is_text = kafka_type == "string"
        length = "int16" if is_text else "int32"
        inner = self._add_length(value, indent, length, flexible=flexible, nullable=nullable)
        too_long = f"n > {MAX_STRING_BYTES} or " if is_text and flexible else ""
        self._add(inner, "q = p + n", f"if {too_long}q > end: return None")
        self._add(inner, f"{value} = data[p:q]" + (".decode()" if is_text else ""), "p = q")
        return value

    def _add_length(
        self, value: str, indent: str, classic: str, *, flexible: bool, nullable: bool
    ) -> str:
        """Add the lines that read a length into ``n``.

        Returns the indent for the lines that follow. They are executed only if the value is not
        null.
        """
        if flexible:
            self._add(indent, "n = data[p] - 1", "p += 1")
            self._add(indent, "if n >= 127: n, p = long_length(data, p)")
        else:
            self._add(
                indent, f"n = {classic}(data, p)[0]", f"p += {2 if classic == 'int16' else 4}"
            )
        if nullable:
            self._add(indent, f"if n < 0: {value} = None", "else:")
            return indent + "    "
        self._add(indent, "if n < 0: return None")
        return indent

    def _add_fixed(self, indent: str, layout: str, targets: str) -> None:
        run = Struct(">" + layout)
        unpack = self._named(f"unpack_{layout.replace('?', 'bool')}", run.unpack_from)
        self._add(indent, f"{targets}= {unpack}(data, p)", f"p += {run.size}")

    def _add(self, indent: str, *lines: str) -> None:
        self.lines += [indent + line for line in lines]

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _named(self, prefix: str, value: Any) -> str:
        name = self._new(f"{prefix}_")
        self.names[name] = value
        return name
