"""A client of the admin endpoint."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=120)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))


def ask(path: Path, method: str, target: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    connection = UnixConnection(path)
    connection.request(method, target, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
