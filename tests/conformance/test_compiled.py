"""The hot path compiled by mypyc does what it does as Python (`make test-compiled`, and
`make test-compiled-long` with worlds and the comparison with Kafka).

The same tests, once more, in a copy of the tree with the compiled modules beside their sources.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.daemon.compiled_modules import COMPILED, built
from tests.helpers.printed.printed_docs import ROOT

NEEDED = (
    "groupkeeper",
    "coordinator",
    "protocol",
    "storage",
    "pipeline",
    "clients",
    "tests",
    "deploy",
    "docs",
    "examples",
)
FILES = ("pyproject.toml", "README.md", "LICENSE", "config.example.toml")

TESTS = (
    "tests/unit/coordinator/cluster",
    "tests/unit/coordinator/core",
    "tests/unit/coordinator/gateway",
    "tests/unit/coordinator/handlers",
    "tests/unit/coordinator/runtime",
    "tests/unit/protocol",
    "tests/unit/storage",
    "tests/scenarios",
    "tests/wire",
    "tests/property/test_gateway_streams.py",
    "tests/property/test_last_heartbeats.py",
    "tests/property/test_last_requests.py",
    "tests/property/test_protocol_packed.py",
    "tests/server/test_connection.py",
    "tests/server/test_bad_input.py",
    "tests/embedding",
    "tests/examples/test_examples.py",
)
"""What holds the compiled modules to their promises."""


def run(*arguments: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8_000:]
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the sources with the compiled modules beside them."""
    tree: Path = tmp_path_factory.mktemp("compiled") / "tree"
    tree.mkdir()
    for name in NEEDED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tree / name, ignore=ignored, symlinks=True)
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(built(tree), tree, dirs_exist_ok=True)
    return tree


@pytest.mark.compiled
def test_each_module_of_the_list_is_compiled(tree):
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    missing = [str(p) for p in COMPILED if not (tree / p).with_suffix(suffix).is_file()]
    assert missing == []
    names = [".".join(path.with_suffix("").parts) for path in COMPILED]
    code = f"import importlib; print([importlib.import_module(n).__file__ for n in {names}])"
    taken = ast.literal_eval(run("-c", code, cwd=tree))
    assert [path for path in taken if not path.endswith(suffix)] == []


@pytest.mark.compiled
def test_the_compiled_modules_pass_the_tests_of_the_others(tree):
    workers = ("-n", os.environ.get("WORKERS", "2"))
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:benchmark")
    said = run("-m", "pytest", *quiet, *workers, *TESTS, cwd=tree, TESTS_OF_COMPILED="1")
    assert " passed" in said


@pytest.mark.compiled_long
def test_the_compiled_modules_survive_simulated_worlds(tree):
    said = run("-m", "tests.simulation.run", cwd=tree, TESTS_OF_COMPILED="1")
    assert " worlds" in said
    print(said)  # noqa: T201 - its last line has the figures


@pytest.mark.compiled_long
def test_the_compiled_modules_answer_as_kafka_does(tree):
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:benchmark")
    cases = ("-m", "differential", "tests/conformance/kafka")
    said = run("-m", "pytest", *quiet, *cases, cwd=tree, TESTS_OF_COMPILED="1")
    assert " passed" in said


def test_what_is_compiled_has_nothing_that_mypyc_takes_for_something_else():
    """It drops the keywords of a class, which is how msgspec is told what a struct is."""
    unfit = [
        f"{path}:{node.lineno}"
        for path in COMPILED
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.AsyncFunctionDef)
        or (isinstance(node, ast.ClassDef) and node.keywords)
    ]
    assert unfit == []
