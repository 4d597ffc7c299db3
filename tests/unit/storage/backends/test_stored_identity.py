"""What a store of keys and values keeps beside groups, as bytes."""

from __future__ import annotations

import msgspec
import pytest

from groupkeeper.storage.backends.journal.stored import FORMAT_VERSION, identity_data, identity_of
from groupkeeper.storage.base import StoreIdentity, StoreRefused

IDENTITY = StoreIdentity("a-cluster", 50)


def test_the_identity_of_a_store_is_read_back():
    assert identity_of("zk", identity_data(IDENTITY)) == IDENTITY


def test_a_store_of_a_newer_format_is_refused():
    newer = msgspec.json.decode(identity_data(IDENTITY)) | {"format": FORMAT_VERSION + 1}
    with pytest.raises(StoreRefused, match="zk: was written by a newer groupkeeper"):
        identity_of("zk", msgspec.json.encode(newer))
