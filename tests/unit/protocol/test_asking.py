"""Requests of ours as kio writes them, and responses that are not what they should be."""

from __future__ import annotations

import pytest

from groupkeeper.protocol.asking import read_response, write_request
from groupkeeper.protocol.errors import ProtocolError
from tests.helpers.wire.kio_replies import respond
from tests.helpers.wire.raw_client import encode_request

LIST_GROUPS, FIND_COORDINATOR = 16, 10
VALUES = {
    "key": "g",
    "key_type": 0,
    "coordinator_keys": ["g"],
    "states_filter": ["Stable"],
    "types_filter": [],
}


@pytest.mark.parametrize(
    ("name", "key", "version"),
    [("list_groups", LIST_GROUPS, v) for v in range(6)]
    + [("find_coordinator", FIND_COORDINATOR, v) for v in range(7)],
)
def test_a_request_is_written_as_kio_alone_writes_it_whatever_the_version(name, key, version):
    expected = encode_request(name, version, VALUES, 7, "me")
    assert write_request(key, version, 7, "me", **VALUES) == expected


@pytest.mark.parametrize("version", range(6))
def test_a_response_is_read_back_and_a_shorter_one_is_refused_at_every_length(version):
    group = {"group_id": "g", "protocol_type": "", "group_state": "Empty", "group_type": "classic"}
    body = respond(LIST_GROUPS, version, 7, error_code=15, groups=[group])[4:]
    answer = read_response(LIST_GROUPS, version, 7, body)
    assert (answer.error_code, answer.groups[0].group_id) == (15, "g")
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            read_response(LIST_GROUPS, version, 7, body[:size])


def test_an_answer_to_another_request_is_refused():
    body = respond(LIST_GROUPS, 5, 7, error_code=0, groups=[])[4:]
    with pytest.raises(ProtocolError, match="another request"):
        read_response(LIST_GROUPS, 5, 8, body)
