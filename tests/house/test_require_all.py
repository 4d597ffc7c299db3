"""`make ci` skips nothing: a test that skips itself fails there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.helpers.printed.printed_docs import ROOT

# built from pieces, because test_tidy refuses a skip in this project
SKIPPING = "import pytest\n\ndef test_it():\n    pytest." + "skip('no such server here')\n"


@pytest.mark.parametrize(("require_all", "code"), [("1", 1), ("", 0)])
def test_a_skip_fails_where_everything_is_required(tmp_path, require_all, code):
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    conftest = (ROOT / "tests" / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(conftest)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "REQUIRE_ALL": require_all, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert "no such server here" in done.stdout or code == 0
