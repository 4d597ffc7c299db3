"""Recognizes the lines of a segment (a file of events) that have only known fields (pure).

A new field does not change the version of the event log. So a line may have fields that this
version of groupkeeper does not know. The table bronze keeps such a line unchanged in the column
``rest``.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from groupkeeper.pipeline.log.columns import LINE_SCHEMA, ROW_FIELDS

_TEXT: Final = r'"(?:[^"\\]++|\\.)*+"'
_SCALAR: Final = rf"(?:{_TEXT}|[-+.\w]++)"
"""A text, a number, true, false or null."""
_ROW: Final = rf"\[(?:{_SCALAR},?+){{0,{len(ROW_FIELDS)}}}+\]"
"""A partition of a commit: an array with at most one value for each of ``ROW_FIELDS``."""


def known_line() -> str:
    """Return a regular expression, for Java and Python, that matches a line with only known fields.

    It does not check that the line is valid JSON: the parser does. All repetitions are possessive
    (they never backtrack), so a line of any length needs one pass and no stack.
    """
    return f"^{_object(LINE_SCHEMA)}$"


def _object(struct: StructType) -> str:
    """Return an expression for a JSON object with any of the fields of ``struct``. Fields whose
    values have the same form share one alternative.
    """
    names: dict[str, list[str]] = {}
    for field in struct:
        names.setdefault(_value(field), []).append(field.name)
    members = "|".join(f'"(?:{"|".join(of)})":{value}' for value, of in names.items())
    return _repeated("{", members, "}")


def _value(field: StructField) -> str:
    if field.name == "rows":
        return _or_null(_repeated("[", _ROW, "]"))
    return _of_type(field.dataType)


def _of_type(kind: DataType) -> str:
    match kind:
        case StructType():
            return _or_null(_object(kind))
        case ArrayType():
            return _or_null(_repeated("[", _of_type(kind.elementType), "]"))
        case MapType():
            return _or_null(_repeated("{", f"{_TEXT}:{_of_type(kind.valueType)}", "}"))
        case _:
            return _SCALAR


def _repeated(opening: str, part: str, closing: str) -> str:
    return rf"\{opening}(?:(?:{part}),?+)*+\{closing}"


def _or_null(value: str) -> str:
    return f"(?:{value}|null)"


KNOWN_LINE: Final = known_line()
