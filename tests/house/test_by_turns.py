"""What `make bench-micro` reads and says; the measuring itself takes minutes."""

from __future__ import annotations

from bench import by_turns, figures


def printed(capsys, *rows: figures.Figure) -> dict[str, float]:
    figures.show(rows)
    return by_turns.parse(capsys.readouterr().out)


def test_the_table_of_a_benchmark_is_read_as_it_is_printed(capsys):
    found = printed(
        capsys,
        figures.Figure("protocol", "read OffsetCommit v8 x10", 4.46, "careful reader 20.01"),
        figures.Figure("core", "OffsetCommit x10, metadata of 20", 7.31),
        figures.Figure("assignors", "sticky, 1,000 members x 10,000", 12_345.6),
    )
    assert [(" ".join(name.split()), us) for name, us in found.items()] == [
        ("protocol read OffsetCommit v8 x10", 4.46),
        ("core OffsetCommit x10, metadata of 20", 7.31),
        ("assignors sticky, 1,000 members x 10,000", 12_345.6),
    ]


def test_the_median_of_all_rounds_counts():
    rounds = [{"core x": us} for us in (3.0, 2.0, 9.0)]
    assert by_turns.medians([*rounds, {"core y": 1.0}]) == {"core x": 3.0, "core y": 1.0}


def test_a_figure_of_one_side_has_no_change(capsys):
    by_turns.show({"core x": 2.0, "core old": 1.0}, {"core x": 3.0, "core new": 5.0})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        ["core", "x", "2.00", "3.00", "+50.0%"],
        ["core", "old", "1.00"],
        ["core", "new", "5.00"],
    ]
