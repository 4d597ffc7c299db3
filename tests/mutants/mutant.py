"""A mutant: one small wrong change to a source file; the names of many, and the drawing of some."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest


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


def numbered(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Those of one file in their order, equal ones told apart."""
    seen: Counter[str] = Counter()
    named = []
    for mutant in sorted(mutants, key=lambda mutant: mutant.start):
        seen[mutant.key] += 1
        nth = f" (no. {seen[mutant.key]})" if seen[mutant.key] > 1 else ""
        named.append(replace(mutant, text=mutant.text + nth))
    return named


def draw(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Some of them, the operators in turn; a larger drawing begins with the smaller one.

    The place of each in the lot comes from its own key, so a change elsewhere draws no others.
    """
    piles: dict[str, list[Mutant]] = {}
    for mutant in sorted(
        mutants, key=lambda m: hashlib.sha256(f"{seed} {m.key}".encode()).digest()
    ):
        piles.setdefault(mutant.operator, []).append(mutant)
    rounds = zip_longest(*(piles[operator] for operator in sorted(piles)))
    return [mutant for in_turn in rounds for mutant in in_turn if mutant is not None][:count]
