"""README.md and docs/start/quickstart.md to the letter: each command as written, in order.

Left out is `make test`, which is what runs this. The commands of the pipeline run in
`make test-pipeline` (`make pipeline-demo`: ``test_pipeline_demo.py``), those in Java, Go and
JavaScript in `make test-clients` (``tests/conformance/test_example_clients.py``).
"""

from __future__ import annotations

import os
import re
import signal
import sysconfig
from collections.abc import Callable, Iterator

import pytest

from tests.helpers.daemon.stranger import Checkout, Terminal, commands
from tests.helpers.printed.printed_docs import ROOT

pytestmark = pytest.mark.slow

LEFT_OUT = "make test "
"""The one line of the documents that is not run."""
OTHER_LANGUAGES = (
    "(cd examples/clients/java",
    "(cd examples/clients/go",
    "(cd examples/clients/node",
)
PIPELINE = "pip install -c constraints.txt -e '.[pipeline]'"
ELSEWHERE = (PIPELINE, *OTHER_LANGUAGES)

Open = Callable[..., Terminal]


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def terminal(checkout) -> Iterator[Open]:
    """Opens terminals, which are closed in the end."""
    opened: list[Terminal] = []

    def open_one(**environment: str) -> Terminal:
        opened.append(Terminal(checkout, **environment))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
    assert checkout.daemons() == []


class Reader:
    """Hands out the blocks of a document in their order."""

    def __init__(self, text: str) -> None:
        self._left = [block for block in commands(text) if not block.startswith(ELSEWHERE)]

    def next(self, beginning: str) -> str:
        """The next block, which begins like this."""
        block = self._left.pop(0)
        assert block.startswith(beginning)
        return "".join(line for line in block.splitlines(True) if not line.startswith(LEFT_OUT))

    @property
    def is_at_its_end(self) -> bool:
        return not self._left


def snippet_of(text: str) -> str:
    """What the README has a reader type into Python."""
    return re.findall(r"^```python\n(from confluent_kafka .*?)^```", text, re.DOTALL | re.M)[0]


def kill(checkout: Checkout) -> None:
    for pid in checkout.daemons():
        os.kill(pid, signal.SIGKILL)


def test_the_readme_holds_on_a_fresh_checkout(checkout, terminal):
    text = checkout.read("README.md")
    reader = Reader(text)
    run = reader.next("make run")
    first = terminal(PIP_CONSTRAINT="constraints.txt")
    first.stay(run)

    second = terminal(PIP_CONSTRAINT="constraints.txt")
    assert "What you saw" in second.type("make demo")
    second.type(reader.next(". .venv/bin/activate"))
    (checkout.home / "billing.py").write_text(snippet_of(text))
    assert "offset=42" in second.type(f"python {checkout.home}/billing.py")

    kill(checkout)
    first.close()
    again = terminal()
    again.stay(run)
    described = second.type(reader.next("groupkeeper group describe billing"))
    assert re.search(r"^orders +0 +42 ", described, re.MULTILINE)
    again.close()
    assert "Traceback" not in again.said

    second.stay(reader.next("cp config.example.toml groupkeeper.toml"))
    assert reader.is_at_its_end


def test_the_quick_start_holds_on_a_fresh_checkout(checkout, terminal):
    reader = Reader(checkout.read("docs/start/quickstart.md"))
    first = terminal()
    first.type(reader.next("python3 -m venv ~/groupkeeper"))
    serve = reader.next("cat > groupkeeper.toml")
    first.stay(serve)

    second = terminal()
    said = second.type(reader.next("export PATH=~/groupkeeper/bin:$PATH"))
    assert said.splitlines() == ["ready", "no groups"]
    assert "orders 0: 42" in second.type(reader.next("pip install confluent-kafka"))
    describe = reader.next("groupkeeper group describe billing")
    assert second.type(describe).strip() == printed_after(checkout, describe)

    kill(checkout)
    first.close()
    again = terminal()
    again.stay("export PATH=~/groupkeeper/bin:$PATH\n" + serve)
    assert second.type(describe).strip() == printed_after(checkout, describe)

    third = terminal()
    third.stay("export PATH=~/groupkeeper/bin:$PATH\n" + reader.next("mkdir second"))
    assert second.type(reader.next("groupkeeper group list --server")).strip() == "no groups"
    assert reader.is_at_its_end


def printed_after(checkout: Checkout, block: str) -> str:
    """What the quick start shows below a command."""
    after = checkout.read("docs/start/quickstart.md").partition(f"{block}```\n")[2]
    return re.findall(r"^```\n(.*?)^```", after, re.DOTALL | re.MULTILINE)[0].strip()


@pytest.mark.spark
def test_the_pipeline_of_the_readme_holds_on_a_fresh_checkout(checkout, terminal):
    """What pip would download is that of the environment of the tests, half a gigabyte."""
    there = {"PYTHONPATH": sysconfig.get_path("purelib")}
    text = checkout.read("README.md")
    blocks = commands(text)
    first = terminal(**there)
    first.stay("".join(line for line in blocks[0].splitlines(True) if "make run" in line))
    second = terminal(**there)
    second.type(blocks[1])
    (checkout.home / "billing.py").write_text(snippet_of(text))
    second.type(f"python {checkout.home}/billing.py")
    sealed = "until ls var/groupkeeper-log/dt=*/events-* 2> /dev/null; do sleep 0.2; done"
    assert "events-" in second.type(sealed)  # as the README says, after ten seconds
    (block,) = [each for each in blocks if each.startswith(PIPELINE)]
    second.type(block)
    assert (checkout.path / "tables" / "reports" / "audit.html").is_file()


def test_each_block_that_is_run_elsewhere_is_there_and_every_other_command_is_in_a_block():
    names = ("README.md", "docs/start/quickstart.md", "docs/start/clients.md")
    documents = [(ROOT / name).read_text() for name in names]
    blocks = [block for text in documents for block in commands(text)]
    assert [each for each in ELSEWHERE if not any(b.startswith(each) for b in blocks)] == []
    prose = [re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.M) for text in documents]
    inline = {code for text in prose for code in re.findall(r"`([^`\n]+)`", text)}
    typed = {code for code in inline if re.match(r"(groupkeeper|pip|python3?|go|mvn|npm) ", code)}
    assert typed == set()
    made = {code for code in inline if code.startswith("make ")}
    # the test above types the first, test_pipeline_demo.py the second
    assert made - {"make run", "make test", "make test-clients"} == {
        "make demo",
        "make pipeline-demo",
    }
