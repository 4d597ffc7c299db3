"""The steps of the Dockerfile, in a tree that holds what they are sent and nothing else.

There is an engine on few machines that run the tests; what it would do is read from the text: what
``.dockerignore`` lets through, the COPY lines of both stages, what RUN, HEALTHCHECK and ENTRYPOINT
say. Left out are a network and the user: dependencies are those of the running environment.

The Dockerfile has the hot path compiled, which needs a C compiler; `make test` needs Python alone.
So each test of what is built is there twice: in `make test` without that switch, and in
`make test-compiled` as the Dockerfile has it.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

import pytest

from groupkeeper.coordinator.cli.failing import FAILED
from groupkeeper.coordinator.version import VERSION
from tests.helpers.daemon.compiled_modules import COMPILED
from tests.helpers.printed.printed_docs import ROOT
from tests.house.test_tidy import FOLDERS

pytestmark = pytest.mark.slow

TEXT = (ROOT / "Dockerfile").read_text()

SWITCH = "HATCH_BUILD_HOOK_ENABLE_MYPYC"


def sent(path: PurePosixPath) -> bool:
    """Whether the engine is sent it: the last line of .dockerignore that matches decides."""
    answer = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        names = [str(path), *map(str, path.parents)]
        if pattern.startswith("**/"):
            pattern, names = pattern[3:], list(path.parts)
        # an asterisk does not match a slash
        if any(n.count("/") == pattern.count("/") and fnmatchcase(n, pattern) for n in names):
            answer = line.strip().startswith("!")
    return answer


def instructions(stage: str) -> list[tuple[str, str]]:
    """The instructions of a stage, their continued lines joined."""
    joined = re.sub(r"\s*\\\n\s*", " ", stage)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


BUILD, IMAGE = (instructions(stage) for stage in re.split(r"^FROM .*$", TEXT, flags=re.M)[1:])


def copy_into(stage: list[tuple[str, str]], context: Path, folder: Path) -> None:
    """Do the COPY lines of a stage; an absolute target stands below the folder."""
    for name, rest in stage:
        if name != "COPY" or rest.startswith("--from"):
            continue
        *sources, target = rest.split()
        place = folder / target.lstrip("/")
        for source in sources:
            found = context / source
            into = place / found.name if target.endswith("/") else place
            into.parent.mkdir(parents=True, exist_ok=True)
            if found.is_dir():
                shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy(found, into)


@dataclass(frozen=True)
class Image:
    """What was built, and where its paths are."""

    root: Path
    installed: Path

    def run(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the image, its /etc and its program being those of the tree."""
        program, *arguments = command
        moved = [re.sub(r"^/etc/", f"{self.root}/etc/", text) for text in arguments]
        return subprocess.run(
            [self.installed / "bin" / PurePosixPath(program).name, *moved],
            cwd=self.root,
            env=os.environ | {"PYTHONPATH": str(self.installed)} | environment,
            capture_output=True,
            text=True,
            check=False,
        )


AS_THE_DOCKERFILE_SAYS = pytest.param(True, id="compiled", marks=pytest.mark.compiled)


@pytest.fixture(
    scope="module", params=[pytest.param(False, id="not compiled"), AS_THE_DOCKERFILE_SAYS]
)
def image(request, tmp_path_factory) -> Image:
    """The image, its first stage installed by pip from the tree alone."""
    home = tmp_path_factory.mktemp("image")
    context, source, root = home / "context", home / "src", home / "root"
    allowed = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    for top in allowed:
        for path in [ROOT / top, *(ROOT / top).rglob("*")]:
            relative = path.relative_to(ROOT)
            if (not path.is_dir() or path.is_symlink()) and sent(PurePosixPath(relative)):
                (context / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, context / relative, follow_symlinks=False)
    source.mkdir()
    copy_into(BUILD, context, source)
    root.mkdir()
    copy_into(IMAGE, context, root)
    target = home / "installed"
    environment = build_environment(source)
    if not request.param:
        del environment[SWITCH]
    without_network = ["--no-deps", "--no-build-isolation", "--target", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *install_arguments(), *without_network],
        cwd=source,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Image(root, target)


def build_environment(source: Path) -> dict[str, str]:
    """What ENV says in the build stage, the folder of the sources being that of the tree."""
    (workdir,) = [rest for name, rest in BUILD if name == "WORKDIR"]
    said = [pair for name, rest in BUILD if name == "ENV" for pair in shlex.split(rest)]
    found = {name: value for name, _, value in (pair.partition("=") for pair in said)}
    return {name: value.replace(f"{workdir}/", f"{source}/") for name, value in found.items()}


INSTALLS = next(each for each in BUILD if each[0] == "RUN" and "pip install" in each[1])


def run_lines() -> list[list[str]]:
    """The commands of the build stage."""
    runs = [rest for name, rest in BUILD if name == "RUN"]
    return [shlex.split(command) for text in runs for command in text.split("&&")]


def install_arguments() -> list[str]:
    """What pip is asked for in the build stage."""
    (found,) = [line[1:] for line in run_lines() if line[0].endswith("/pip") and "install" in line]
    return found


def test_the_last_step_of_the_build_runs_what_was_installed(image):
    last = run_lines()[-1]
    assert PurePosixPath(last[0]).name == "groupkeeper"
    done = image.run(last)
    assert (done.returncode, done.stdout) == (0, f"groupkeeper {VERSION}\n"), done.stderr


def test_the_health_check_of_an_image_in_which_nothing_serves_fails_with_one_line(image):
    (check,) = [rest for name, rest in IMAGE if name == "HEALTHCHECK"]
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, but not listening
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        command = json.loads(check.partition("CMD ")[2])
        done = image.run(command, GROUPKEEPER_HTTP__LISTEN=address)
    assert done.returncode == FAILED, done.stderr
    assert "is the daemon running?" in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_package_of_the_distribution_is_in_the_image(image):
    home = image.installed / "groupkeeper"
    missing = [n for n in FOLDERS if not (home / n / "__init__.py").is_file()]
    assert missing == []
    assert [n for n in FOLDERS if (image.installed / n).exists()] == []


def test_the_settings_of_the_image_are_where_its_commands_look_for_them(image):
    (command,) = [json.loads(rest) for name, rest in IMAGE if name == "CMD"]
    done = image.run(["groupkeeper", "check-config", *command[1:]])
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{image.root}/etc/groupkeeper/config.toml" in done.stdout


@pytest.mark.parametrize("image", [AS_THE_DOCKERFILE_SAYS], indirect=True)
def test_the_hot_path_of_the_image_is_compiled(image):
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    missing = [str(p) for p in COMPILED if not (image.installed / p).with_suffix(suffix).is_file()]
    assert missing == []


def test_the_build_takes_the_tested_versions_of_its_tools_as_well_and_is_told_once():
    """PIP_CONSTRAINT alone reaches the environment that pip makes for a build."""
    constraints = [value for name, value in build_environment(ROOT).items() if "CONSTRAINT" in name]
    assert constraints == [str(ROOT / "constraints.txt")]
    assert not {"-c", "--constraint"} & set(install_arguments())
    copied = [rest for name, rest in BUILD[: BUILD.index(INSTALLS)] if name == "COPY"]
    assert "constraints.txt ./" in copied
