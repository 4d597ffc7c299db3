"""One of the two coordinators that a differential case talks to, its answers made comparable."""

from __future__ import annotations

import json
from typing import Any

from tests.helpers.raw_client import RawClient

TOPIC = "orders"


class Side:
    """One of the two: sends, and keeps each answer in comparable form."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: list[tuple[str, Any]] = []
        self._names: dict[str, str] = {}
        self.client = RawClient(port, client_id="differential", timeout_s=20)
        self.other = RawClient(port, client_id="differential", timeout_s=20)

    def __call__(self, api: str, version: int, **values: Any) -> dict[str, Any]:
        """Send, keep and return the answer; a closed connection is one, too."""
        try:
            answer = self.client.call(api, version, **values)
        except ConnectionError:
            self.client = RawClient(self.port, client_id="differential", timeout_s=20)
            answer = {"closed": True}
        return self.keep(f"{api} v{version} {_short(values)}", answer)

    def keep(self, what: str, answer: dict[str, Any]) -> dict[str, Any]:
        self.answers.append((what, self._comparable("", answer)))
        return answer

    def learn(self, minted: str) -> str:
        """A minted id is called by its number from here on."""
        if minted:
            self._names.setdefault(minted, f"<id {len(self._names)}>")
        return minted

    def close(self) -> None:
        self.client.close()
        self.other.close()

    def comparable(self, value: Any) -> Any:
        """Without what must differ."""
        return self._comparable("", value)

    def _comparable(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            if "member_id" in value and isinstance(value["member_id"], str):
                self.learn(value["member_id"])
            return {key: self._comparable(key, item) for key, item in value.items()}
        if isinstance(value, list):
            items = [self._comparable(name, item) for item in value]
            return sorted(items, key=lambda item: json.dumps(item, default=str))
        if isinstance(value, str):
            if value in self._names:
                return self._names[value]
            if name == "message" or name == "error_message":
                return "<text>" if value else value
            return value
        if isinstance(value, bytes):
            return value.hex()
        return value


def _short(values: dict[str, Any]) -> str:
    text = json.dumps(values, default=lambda v: v.hex() if isinstance(v, bytes) else str(v))
    return text if len(text) < 300 else text[:300] + "…"


def join(group: str, member_id: str = "", **more: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": 20_000,
        "rebalance_timeout": 20_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\6orders\0\0\0\0"}],
        **more,
    }


def offsets(topic: str = TOPIC, *, offset: int = 5, metadata: str | None = "", n: int = 2) -> Any:
    parts = [
        {"partition_index": p, "committed_offset": offset + p, "committed_metadata": metadata}
        for p in range(n)
    ]
    return [{"name": topic, "partitions": parts}]


def stable(side: Side, group: str, version: int = 3, **more: Any) -> tuple[str, int]:
    """A group of one member, Stable."""
    joined = side("join_group", version, **join(group, **more))
    member_id, generation = joined["member_id"], joined["generation_id"]
    side(
        "sync_group",
        3,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=more.get("group_instance_id"),
        assignments=[{"member_id": member_id, "assignment": b"mine"}],
    )
    return member_id, generation
