"""What was sent to one side and what came back, and which request leaves which to wait in vain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Answer = dict[str, Any]


class Sent:
    """A request that waits for its answer."""

    def __init__(
        self, api: str, version: int, correlation_id: int, shown: str, values: dict[str, Any]
    ) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.shown = shown
        self.values = values
        """Its fields, with the ids that this side gave."""
        self.answer: Answer | None = None

    def given_up_by(self, history: Sequence[Sent]) -> str:
        """The API of the first later request that left this one to wait in vain; ``""`` for none.

        That is one that was not refused: of the same API for the same member, or a LeaveGroup that
        took the member out. ``history`` is all that this side was sent, in its order.
        """
        member_id = self.values.get("member_id")
        if not member_id:
            return ""
        for later in history[history.index(self) + 1 :]:
            if later.values.get("group_id") != self.values.get("group_id"):
                continue
            again = later.api == self.api and later.values.get("member_id") == member_id
            if (again and later.accepted) or member_id in later.took_out(history):
                return later.api
        return ""

    @property
    def accepted(self) -> bool:
        """Whether it was not refused, at least until now."""
        return self.answer is None or self.answer.get("error_code") == 0

    def took_out(self, history: Sequence[Sent]) -> Iterator[str]:
        """The ids of the members that left by this request, if it is a LeaveGroup."""
        if self.api != "leave_group" or self.answer is None or not self.accepted:
            return
        if self.version < 3:  # one member: the error of the answer is its error
            yield self.values["member_id"]
            return
        named = self.values["members"]
        for one, result in zip(named, self.answer["members"], strict=True):
            if result["error_code"] == 0:
                yield one["member_id"] or _id_of(
                    one["group_instance_id"], history[: history.index(self)]
                )


class Received:
    """An answer, to what, and when."""

    def __init__(self, sent: Sent, answer: Answer, at_s: float) -> None:
        self.sent = sent
        self.answer = answer
        self.at_s = at_s


def _id_of(instance: str, history: Sequence[Sent]) -> str:
    """The id that an instance was given last."""
    joins = (
        sent.answer["member_id"]
        for sent in reversed(history)
        if sent.api == "join_group"
        and sent.values.get("group_instance_id") == instance
        and sent.answer is not None
        and sent.answer.get("error_code") == 0
    )
    return next(joins, "")
