"""Sequence numbers of producers in the journal: as a broker expects them (ProducerAppendInfo)."""

from __future__ import annotations

from groupkeeper.coordinator.gateway.journal import sequences as module
from groupkeeper.coordinator.gateway.journal.sequences import Sequences
from groupkeeper.protocol.record_batches import Sender


def test_numbers_begin_at_0_in_each_epoch_and_go_on_within_it() -> None:
    sequences = Sequences()
    sequences.learn([])
    assert sequences.next(Sender(1, 0)) == 0
    sequences.used(Sender(1, 0), 0)
    assert sequences.next(Sender(1, 0)) == 1
    assert sequences.next(Sender(1, 1)) == 0
    assert sequences.next(Sender(2, 0)) == 0


def test_broker_says_where_to_go_on() -> None:
    """After a marker of a new epoch, the broker has no number of this epoch: -1."""
    sequences = Sequences()
    assert not sequences.is_known
    sequences.learn([(1, 4, 7), (2, 5, -1)])
    assert sequences.is_known
    assert sequences.next(Sender(1, 4)) == 8
    assert sequences.next(Sender(2, 5)) == 0
    sequences.forget()
    assert not sequences.is_known


def test_after_the_largest_number_comes_0() -> None:
    sequences = Sequences()
    sequences.learn([(1, 0, 2**31 - 1)])
    assert sequences.next(Sender(1, 0)) == 0


def test_too_many_producers_are_forgotten_and_asked_for_again(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_PRODUCERS", 2)
    sequences = Sequences()
    sequences.learn([])
    for producer_id in range(3):
        sequences.used(Sender(producer_id, 0), 0)
    assert not sequences.is_known
