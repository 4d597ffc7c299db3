"""A webhook is told of each incident once, in signed requests that are tried again."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from groupkeeper.pipeline.reports.incidents.deliveries import Told, after, news
from groupkeeper.pipeline.reports.incidents.find import FoundIncidents
from groupkeeper.pipeline.reports.incidents.webhook import (
    DELIVERY,
    SIGNATURE,
    TIMESTAMP,
    TRIES,
    NotDelivered,
    Webhook,
    signature,
    tell,
)

SECRET = b"key"


class Receiver:
    """A web server that notes each request, and answers with the next status."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.requests: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), body))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/secret-path"

    def events(self) -> list[tuple[str, str]]:
        """What each incident of all requests was told as."""
        bodies = [json.loads(body) for _, body in self.requests]
        return [(each["id"], each["event"]) for body in bodies for each in body["incidents"]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, daemon=True)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


def incident(name: str, state: str = "open", last_ms: int = 50) -> dict:
    return {"id": name, "state": state, "last_ms": last_ms}


def hook(receiver: Receiver, pauses: list[float] | None = None, **more) -> Webhook:
    taken = pauses if pauses is not None else []
    return Webhook(receiver.url, sleep=taken.append, now=lambda: 1000.0, **more)


def test_each_incident_is_told_when_it_begins_and_when_it_ends(receiver, tmp_path):
    memory = tmp_path / "told.json"
    first = FoundIncidents(100, [incident("a"), incident("b"), incident("old", "over")])
    assert tell(hook(receiver), first, memory) == 2
    assert tell(hook(receiver), first, memory) == 0
    second = FoundIncidents(
        200, [incident("b"), incident("a", "over"), incident("short", "over", 150)]
    )
    assert tell(hook(receiver), second, memory) == 2
    assert receiver.events() == [("a", "began"), ("b", "began"), ("a", "ended"), ("short", "ended")]


def test_an_incident_that_is_no_longer_found_has_ended():
    told = after(FoundIncidents(100, [incident("a")]))
    assert [(each["id"], each["event"]) for each in news(told, FoundIncidents(200, []))] == [
        ("a", "ended")
    ]


def test_a_request_is_signed_over_its_time_and_its_body(receiver, tmp_path):
    tell(
        hook(receiver, secret=SECRET), FoundIncidents(100, [incident("a")]), tmp_path / "told.json"
    )
    ((headers, body),) = receiver.requests
    assert headers[TIMESTAMP] == "1000"
    assert headers[SIGNATURE] == signature(SECRET, "1000", body)
    assert signature(SECRET, "1001", body) != signature(SECRET, "1000", body)


def test_a_refused_request_is_tried_again_with_the_same_number(receiver, tmp_path):
    receiver.answers = [503, 429]
    pauses: list[float] = []
    tell(hook(receiver, pauses), FoundIncidents(100, [incident("a")]), tmp_path / "told.json")
    assert pauses == [1.0, 2.0]
    assert len({headers[DELIVERY] for headers, _ in receiver.requests}) == 1


def test_after_a_failure_the_same_is_told_again(receiver, tmp_path):
    memory = tmp_path / "told.json"
    receiver.answers = [500] * TRIES
    with pytest.raises(NotDelivered, match=r"127.0.0.1:\d+: it answered 500 \(5 tries\)") as failed:
        tell(hook(receiver), FoundIncidents(100, [incident("a")]), memory)
    assert "secret-path" not in str(failed.value)
    assert tell(hook(receiver), FoundIncidents(100, [incident("a")]), memory) == 1


def test_a_request_that_is_wrong_is_not_tried_again(receiver, tmp_path):
    receiver.answers = [404]
    with pytest.raises(NotDelivered, match=r"it answered 404 \(1 try\)"):
        tell(hook(receiver), FoundIncidents(100, [incident("a")]), tmp_path / "told.json")
    assert len(receiver.requests) == 1


def test_many_incidents_are_told_in_several_requests(receiver, tmp_path):
    many = FoundIncidents(100, [incident(str(n)) for n in range(250)])
    assert tell(hook(receiver), many, tmp_path / "told.json") == 250
    assert len(receiver.requests) == 3


def test_only_the_web_is_told():
    with pytest.raises(ValueError, match="http:// or https://"):
        Webhook("file:///etc/passwd")


def test_a_memory_of_another_format_is_refused(receiver, tmp_path):
    memory = tmp_path / "told.json"
    memory.write_text('{"format": 9}')
    with pytest.raises(NotDelivered, match="format 9 is not known"):
        tell(hook(receiver), FoundIncidents(100, []), memory)
    assert Told.of_json(Told().to_json()) == Told(None, [])
