"""Descriptors and sockets: what is asked of the operating system, and what it refuses."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import socket

import pytest

from groupkeeper.coordinator.daemon.address import HostPort
from groupkeeper.coordinator.daemon.process import (
    COLLECT_EVERY,
    SPARE_FILES,
    DescriptorProbe,
    LoopLag,
    StartFailed,
    bind,
    bound_address,
    calm_collector,
    listen,
    raise_file_limit,
)
from tests.helpers.runtime.virtual_loop import virtual_time


@pytest.fixture
def limits(monkeypatch):
    """A process whose limit of open files is a variable of the test: [soft, hard]."""
    held = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(held))
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: held.__setitem__(slice(None), new))
    return held


def test_the_collector_looks_less_often():
    before = gc.get_threshold()
    try:
        calm_collector()
        assert gc.get_threshold() == COLLECT_EVERY
    finally:
        gc.set_threshold(*before)


def test_a_young_collection_is_a_short_pause_however_much_is_loaded():
    before = gc.get_threshold()
    walked = []

    def note(phase, info):
        if phase == "start" and info["generation"] == 1:
            walked.append(len(gc.get_objects(0)) + len(gc.get_objects(1)))

    try:
        calm_collector()
        gc.collect()
        gc.callbacks.append(note)
        loaded = [[] for _ in range(500_000)]
        assert len(loaded) == 500_000
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
    assert walked
    assert max(walked) < 90_000


def test_the_soft_limit_is_raised_to_what_is_needed(limits):
    assert raise_file_limit(2000, 200) == (2000, 200)
    assert limits == [2200 + SPARE_FILES, 4096]


def test_a_limit_that_suffices_is_left_alone(limits):
    assert raise_file_limit(100, 50) == (100, 50)
    assert limits == [1024, 4096]


def test_the_hard_limit_is_divided_between_the_ports(limits):
    assert raise_file_limit(10_000, 200) == (4096 - SPARE_FILES - 200, 200)
    assert limits == [4096, 4096]


def test_of_few_descriptors_the_http_port_has_an_eighth_and_kafka_the_rest(limits):
    limits[:] = [SPARE_FILES + 80, SPARE_FILES + 80]
    assert raise_file_limit(10_000, 200) == (70, 10)


def test_the_http_port_gets_what_kafka_does_not_ask_for(limits):
    assert raise_file_limit(100, 200) == (100, 200)
    limits[:] = [SPARE_FILES + 80, SPARE_FILES + 80]
    assert raise_file_limit(40, 200) == (40, 40)


@pytest.mark.parametrize("hard", [100, SPARE_FILES, SPARE_FILES + 1])
def test_a_limit_that_leaves_no_room_for_connections_stops_the_start(limits, hard):
    limits[:] = [hard, hard]
    with pytest.raises(StartFailed, match=f"the limit of open files is {hard}"):
        raise_file_limit(10_000, 200)
    limits[:] = [SPARE_FILES + 2, SPARE_FILES + 2]
    assert raise_file_limit(10_000, 200) == (1, 1)


def test_without_limits_everything_is_allowed(limits):
    limits[:] = [1024, resource.RLIM_INFINITY]
    assert raise_file_limit(10_000, 200) == (10_000, 200)
    limits[:] = [resource.RLIM_INFINITY, resource.RLIM_INFINITY]
    assert raise_file_limit(10_000, 200) == (10_000, 200)


@virtual_time
async def test_a_process_without_descriptors_says_so_each_second_until_it_has_one(monkeypatch):
    told = []
    probe = DescriptorProbe(lambda: told.append(1))
    probe.start()
    await asyncio.sleep(3.5)
    assert told == []

    def none_is_free(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", none_is_free)
        await asyncio.sleep(3)
    await asyncio.sleep(3)
    assert len(told) == probe.shortages == 3
    probe.stop()


def test_a_bound_port_does_not_listen_yet():
    listener = bind(HostPort("127.0.0.1", 0), "kafka.listen")
    with listener, socket.socket() as peer, pytest.raises(ConnectionRefusedError):
        peer.connect(tuple(bound_address(listener)))


def test_a_port_that_another_has_bound_too_belongs_to_the_first_that_listens():
    first = bind(HostPort("127.0.0.1", 0), "kafka.listen")
    second = bind(bound_address(first), "http.listen")
    with first, second:
        listen(first, "kafka.listen")
        with pytest.raises(StartFailed, match=r"http\.listen = .*: cannot listen there"):
            listen(second, "http.listen")


def test_a_port_in_use_is_refused_in_one_line_that_names_the_setting():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = HostPort(*other.getsockname())
        with pytest.raises(StartFailed) as caught:
            bind(address, "kafka.listen")
    assert str(caught.value) == (
        f"kafka.listen = {address}: cannot listen there (Address already in use); "
        "stop the process that uses it, or set kafka.listen to another address"
    )


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "a" * 300])
def test_an_unknown_host_is_refused_in_one_line(host):
    with pytest.raises(StartFailed, match=rf"^http.listen = {host}:1: the host is unknown \("):
        bind(HostPort(host, 1), "http.listen")


async def test_each_delay_of_the_loop_is_counted_for_good():
    """A scrape takes nothing away, so two scrapers see the same."""
    lag = LoopLag()
    lag.start()
    lag._due -= 30.0  # as if the loop had come back thirty seconds late
    lag._probe()
    lag._probe()
    lag.stop()
    assert lag.seconds.counts[lag.seconds.bounds.index(60.0)] == 1
    assert sum(lag.seconds.counts) == 2
    assert lag.seconds.total == pytest.approx(30.0, abs=1.0)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EADDRINUSE, "stop the process that uses it, or set kafka.listen to another address"),
        (errno.EADDRNOTAVAIL, "set kafka.listen to an address of this machine"),
        (
            errno.EACCES,
            "set kafka.listen to a port from 1024 on, or grant this process the capability "
            "CAP_NET_BIND_SERVICE",
        ),
    ],
)
def test_each_reason_not_to_listen_has_its_own_advice(number, advice, monkeypatch):
    def refuse(*_):
        raise OSError(number, "no")

    monkeypatch.setattr("socket.socket.bind", refuse)
    with pytest.raises(StartFailed) as failed:
        bind(HostPort("127.0.0.1", 80), "kafka.listen")
    assert str(failed.value).startswith("kafka.listen = 127.0.0.1:80: cannot listen there (")
    assert str(failed.value).endswith(f"; {advice}")
