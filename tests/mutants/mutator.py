"""Small wrong changes to a source file, found in its syntax tree: the drawn mutants.

Six operators. What cannot change behaviour is left alone: docstrings, log lines, annotations, the
messages of ``assert`` and of exceptions, ``__all__``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

from tests.mutants.mutant import Mutant, numbered

_OPERATOR: Final = re.compile(r"[<>=!]=|[<>]|is\s+not|not\s+in|is|in|and|or")
_OPPOSITE: Final = {"<": ">=", ">": "<=", "==": "!=", "is": "is not", "in": "not in", "and": "or"}
_NEGATED: Final = {**_OPPOSITE, **{other: one for one, other in _OPPOSITE.items()}}
_MOVED: Final = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_LOGGERS: Final = ("log.", "logger.", "logging.")
_RECORDS: Final = re.compile(r"(\.(record|event)|\b(records|events)\.(append|extend))$")
"""What is called to hand on a record or an event."""

_PLACE: Final = ("lineno", "col_offset", "end_lineno", "end_col_offset")

_Span: TypeAlias = tuple[int, int]
_Change: TypeAlias = tuple[str, _Span, _Span, str]
"""Operator, what people are shown, what is changed within it, and into what."""


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every mutant of one file."""
    return numbered(_Finder(path, source).walk(ast.parse(source), (), in_function=False))


def _looked_into(node: ast.AST) -> Iterable[ast.AST]:
    """The children in which something may be changed; decorators and annotations are none."""
    match node:
        case ast.ClassDef(body=body) | ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            with_nothing = ast.unparse(body[-1]) in ("return", "return None")
            args = [] if isinstance(node, ast.ClassDef) else [node.args]
            defaults = [one for a in args for one in (*a.defaults, *a.kw_defaults) if one]
            return [*defaults, *(body[:-1] if with_nothing else body)]
        case ast.Assert(test=inner):
            return [inner]
        case ast.Assign(value=inner) | ast.AugAssign(value=inner) | ast.AnnAssign(value=inner):
            return [inner] if inner else []
    return ast.iter_child_nodes(node)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.JoinedStr() | ast.If(test=ast.Name("TYPE_CHECKING")):
            return True
        case ast.Assign(targets=[ast.Name("__all__")]) | ast.AnnAssign(value=None):
            return True
        case ast.AnnAssign(annotation=ast.Name("TypeAlias")):
            return True
        case ast.Expr():
            return not _called(node) or _called(node).startswith(_LOGGERS)
    return False


def _called(node: ast.Expr) -> str:
    """What a statement calls, if it is nothing but a call."""
    inner = node.value.value if isinstance(node.value, ast.Await) else node.value
    return ast.unparse(inner.func) if isinstance(inner, ast.Call) else ""


def _is_kept(node: ast.Assign | ast.AnnAssign) -> bool:
    """Whether it sets what outlives the function."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return all(isinstance(one, ast.Attribute | ast.Subscript) for one in targets)


class _Finder:
    """Walks one file and tells what can be changed."""

    def __init__(self, path: str, source: bytes) -> None:
        self._path = path
        self._source = source
        self._line_starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
        self._codes = sorted({*re.findall(r"\bErrorCode\.([A-Z_]+)\b", source.decode())})

    def walk(self, node: ast.AST, scope: tuple[str, ...], *, in_function: bool) -> Iterator[Mutant]:
        """Every mutant of a node and of what is below it."""
        if _is_left_alone(node):
            return
        rows = () if in_function else self._rows(node)
        for operator, shown, changed, new in (*self._changes(node), *rows):
            before, old, after = map(
                self._text, ((shown[0], changed[0]), changed, (changed[1], shown[1]))
            )
            assert old != new, f"{self._path}: nothing is changed in {before}{new}{after}"
            text = " -> ".join(" ".join(f"{before}{t}{after}".split()) for t in (old, new))
            function, start = ".".join(scope) or "module", changed[0]
            yield Mutant(self._path, function, operator, text, start, old.encode(), new.encode())
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            scope = (*scope, node.name)
            in_function |= not isinstance(node, ast.ClassDef)
        for child in _looked_into(node):
            yield from self.walk(child, scope, in_function=in_function)

    def _changes(self, node: ast.AST) -> Iterator[_Change]:
        match node:
            case ast.Expr() if _RECORDS.search(_called(node)):
                yield self._whole("dropped record", node, "pass")
            case ast.Expr() | ast.Return() | ast.Raise() | ast.Continue() | ast.Break():
                yield self._whole("dropped statement", node, "pass")
            case ast.Delete() | ast.AugAssign():
                yield self._whole("dropped statement", node, "pass")
            case ast.Assign() | ast.AnnAssign() if _is_kept(node):
                yield self._whole("dropped statement", node, "pass")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._whole("comparison", node, f"({self._text(self._span(operand))})")
            case ast.BoolOp(values=values):
                yield from self._swaps("comparison", node, values[:2], _NEGATED)
            case ast.Compare(left=left, comparators=others):
                yield from self._swaps("comparison", node, [left, *others], _NEGATED)
                yield from self._swaps("boundary", node, [left, *others], _MOVED)
                yield from self._numbers(node, [left, *others])
            case ast.BinOp(left=left, right=right):
                yield from self._numbers(node, [left, right])
            case ast.Attribute(value=ast.Name("ErrorCode"), attr=code) if code in self._codes:
                codes = [*self._codes, "COORDINATOR_LOAD_IN_PROGRESS", self._codes[0]]
                other = next(c for c in codes[codes.index(code) + 1 :] if c != code)
                yield self._whole("swapped error code", node, f"ErrorCode.{other}")

    def _whole(self, operator: str, node: ast.AST, new: str) -> _Change:
        return operator, self._span(node), self._span(node), new

    def _swaps(
        self, operator: str, node: ast.AST, sides: Sequence[ast.expr], words: dict[str, str]
    ) -> Iterator[_Change]:
        """Change what stands between two operands."""
        for left, right in pairwise(sides):
            between = self._span(left)[1], self._span(right)[0]
            word = _OPERATOR.search(self._text(between))
            assert word is not None
            if new := words.get(" ".join(word[0].split())):
                text = word.string[: word.start()] + new + word.string[word.end() :]
                yield operator, self._span(node), between, text

    def _numbers(self, node: ast.AST, sides: Sequence[ast.expr]) -> Iterator[_Change]:
        for side in sides:
            if isinstance(side, ast.Constant) and type(side.value) is int:
                yield "boundary", self._span(node), self._span(side), str(side.value + 1)

    def _rows(self, table: ast.AST) -> Iterator[_Change]:
        match table:
            case ast.Dict(keys=keys, values=values):
                pass
            case ast.Set(elts=values) | ast.List(elts=values):
                keys = [*values]
            case _:
                return
        texts = [self._text(self._span(value)) for value in values]
        for key, value, text in zip(keys, values, texts, strict=True):
            new = next((other for other in texts if other != text), None)
            if key is not None and new is not None:
                row = self._span(key)[0], self._span(value)[1]
                yield "changed row of a table", row, self._span(value), new

    def _text(self, span: _Span) -> str:
        return self._source[slice(*span)].decode()

    def _span(self, node: ast.AST) -> _Span:
        line, column, last_line, last_column = (getattr(node, name) for name in _PLACE)
        return self._line_starts[line - 1] + column, self._line_starts[last_line - 1] + last_column
