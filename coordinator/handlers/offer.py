"""The APIs and features that one listener offers in its answers to ApiVersions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from groupkeeper.protocol.codec import write_elements
from groupkeeper.protocol.versions import APIS, FEATURES, ApiKey
from groupkeeper.protocol.writer import Row, Written


class OfferedApi(NamedTuple):
    """An API with the range of its versions."""

    key: int
    min_version: int
    max_version: int


class OfferedFeature(NamedTuple):
    """A feature with its range of levels, and the level that is switched on.

    ``finalized`` is 0 if no level is finalized.
    """

    name: str
    min_version: int
    max_version: int
    finalized: int


class Offer:
    """The APIs and features of a listener. The encoded lists are made once per version."""

    def __init__(
        self, apis: Iterable[OfferedApi], features: Iterable[OfferedFeature], epoch: int = 1
    ) -> None:
        """``epoch`` is the epoch of the finalized features."""
        self.apis = tuple(apis)
        self.features = tuple(features)
        self.epoch = epoch
        self._values: dict[int, dict[str, Any]] = {}

    def values(self, version: int) -> dict[str, Any]:
        """Return the values of an answer in this version of ApiVersions."""
        values = self._values.get(version)
        if values is None:
            values = self._values[version] = self._written(version)
        return values

    def _written(self, version: int) -> dict[str, Any]:
        rows = [
            Row(api_key=key, min_version=lowest, max_version=highest)
            for key, lowest, highest in self.apis
        ]
        written = write_elements(ApiKey.API_VERSIONS, version, "api_keys", rows)
        return {
            "api_keys": Written(len(rows), [written]),
            # In v3 a feature whose minimum level is 0 is left out: its schema allows only 1 and up.
            "supported_features": [
                Row(name=f.name, min_version=f.min_version, max_version=f.max_version)
                for f in self.features
                if version >= 4 or f.min_version > 0
            ],
            "finalized_features_epoch": self.epoch,
            "finalized_features": [
                Row(name=f.name, max_version_level=f.finalized, min_version_level=f.finalized)
                for f in self.features
                if f.finalized > 0
            ],
        }


OUR_APIS: Final = tuple(OfferedApi(api.key, api.advertised_min, api.max_version) for api in APIS)
OUR_FEATURES: Final = tuple(
    OfferedFeature(f.name, f.min_version, f.max_version, f.finalized) for f in FEATURES
)
OURS: Final = Offer(OUR_APIS, OUR_FEATURES)
"""The offer of a listener that passes no requests on to another cluster."""
