"""A broker with answers that a test chooses, for tests of our own clients."""

from __future__ import annotations

import io
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kio.index import load_response_schema
from kio.serial import entity_writer

from tests.helpers.wire.raw_client import from_plain

API_VERSIONS = 18
UNSUPPORTED_VERSION = 35

Answer = Callable[[], Mapping[str, Any]]


class ScriptedBroker:
    """Answers each API in one version. The test's function is called for each answer."""

    def __init__(self, apis: Mapping[int, tuple[int, Answer]]) -> None:
        self.apis = {API_VERSIONS: (0, self._versions), **apis}
        self.asked: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _versions(self) -> Mapping[str, Any]:
        served = [
            {"api_key": key, "min_version": version, "max_version": version}
            for key, (version, _) in self.apis.items()
        ]
        return {"error_code": 0, "api_keys": served}

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with peer, peer.makefile("rb") as source:
            while head := source.read(4):
                body = source.read(struct.unpack(">i", head)[0])
                key, asked, correlation_id = struct.unpack_from(">hhi", body)
                self.asked.append(key)
                version, answer = self.apis[key]
                values = answer()
                if key == API_VERSIONS and asked > version:  # as KIP-35 wants it
                    version, values = 0, {**values, "error_code": UNSUPPORTED_VERSION}
                schema = load_response_schema(key, version)
                out = io.BytesIO()
                header = from_plain(schema.__header_schema__, {"correlation_id": correlation_id})
                entity_writer(schema.__header_schema__)(out, header)
                entity_writer(schema)(out, from_plain(schema, values))
                peer.sendall(struct.pack(">i", out.tell()) + out.getvalue())
