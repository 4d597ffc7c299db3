"""Which cases differ and which did by chance, on outcomes made by hand (part of `make test`)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.conformance.kafka.comparison import Difference
from tests.conformance.kafka.explorer import SHRINK_S, explore
from tests.conformance.kafka.generated import Life
from tests.conformance.kafka.runner import DIFFERENT, RUNS, Figures, Outcome, settled

FOUND = Difference("case", "request", "heartbeat", 4, "error_code", 0, 25)
LOST = Difference("case", "request", "offset_fetch", 7, "topics.partitions.committed_offset", 5, -1)


def outcome(kind: str) -> Outcome:
    """D differs by chance, L lost a commit, T fails in its script, B breaks it, S is too slow, E
    ends early, A is alike.
    """
    found = {"D": [FOUND], "L": [FOUND, LOST]}.get(kind, [])
    trouble = {"T": "AssertionError", "B": "ValueError"}.get(kind, "")
    early, slow = kind == "E", kind == "S"
    steps = ("a: a request",)
    return Outcome(1, Counter(), frozenset(), found, trouble, early, slow, steps, kind == "B")


def in_turn(kinds: str, asked: list[int]) -> Callable[[int], Outcome]:
    """The outcomes of one case in turn; ``asked`` gets the patience of each run."""
    left = iter(kinds)

    def once(patience: int) -> Outcome:
        asked.append(patience)
        return outcome(next(left))

    return once


@pytest.mark.parametrize("kinds", ["A", "E", "SA", "SSA", "SE"])
def test_a_case_that_never_differs_is_alike(kinds: str) -> None:
    figures = Figures()
    assert settled("case", in_turn(kinds, []), figures).clean
    assert (figures.cases, figures.differences, figures.once) == (1, 0, [])


@pytest.mark.parametrize("kinds", ["DAA", "TAA", "DADAA", "DDDAA", "DEAEA", "DSAA", "SDAA", "DASA"])
def test_a_case_that_differs_and_is_then_alike_twice_in_a_row_is_told_with_its_requests(
    kinds: str,
) -> None:
    figures = Figures()
    assert settled("case", in_turn(kinds, []), figures).clean
    assert figures.differences == 0
    assert len(figures.once) == 1
    assert "a: a request" in figures.once[0]
    assert "1 cases differed and were then alike" in figures.line()


@pytest.mark.parametrize(
    "kinds",
    [
        "D" * DIFFERENT,
        "DA" * (DIFFERENT - 1) + "D",  # different in every second run, never twice in a row
        "D" + "E" * (RUNS - 1),  # no repeated run ended
        "D" + "S" * (RUNS - 1),
        "DA" + "E" * (RUNS - 2),
        "DAEDEED" + "E" * (RUNS - 7),
    ],
)
def test_a_case_that_differs_and_is_not_alike_twice_in_a_row_differs(kinds: str) -> None:
    figures = Figures()
    assert settled("case", in_turn(kinds, []), figures).differs
    assert figures.differences == 1
    assert figures.once == []


@pytest.mark.parametrize("kinds", ["LAA", "BAA", "DALAA", "DLAA", "SLAA"])
def test_what_chance_of_time_does_not_explain_is_never_forgiven(kinds: str) -> None:
    figures, asked = Figures(), []
    assert settled("case", in_turn(kinds, asked), figures).differs
    assert len(asked) == len(kinds) - 2, "it is not even run again"
    assert figures.once == []


@pytest.mark.parametrize(
    ("cases", "forgiven", "too_many"),
    [(1, 3, False), (1, 4, True), (360, 7, False), (360, 8, True), (2_000, 41, True)],
)
def test_of_a_run_few_cases_may_differ_by_chance(cases: int, forgiven: int, too_many: bool) -> None:
    figures = Figures(cases=cases, once=["told"] * forgiven)
    assert figures.too_many is too_many
    assert ("TOO MANY" in figures.line()) is too_many


def test_a_script_that_fails_each_time_is_not_clean() -> None:
    assert not settled("case", in_turn("T" * DIFFERENT, []), Figures()).clean


def test_a_life_that_is_too_slow_is_tried_with_longer_timeouts_and_given_up() -> None:
    figures, asked = Figures(), []
    assert settled("case", in_turn("SSS", asked), figures).slow
    assert asked == [1, 2, 4]
    assert (figures.slow, figures.differences) == (1, 0)


def explored(lived: Callable[[Life], str], figures: Figures) -> str:
    def made(life: Life, _: int) -> Outcome:
        return outcome(lived(life))

    return explore(1, 5, made, figures, threading.Event())


def test_lives_that_are_alike_tell_nothing() -> None:
    figures = Figures()
    assert explored(lambda _: "A", figures) == ""
    assert figures.cases == 5


def test_a_life_that_differs_is_told() -> None:
    assert "a: a request" in explored(lambda life: "AD"[len(life.acts) > 6], Figures())


def test_a_life_that_differed_and_does_not_while_it_is_shrunk_is_told_all_the_same() -> None:
    left = iter("D" * DIFFERENT)
    told = explored(lambda _: next(left, "A"), Figures())
    assert told.startswith("SEED=1: ")
    assert "a: a request" in told


def test_shorter_lives_are_tried_for_a_while_and_no_longer() -> None:
    """Then the shortest that was found so far is told."""
    tried: list[int] = []

    def made(life: Life, _: int) -> Outcome:
        if len(life.acts) <= 6:
            return outcome("A")
        tried.append(len(life.acts))
        return replace(outcome("D"), steps=(f"{len(life.acts)} acts",))

    def clock() -> float:
        return SHRINK_S * (len(tried) > 8)

    told = explore(1, 5, made, Figures(), threading.Event(), clock)
    assert len(tried) in (9, 10), "a life that is begun is led two times"
    assert f"{min(tried)} acts" in told


def test_a_shorter_life_that_differs_once_does_not_take_the_place_of_the_one_that_was_found() -> (
    None
):
    seen: Counter[Life] = Counter()
    longest: list[Life] = []

    def lived(life: Life) -> str:
        seen[life] += 1
        if not longest and len(life.acts) > 6:
            longest.append(life)
        is_first_time = bool(longest) and seen[life] == 1
        return "D" if [life] == longest or is_first_time else "A"

    assert explored(lived, Figures()).startswith("SEED=1: ")
    assert len(seen) > 10
