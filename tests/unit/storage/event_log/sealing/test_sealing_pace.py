"""The thread that seals lets the loop have the interpreter lock."""

from __future__ import annotations

from groupkeeper.storage.event_log.sealing.sealer import SLICE_S, Pacer


def test_after_a_slice_of_work_comes_as_long_a_pause() -> None:
    now = 0.0
    pauses: list[float] = []

    def pause(length_s: float) -> None:
        nonlocal now
        pauses.append(length_s)
        now += length_s

    pacer = Pacer(lambda: now, pause)
    for _ in range(100):
        now += SLICE_S / 10
        pacer.tick()
    assert len(pauses) in (9, 10)
    assert set(pauses) == {SLICE_S}
