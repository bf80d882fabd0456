"""A proxy on loopback that cuts connections to a node where a test wants it."""

from __future__ import annotations

import socket
import threading
from typing import Optional

from served import MAX_WAIT_S

PIECE_BYTES = 64 * 1024


class Cutting:
    """Passes bytes on, and closes each connection after `answer_bytes` of its answer; for the first `cuts` connections only."""

    def __init__(self, socket_path: str, answer_bytes: int, cuts: int) -> None:
        self._to, self._bytes, self._cuts = socket_path, answer_bytes, cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.closed_by_client = threading.Event()
        """Set when a client closes a connection that the node still has open."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            left = self._bytes if self.connections <= self._cuts else None
            threading.Thread(target=self._pass, args=(client, left), daemon=True).start()

    def _pass(self, client: socket.socket, left: Optional[int]) -> None:
        with client, socket.socket(socket.AF_UNIX) as node:
            client.settimeout(MAX_WAIT_S)
            try:
                node.connect(self._to)
            except OSError:
                return
            threading.Thread(target=self._requests, args=(client, node), daemon=True).start()
            while True:
                try:
                    piece = node.recv(PIECE_BYTES)
                    client.sendall(piece if left is None else piece[:left])
                except OSError:
                    return
                if left is not None:
                    left -= len(piece)
                if not piece or (left is not None and left <= 0):
                    # Both ways: the thread for requests still has the socket.
                    client.shutdown(socket.SHUT_RDWR)
                    return

    def _requests(self, client: socket.socket, node: socket.socket) -> None:
        try:
            while True:
                piece = client.recv(PIECE_BYTES)
                if not piece:
                    self.closed_by_client.set()
                    node.shutdown(socket.SHUT_RDWR)
                    return
                node.sendall(piece)
        except OSError:
            return
