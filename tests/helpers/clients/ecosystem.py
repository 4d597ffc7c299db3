"""Clients of other languages as processes. They are built once into a cache, and get orders.

``tests/conformance/{java,go,node}`` contain the programs. Each has HOST:PORT as its argument, and
first prints the versions of its libraries. An order is a line with a JSON object. The program
answers it with one line that has the order's id. Orders run at the same time. If the machine lacks
a tool, ``Unavailable`` is raised.

``EXAMPLES`` are the clients of ``examples/clients``, from the same libraries in the same caches.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parents[2] / "conformance"
CLIENTS = Path(__file__).parents[3] / "examples" / "clients"
JDK = "a JDK of version 17 or later (Debian: default-jdk-headless)"
JAVA_FLAGS = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that runs for a minute: only the quick compiler, and little memory."""
BUILD_LIMIT_S = 900
"""The first build also compiles Go's own library. Four minutes were not enough at a load of 25."""
ANSWER_LIMIT_S = 150
"""The longest wait for an answer. A scenario that waits for an event that does not come fails
earlier, with a reason.
"""


class Unavailable(Exception):
    """Raised if this machine lacks a tool. The message says what to install."""


def cache() -> Path:
    """Return the folder that keeps builds and downloads between runs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "groupkeeper"


def need(program: str, what: str) -> str:
    """Return the path of a program. Raises Unavailable, with ``what`` to install, if it is
    missing.
    """
    found = shutil.which(program)
    if found is None:
        raise Unavailable(f"no {program} here: install {what}")
    return found


def once(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """Return a directory in the cache. ``build`` is called to fill it, unless this was already done
    with the same sources.
    """
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    place = cache() / f"{name}-{digest.hexdigest()[:16]}"
    if not place.is_dir():
        with _one_build_at_a_time():
            if not place.is_dir():
                _fill(place, build)
    return place


@contextmanager
def _one_build_at_a_time() -> Iterator[None]:
    """Hold a lock, because Maven's repository does not allow two builds at a time."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(place: Path, build: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=cache(), prefix=f".{place.name}-") as scratch:
        filled = Path(scratch) / "filled"
        filled.mkdir()
        build(filled)
        filled.rename(place)


def run(command: list[str], **options: Any) -> None:
    """Run one step of a build. If it fails, its output is in the error."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=BUILD_LIMIT_S,
        **options,
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout[-4000:]}")


def java() -> list[str]:
    """Return the command of the program with all Java clients."""
    return _java("java-clients", PROGRAMS / "java", "Host")


def java_members() -> list[str]:
    """Return the command of Java consumers as members (``tests/helpers/clients/members.py``)."""
    return [*java()[:-1], "Members"]


def java_example() -> list[str]:
    """Return the command of the Java client of the quick start."""
    return _java("java-example", CLIENTS / "java", "Billing")


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars from Maven: clients, command line, and the broker."""
    return jars_of("kafka-jars", PROGRAMS / "java" / "pom.xml")


def jars_of(name: str, pom: Path) -> Path:
    """Return a folder with the jars that a file of Maven names, and their dependencies."""
    maven = need("mvn", "Maven (Debian: maven)")

    def resolve(place: Path) -> None:
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={place}"]
        run([maven, "-q", "-B", "-f", str(pom), *goal])

    return once(name, [pom], resolve)


def _java(name: str, folder: Path, main: str) -> list[str]:
    """Return the command of our own Java classes in ``folder``, with Kafka's jars."""
    machine = need("java", JDK)
    compiler = need("javac", JDK)
    pom = PROGRAMS / "java" / "pom.xml"
    sources = sorted(folder.glob("*.java"))
    jars = kafka_jars()

    def compile_all(place: Path) -> None:
        run([compiler, "-cp", f"{jars}/*", "-d", str(place), *map(str, sources)])

    classes = once(name, [pom, *sources], compile_all)
    return [machine, *JAVA_FLAGS, "-cp", f"{classes}:{jars}/*", main]


def go() -> list[str]:
    """Return the command of the binary with all Go clients."""
    return go_program("go-clients", PROGRAMS / "go")


def go_example() -> list[str]:
    """Return the command of the Go client of the quick start."""
    return go_program("go-example", CLIENTS / "go")


def go_program(name: str, folder: Path) -> list[str]:
    """Build a folder of Go, and return the command of its binary."""
    compiler = need("go", "Go 1.26 or later")
    sources = [*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"]

    def build(place: Path) -> None:
        run([compiler, "build", "-o", str(place / "conformance"), "."], cwd=folder)

    return [str(once(name, sources, build) / "conformance")]


def node() -> list[str]:
    """Return the command of the JavaScript client."""
    return _node(PROGRAMS / "node" / "host.js")


def node_example() -> list[str]:
    """Return the command of the JavaScript client of the quick start."""
    return _node(CLIENTS / "node" / "billing.js")


def _node(program: Path) -> list[str]:
    """Return the command of a program, with kafkajs from npm."""
    machine = need("node", "Node.js 18 or later (Debian: nodejs)")
    installer = need("npm", "npm (Debian: npm)")
    sources = [PROGRAMS / "node" / name for name in ("package.json", "package-lock.json")]

    def install(place: Path) -> None:
        for source in sources:
            shutil.copy(source, place)
        run([installer, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=place)

    modules = once("node-clients", sources, install) / "node_modules"
    need("env", "coreutils")
    return ["env", f"NODE_PATH={modules}", machine, str(program)]


def kcat() -> tuple[list[str], dict[str, str]]:
    """Return the command of Debian's kcat, and its environment. If kcat is not installed, its
    package is unpacked into the cache.
    """
    installed = shutil.which("kcat")
    if installed is not None:
        return [installed], {}
    place = debian("kcat", ["kcat", "libyajl2", "librdkafka1"])
    libraries = ":".join(str(path) for path in (place / "usr" / "lib").iterdir() if path.is_dir())
    return [str(place / "usr" / "bin" / "kcat")], {"LD_LIBRARY_PATH": libraries}


ZOOKEEPER = """zookeeper libzookeeper-java libcommons-cli-java libcommons-io-java
    libdropwizard-metrics-java libfindbugs-annotations-java libjackson2-annotations-java
    libjackson2-core-java libjackson2-databind-java libnetty-java libslf4j-java libsnappy-java
    libsnappy-jni"""


def zookeeper() -> list[str]:
    """Return the command of Debian's ZooKeeper. The caller appends a file of settings."""
    machine = need("java", JDK)
    place = debian("zookeeper", ZOOKEEPER.split())
    jars = place / "usr" / "share" / "java"
    logger = jars / "slf4j-nop.jar"  # Java uses the first logger on the class path
    memory = ["-Xmx192m", *JAVA_FLAGS[1:]]
    main = "org.apache.zookeeper.server.ZooKeeperServerMain"
    return [machine, *memory, "-cp", f"{logger}:{jars}/*", main]


def debian(name: str, packages: list[str]) -> Path:
    """Return a folder with unpacked packages of Debian. They are not installed in the system."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable(f"no {name} here, and no apt-get to fetch it with: install {name}")

    def unpack(place: Path) -> None:
        # with lists of packages of our own: a new machine has none, and only root may write them
        lists = [f"Dir::State::lists={place}/lists", f"Dir::Cache={place}/cache"]
        options = [part for each in (*lists, "APT::Sandbox::User=root") for part in ("-o", each)]
        for folder in ("lists/partial", "cache/archives/partial"):
            (place / folder).mkdir(parents=True)
        run(["apt-get", "-qq", *options, "update"])
        run(["apt-get", "-qq", *options, "download", *packages], cwd=place)
        for folder in ("lists", "cache"):
            shutil.rmtree(place / folder)
        for package in place.glob("*.deb"):
            run(["dpkg", "-x", str(package), str(place)])

    try:
        return once(name, [], unpack)
    except AssertionError as failed:
        raise Unavailable(f"{name} cannot be fetched, install it: {failed}") from failed


TOOLCHAINS: Mapping[str, Callable[[], list[str]]] = {"java": java, "go": go, "node": node}
EXAMPLES: Mapping[str, Callable[[], list[str]]] = {
    "java": java_example,
    "go": go_example,
    "node": node_example,
}


class Host:
    """A running program of one language. All methods wait, only the constructor does not."""

    def __init__(self, kind: str, bootstrap: str, lives: Iterable[tuple[str, str]]) -> None:
        """Build and start the program in a thread. It begins with the scenarios ``lives``, which
        are (name, group).
        """
        self.kind = kind
        self._bootstrap = bootstrap
        self._changed = threading.Condition()
        self._process: subprocess.Popen[str] | None = None
        self._versions: dict[str, str] | None = None
        self._trouble: BaseException | None = None
        self._answers: dict[int, dict[str, Any]] = {}
        self._orders = 0
        self._lives: dict[str, int] = {}
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  closed by end
        self._thread = threading.Thread(target=self._serve, args=(list(lives),), daemon=True)
        self._thread.start()

    def _serve(self, lives: list[tuple[str, str]]) -> None:
        try:
            command = TOOLCHAINS[self.kind]()
            process = subprocess.Popen(
                [*command, self._bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                text=True,
                start_new_session=True,
            )
            with self._changed:
                self._process = process
            assert process.stdout is not None
            versions = json.loads(process.stdout.readline())["versions"]
            self._lives = {name: self._order(scenario=name, group=group) for name, group in lives}
            with self._changed:
                self._versions = versions
                self._changed.notify_all()
            for line in process.stdout:
                answer = json.loads(line)
                with self._changed:
                    self._answers[answer["id"]] = answer
                    self._changed.notify_all()
        except BaseException as trouble:  # noqa: BLE001  handed to whoever waits
            with self._changed:
                self._trouble = trouble
        finally:
            with self._changed:
                self._trouble = self._trouble or AssertionError(f"the {self.kind} program ended")
                self._changed.notify_all()

    def _order(self, **order: Any) -> int:
        with self._changed:
            self._orders += 1
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": self._orders, **order}) + "\n")
            self._process.stdin.flush()
            return self._orders

    def _wait(self, there: Callable[[], bool], limit_s: float, what: str) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: there() or self._trouble is not None, limit_s)
            if there():
                return
            if isinstance(self._trouble, Unavailable):
                raise self._trouble
            raise AssertionError(f"{what}: {self._complaint()}") from (
                self._trouble if done else None
            )

    def _complaint(self) -> str:
        self._stderr.seek(0)
        return f"no answer from the {self.kind} program\n{self._stderr.read().decode()[-3000:]}"

    def versions(self) -> dict[str, str]:
        """Return library -> version. Waits until the program runs. Raises Unavailable if a tool is
        missing.
        """
        self._wait(lambda: self._versions is not None, 2 * BUILD_LIMIT_S, "start")
        assert self._versions is not None
        return self._versions

    def do(self, **order: Any) -> dict[str, Any]:
        """Send an order, and return its answer."""
        self.versions()
        return self._answer(self._order(**order), str(order))

    def live(self, name: str, group: str) -> None:
        """Wait for the end of a scenario, and raise its error. The scenario is begun now if it did
        not begin with the program.
        """
        self.versions()
        number = self._lives.get(name) or self._order(scenario=name, group=group)
        self._answer(number, name)

    def _answer(self, number: int, what: str) -> dict[str, Any]:
        self._wait(lambda: number in self._answers, ANSWER_LIMIT_S, what)
        answer = self._answers[number]
        assert answer["ok"], f"{what}:\n{answer['error']}"
        return answer

    def end(self) -> None:
        """End the program in any state. Fixtures call this."""
        if self._process is None:
            self._thread.join(2 * BUILD_LIMIT_S)  # the program may not be built yet
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._thread.join(10)
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        self._stderr.close()
