"""The configuration of cibuildwheel, which needs Docker to run (docs/contribute/wheels.md)."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import PurePosixPath

from tests.conformance import installed_wheel, test_compiled
from tests.helpers.printed.printed_docs import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEELS = PYPROJECT["tool"]["cibuildwheel"]
PAGE = (ROOT / "docs" / "contribute" / "wheels.md").read_text()


def test_wheels_are_compiled_for_every_python_from_the_oldest_that_is_allowed():
    built = [re.fullmatch(r"cp3(\d+)-manylinux\*", name)[1] for name in WHEELS["build"]]
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=3.")
    assert built == [str(minor) for minor in range(int(oldest), 15)]
    assert WHEELS["environment"]["HATCH_BUILD_HOOK_ENABLE_MYPYC"] == "1"
    assert "mypyc" in PYPROJECT["tool"]["hatch"]["build"]["hooks"]


def test_the_versions_of_the_tests_are_those_of_the_checkout():
    constraints = PurePosixPath(WHEELS["environment"]["PIP_CONSTRAINT"])
    assert constraints.parent == PurePosixPath("/project")  # cibuildwheel copies the checkout there
    assert (ROOT / constraints.name).is_file()


def test_the_command_that_tests_a_wheel_exists_and_runs_tests_of_the_hot_path():
    *_, script = shlex.split(WHEELS["test-command"])
    assert script.replace("{project}", str(ROOT)) == installed_wheel.__file__
    assert set(installed_wheel.TESTS) <= set(test_compiled.TESTS)
    assert all((ROOT / name).exists() for name in (*installed_wheel.TESTS, *installed_wheel.FILES))


def test_the_page_says_for_each_wheel_whether_it_was_built():
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    told = {
        (processor.strip(), python)
        for _, _, processor, pythons, *_ in rows
        for python in re.findall(r"3\.\d+", pythons)
    }
    pythons = ["3." + re.findall(r"cp3(\d+)", name)[0] for name in WHEELS["build"]]
    assert told == {(arch, python) for arch in WHEELS["linux"]["archs"] for python in pythons}
