"""A reply in pieces is the reply in one, however many pieces it has."""

from __future__ import annotations

import pytest

from groupkeeper.protocol.packing import MANY_PIECES, framed, framed_pieces


@pytest.mark.parametrize("count", [1, MANY_PIECES - 1, MANY_PIECES, MANY_PIECES + 1])
@pytest.mark.parametrize(("flexible", "throttle"), [(True, True), (False, True), (False, False)])
def test_a_reply_in_pieces_is_the_reply_in_one(count: int, flexible: bool, throttle: bool) -> None:
    pieces = [bytes([at % 256]) * at for at in range(count)]
    whole = framed(7, 1_234, b"".join(pieces), flexible=flexible, throttle=throttle)
    assert framed_pieces(7, 1_234, pieces, flexible=flexible, throttle=throttle) == whole
