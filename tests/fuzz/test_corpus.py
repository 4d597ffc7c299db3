"""Everything that fuzzing kept, once more, without the fuzzer."""

from __future__ import annotations

import logging

import pytest

from groupkeeper.protocol.versions import API_BY_KEY, ApiKey
from tests.fuzz.seeds import CORPUS, name_of, seeds
from tests.fuzz.target import TARGETS, split

FILES = sorted(path for path in CORPUS.iterdir() if path.is_file())
GROUPS_OF_FILES = [FILES[start : start + 25] for start in range(0, len(FILES), 25)]
MAX_BYTES = 1_000_000
"""What the corpus may take in the repository."""


def test_the_corpus_has_every_seed_and_stays_small() -> None:
    kept = {path.name for path in FILES}
    assert {name_of(seed) for seed in seeds()} <= kept
    assert sum(path.stat().st_size for path in FILES) < MAX_BYTES
    assert all(path.name == name_of(path.read_bytes()) for path in FILES)


def test_the_seeds_ask_for_every_api_and_version() -> None:
    asked = {
        (int.from_bytes(frame[4:6]), int.from_bytes(frame[6:8]))
        for seed in seeds()
        for frame in split(seed)
    }
    wanted = {
        (int(api.key), version)
        for api in API_BY_KEY.values()
        for version in range(api.min_version, api.max_version + 1)
    }
    assert wanted <= asked
    assert (ApiKey.OFFSET_COMMIT, 9) in asked


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("files", GROUPS_OF_FILES, ids=lambda files: files[0].name[:8])
def test_every_input_is_answered_or_refused(target, files) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for path in files:
            TARGETS[target](path.read_bytes())
    finally:
        logging.disable(logging.NOTSET)
