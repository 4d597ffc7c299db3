"""The mutator finds what its operators name, changes nothing else, and draws the same each time."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutants.mutant import Mutant, draw
from tests.mutants.mutator import mutants_of


def mutants(source: str) -> list[Mutant]:
    return mutants_of("a.py", dedent(source).encode())


def changes(source: str, operator: str) -> list[str]:
    return [mutant.text for mutant in mutants(source) if mutant.operator == operator]


@pytest.mark.parametrize(
    ("expression", "comparisons", "boundaries"),
    [
        ("a < b", ["a < b -> a >= b"], ["a < b -> a <= b"]),
        ("a >= b", ["a >= b -> a < b"], ["a >= b -> a > b"]),
        ("a == 4", ["a == 4 -> a != 4"], ["a == 4 -> a == 5"]),
        ("a is not None", ["a is not None -> a is None"], []),
        ("a not in b", ["a not in b -> a in b"], []),
        ("not a", ["not a -> (a)"], []),
        ("a and b", ["a and b -> a or b"], []),
        ("(a) == (b)", ["(a) == (b) -> (a) != (b)"], []),
        ("a + 1", [], ["a + 1 -> a + 2"]),
        (
            "0 <= a < b",
            ["0 <= a < b -> 0 > a < b", "0 <= a < b -> 0 <= a >= b"],
            ["0 <= a < b -> 1 <= a < b", "0 <= a < b -> 0 < a < b", "0 <= a < b -> 0 <= a <= b"],
        ),
    ],
)
def test_comparisons_are_turned_round_and_boundaries_moved_by_one(
    expression, comparisons, boundaries
):
    assert changes(f"x = {expression}", "comparison") == comparisons
    assert changes(f"x = {expression}", "boundary") == boundaries


def test_statements_that_do_something_are_dropped_and_local_names_are_left():
    source = """
        def f(self):
            local = 1
            self.field = local
            self.count += 1
            await_nothing()
            del self.field
            if local:
                return local
            raise ValueError(local)
    """
    assert changes(source, "dropped statement") == [
        "self.field = local -> pass",
        "self.count += 1 -> pass",
        "await_nothing() -> pass",
        "del self.field -> pass",
        "return local -> pass",
        "raise ValueError(local) -> pass",
    ]


def test_records_and_events_that_are_handed_on_are_an_operator_of_their_own():
    source = """
        def f(shard, step):
            shard.record(one)
            shard.event(two)
            step.records.extend(three)
            events.append(four)
    """
    assert len(changes(source, "dropped record")) == 4
    assert changes(source, "dropped statement") == []


def test_error_code_becomes_another_that_the_file_knows():
    source = """
        x = ErrorCode.NONE
        y = ErrorCode.ILLEGAL_GENERATION
    """
    assert changes(source, "swapped error code") == [
        "ErrorCode.NONE -> ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "ErrorCode.ILLEGAL_GENERATION -> ErrorCode.NONE",
    ]


def test_rows_of_tables_are_changed_and_dicts_of_functions_are_not():
    source = """
        TABLE = {A: ONE, B: ONE, C: TWO}
        SET = frozenset({A, B})

        def f():
            return {A: ONE, B: TWO}
    """
    assert changes(source, "changed row of a table") == [
        "A: ONE -> A: TWO",
        "B: ONE -> B: TWO",
        "C: TWO -> C: ONE",
        "A -> B",
        "B -> A",
    ]


def test_what_changes_no_behaviour_is_left_alone():
    source = '''
        """A docstring with 1 < 2."""
        __all__ = ["a", "b"]
        Alias: TypeAlias = Callable[[int, str], None]
        if TYPE_CHECKING:
            x = 1 < 2

        @decorated(1 < 2)
        def f(a: Literal[1 < 2]) -> Literal[1 < 2]:
            log.info("text", a=1 < 2)
            self.field: int
            assert a, f"{1 < 2}"
            "text"
            return None
    '''
    assert [mutant.text for mutant in mutants(source)] == []


def test_mutated_source_differs_at_one_place_and_is_python():
    source = dedent(
        """
        class Wächter:
            def f(self, ä: int = 3) -> bool:
                self.größe = ä
                return ä > 2 and not self.leer
        """
    ).encode()
    found = mutants_of("a.py", source)
    assert len(found) == 7
    for mutant in found:
        mutated = mutant.source(source)
        ast.parse(mutated)
        assert mutated != source
        assert mutated.replace(mutant.new, mutant.old, 1) == source or mutant.new in source
    assert {mutant.function for mutant in found} == {"Wächter.f"}


def test_equal_changes_of_a_function_have_names_of_their_own():
    texts = changes("def f():\n    return a < b, a < b", "boundary")
    assert texts == ["a < b -> a <= b", "a < b -> a <= b (no. 2)"]


def test_small_drawing_is_the_beginning_of_a_large_one_and_takes_the_operators_in_turn():
    source = "x = a < b, c < d, e == f, g == h, ErrorCode.NONE"
    large, small = draw(mutants(source), 100, 14), draw(mutants(source), 3, 14)
    assert large[:3] == small
    assert {mutant.operator for mutant in small} == {
        "boundary",
        "comparison",
        "swapped error code",
    }
    assert len(large) == len(mutants(source))


def test_change_elsewhere_draws_no_other_mutants():
    def boundaries(source: str, seed: int) -> list[str]:
        drawn = draw(mutants(source), 100, seed)
        return [mutant.key for mutant in drawn if mutant.operator == "boundary"]

    before = boundaries("x = a < b, c < d, e < f", 14)
    after = boundaries("y = z <= 1\nx = a < b, c < d, e < f", 14)
    assert [key for key in after if "z" not in key] == before
    assert boundaries("x = a < b, c < d, e < f", 15) != before
