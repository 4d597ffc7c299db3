"""Small wrong changes to a source file, found in its syntax tree: the drawn mutants.

Six operators. What cannot change behaviour is left alone: docstrings, log lines, annotations, the
messages of ``assert`` and of exceptions, ``__all__``.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

_NEGATED: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
"""How a comparison is written, and its opposite."""
_MOVED: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}
_LOGGERS: Final = ("log.", "logger.", "logging.")
_RECORDS: Final = re.compile(r"(\.(record|event)|\b(records|events)\.(append|extend))$")
"""What is called to hand on a record or an event."""


@dataclass(frozen=True)
class Mutant:
    """One change: ``new`` stands where ``old`` stood, ``start`` bytes into the file."""

    path: str
    function: str
    operator: str
    text: str
    """What becomes what, as people are shown it."""
    start: int
    old: bytes
    new: bytes

    @property
    def key(self) -> str:
        """What names it in the table of equivalents; without a line number, so that it lasts."""
        return f"{self.path} {self.function}: {self.text}"

    def source(self, original: bytes) -> bytes:
        """The mutated file."""
        end = self.start + len(self.old)
        assert original[self.start : end] == self.old, f"{self.path} changed meanwhile"
        return original[: self.start] + self.new + original[end:]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every mutant of one file."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    numbered = []
    for mutant in sorted(finder.found, key=lambda mutant: mutant.start):
        seen[mutant.key] += 1
        nth = f" (no. {seen[mutant.key]})" if seen[mutant.key] > 1 else ""
        numbered.append(replace(mutant, text=mutant.text + nth))
    return numbered


def draw(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Some of them, the operators in turn; a larger drawing begins with the smaller one.

    The place of each in the lot comes from its own key, so a change elsewhere draws no others.
    """
    piles: dict[str, list[Mutant]] = {}
    for mutant in sorted(mutants, key=lambda m: _lot(f"{seed} {m.key}")):
        piles.setdefault(mutant.operator, []).append(mutant)
    rounds = zip_longest(*(piles[operator] for operator in sorted(piles)))
    return [mutant for in_turn in rounds for mutant in in_turn if mutant is not None][:count]


def _lot(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


class _Finder(ast.NodeVisitor):
    """Walks one file and notes what can be changed."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._scope: list[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._codes = sorted({*re.findall(r"\bErrorCode\.([A-Z_]+)\b", source.decode())})

    # --- what is looked at ------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._scope.append(node)  # decorators, annotations and base classes are left alone
        if not isinstance(node, ast.ClassDef):
            self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults)])
        is_last_nothing = ast.unparse(node.body[-1]) in ("return", "return None")
        self._visit_all(node.body[:-1] if is_last_nothing else node.body)
        self._scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self.visit(node.test)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people."""

    def visit_Return(self, node: ast.stmt) -> None:
        self._change("dropped statement", node, "pass")
        self.generic_visit(node)

    visit_Raise = visit_Continue = visit_Break = visit_Delete = visit_Return

    def visit_Expr(self, node: ast.Expr) -> None:
        called = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(called, ast.Call):
            name = ast.unparse(called.func)
            if not name.startswith(_LOGGERS):
                is_record = _RECORDS.search(name)
                self._change("dropped record" if is_record else "dropped statement", node, "pass")
                self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None or ast.unparse(targets[0]) == "__all__":
            return
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias":
            return
        is_kept = all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        if is_kept or isinstance(node, ast.AugAssign):
            self._change("dropped statement", node, "pass")
        if all(isinstance(scope, ast.ClassDef) for scope in self._scope):
            self._change_rows(node.value)
        self.visit(node.value)

    visit_AnnAssign = visit_AugAssign = visit_Assign

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self._swap("comparison", node, node.values[:2], words)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._change("comparison", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for at, op in enumerate(node.ops):
            self._swap("comparison", node, sides[at : at + 2], _NEGATED[type(op)])
            if type(op) in _MOVED:
                self._swap("boundary", node, sides[at : at + 2], _MOVED[type(op)])
        self._move_numbers(node, sides)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self._move_numbers(node, [node.left, node.right])
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if ast.unparse(node.value) == "ErrorCode" and node.attr in self._codes:
            codes = [*self._codes, "COORDINATOR_LOAD_IN_PROGRESS", self._codes[0]]
            other = next(c for c in codes[codes.index(node.attr) + 1 :] if c != node.attr)
            self._change("swapped error code", node, f"ErrorCode.{other}")
        self.generic_visit(node)

    # --- what is changed --------------------------------------------------------------------------

    def _change(self, operator: str, node: ast.AST, new: str) -> None:
        self._note(operator, self._span(node), self._span(node), new)

    def _swap(
        self, operator: str, node: ast.AST, sides: Sequence[ast.AST], words: tuple[str, str]
    ) -> None:
        """Change what stands between two operands."""
        start, end = self._span(sides[0])[1], self._span(sides[1])[0]
        was = self._source[start:end].decode()
        new = re.sub(words[0], words[1], was, count=1)
        self._note(operator, self._span(node), (start, end), new)

    def _move_numbers(self, node: ast.AST, sides: Sequence[ast.expr]) -> None:
        for side in sides:
            if isinstance(side, ast.Constant) and type(side.value) is int:
                self._note("boundary", self._span(node), self._span(side), str(side.value + 1))

    def _change_rows(self, table: ast.expr) -> None:
        for inner in ast.walk(table):
            rows: Sequence[tuple[ast.AST | None, ast.expr]] = ()
            if isinstance(inner, ast.Dict):
                rows = list(zip(inner.keys, inner.values, strict=True))
            elif isinstance(inner, ast.Set | ast.List):
                rows = [(element, element) for element in inner.elts]
            for key, value in rows:
                others = (self._text(other) for _, other in rows)
                new = next((other for other in others if other != self._text(value)), None)
                if key is not None and new is not None:
                    row = (self._span(key)[0], self._span(value)[1])
                    self._note("changed row of a table", row, self._span(value), new)

    def _note(
        self, operator: str, shown: tuple[int, int], changed: tuple[int, int], new: str
    ) -> None:
        """Note that ``changed`` becomes ``new``; people are shown it within ``shown``."""
        before = self._source[shown[0] : changed[0]].decode()
        after = self._source[changed[1] : shown[1]].decode()
        old = self._source[slice(*changed)]
        assert old != new.encode(), f"{self._path}: nothing is changed in {before}{new}{after}"
        texts = (" ".join(f"{before}{t}{after}".split()) for t in (old.decode(), new))
        function = ".".join(scope.name for scope in self._scope) or "module"
        text = " -> ".join(texts)
        self.found.append(
            Mutant(self._path, function, operator, text, changed[0], old, new.encode())
        )

    def _visit_all(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _text(self, node: ast.AST) -> str:
        return self._source[slice(*self._span(node))].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        at: ast.expr = node  # type: ignore[assignment]
        assert at.end_lineno is not None
        assert at.end_col_offset is not None
        start = self._line_starts[at.lineno - 1] + at.col_offset
        return start, self._line_starts[at.end_lineno - 1] + at.end_col_offset
