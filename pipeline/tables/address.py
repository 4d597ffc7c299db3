"""What an address of a folder may be (pure)."""

from __future__ import annotations


def pattern_problem(address: str) -> str:
    """Say why Spark would not take an address as it is; "" where it does.

    Spark writes to a folder whose name is a pattern, and reads from others that the pattern fits.
    """
    if wild := sorted(set("{}[]*?\\").intersection(address)):
        return (
            f"{address}: Spark takes {' and '.join(wild)} for a pattern of names. Choose, or link "
            "to it by, a path without"
        )
    return ""
