"""One store for ranks with equal pages (MLA): the rank that writes serves the others on its host.

A store is open in one process at a time, and SGLang writes MLA pages on one rank alone, while all ranks read them. So the rank
that writes listens on a Unix socket in its store's directory. A reader passes shared memory once; then it sends keys, and the
blocks are read into that memory. Messages are a header of a word and a count, then keys of 32 bytes; answers are a byte for each
key. To clear its pages, a reader asks the other rank to clear them; the answer is one byte.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .._keys import KEY_BYTES, Keys, joined, raw_keys
from .._polling import tell_of_forks
from ..store import Region
from .blocks import STAGING_BYTES, LocalBlocks, address_of
from .report import Report

_HELLO = struct.Struct("<8sQI")  # protocol, bytes of a block, rows of the reader's memory
_PROTOCOL = b"terrace2"
_REQUEST = struct.Struct("<II")  # word, number of keys
_CONTAINS, _READ, _CLEAR = 1, 2, 3
_KEYS_MAX = 65536
_ANSWER_SECONDS = 60.0
_AGAIN_SECONDS = 1.0
_YES = b"\x01"


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """A short path of a socket, through the descriptor of its directory: the path of a socket has at most 107 bytes."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _receive(connection: socket.socket, size: int) -> bytes:
    """Receives exactly `size` bytes. Raises ConnectionError at the end of the stream."""
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Server:
    """Serves the blocks of this process's store to other ranks of the same user."""

    def __init__(self, blocks: LocalBlocks, path: Path) -> None:
        self._blocks = blocks
        self._path = path
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closing = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            path.unlink(missing_ok=True)  # of an earlier process: the store is locked by this one
            with _short_path(path) as short:
                self._listener.bind(short)
            path.chmod(0o600)
            self._listener.listen(64)
        except BaseException:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._accept, name="terrace-serve", daemon=True)
        self._thread.start()
        self._in_child = False
        tell_of_forks(self)

    def _forked(self) -> None:
        """The parent continues to serve. Only the copies of its sockets are closed here, so that the sockets end with the
        parent."""
        self._in_child = True
        for each in (self._listener, *self._connections):
            each.close()

    def close(self) -> None:
        """Ends all connections, and waits until no connection uses the store. Does nothing in a child process."""
        if self._in_child:
            return
        with self._lock:
            self._closing = True
            connections = dict(self._connections)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        self._thread.join()
        self._path.unlink(missing_ok=True)
        for connection, thread in connections.items():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="terrace-serve", daemon=True)
            with self._lock:
                if self._closing:
                    connection.close()
                    return
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        region: Region | None = None
        try:
            region = self._greet(connection)
            while True:
                self._answer(connection, region)
        except (OSError, ValueError):
            pass  # the reader has closed the connection, or the peer is not a reader
        except Exception as error:
            Report("serving another rank").failed(error)
        finally:
            if region is not None:
                region.close()
            connection.close()
            with self._lock:
                self._connections.pop(connection, None)

    def _greet(self, connection: socket.socket) -> Region:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.getuid():
            raise ValueError("another user")
        hello, descriptors, _, _ = socket.recv_fds(connection, _HELLO.size, 1)
        try:
            protocol, block_bytes, rows = _HELLO.unpack(hello + _receive(connection, _HELLO.size - len(hello)))
            if protocol != _PROTOCOL or block_bytes != self._blocks.store.block_bytes or not descriptors:
                raise ValueError("a reader with other blocks")
            size = rows * block_bytes
            descriptor = descriptors[0]
            if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK or os.fstat(descriptor).st_size < size:
                raise ValueError("memory that its owner may take away")
            memory = mmap.mmap(descriptor, size)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        region = self._blocks.store.register(memory)
        try:
            connection.sendall(_YES)
        except BaseException:
            region.close()
            raise
        return region

    def _answer(self, connection: socket.socket, region: Region) -> None:
        what, count = _REQUEST.unpack(_receive(connection, _REQUEST.size))
        if count > _KEYS_MAX or what not in (_CONTAINS, _READ, _CLEAR):
            raise ValueError("no request")
        if what == _CLEAR:
            self._blocks.clear()
            connection.sendall(_YES)
            return
        keys = joined([_receive(connection, count * KEY_BYTES)])
        if what == _CONTAINS:
            connection.sendall(bytes(self._blocks.contains(keys)))
        else:
            statuses = self._blocks.read(keys, region, range(count))
            connection.sendall(bytes(status == 0 for status in statuses))


class _Link:
    """A connection to the rank that writes, with its own memory. One thread uses it at a time."""

    def __init__(self, path: Path, block_bytes: int, rows: int) -> None:
        self.rows = rows
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                raise ConnectionError("it is no socket")
            self._socket.settimeout(_ANSWER_SECONDS)
            with _short_path(path) as short:
                self._socket.connect(short)
            descriptor = os.memfd_create("terrace-pages", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            try:
                os.ftruncate(descriptor, rows * block_bytes)
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
                self.memory = mmap.mmap(descriptor, rows * block_bytes)
                self.address = address_of(self.memory)
                socket.send_fds(self._socket, [_HELLO.pack(_PROTOCOL, block_bytes, rows)], [descriptor])
            finally:
                os.close(descriptor)
            _receive(self._socket, len(_YES))
        except BaseException:
            self.close()
            raise

    def ask(self, what: int, keys: bytes) -> bytes:
        """The answer, a byte for each key."""
        count = len(keys) // KEY_BYTES
        self._socket.sendall(_REQUEST.pack(what, count) + keys)
        return _receive(self._socket, count)

    def clear(self) -> None:
        """Returns when all blocks have been removed."""
        self._socket.sendall(_REQUEST.pack(_CLEAR, 0))
        _receive(self._socket, len(_YES))

    def close(self) -> None:
        self._socket.close()


class _RemoteLent:
    """The memory of a connection. It is valid as long as the connection: a new connection has new memory."""

    def __init__(self, blocks: RemoteBlocks, link: _Link) -> None:
        self._blocks = blocks
        self._link = link
        self.address = link.address
        self.rows = link.rows

    def read(self, keys: Keys) -> list[bool]:
        return self._blocks._ask(_READ, self._link, raw_keys(keys, 0, keys.count))


class RemoteBlocks:
    """Blocks of the rank that writes. If it cannot be reached, nothing is found; a second later the next call tries again.

    After a failure, the memory is abandoned together with the connection, because the other rank may still read into it.
    """

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._path = path
        self._block_bytes = block_bytes
        self._reports = {
            _CONTAINS: Report(f"asking the rank that writes ({path})"),
            _READ: Report(f"reading from the rank that writes ({path})"),
        }
        # Look-ups have their own connection, so that they do not wait for reads.
        self._locks = {_CONTAINS: threading.Lock(), _READ: threading.Lock()}
        self._links: dict[int, _Link] = {}
        self._not_before = {_CONTAINS: 0.0, _READ: 0.0}
        self._closed = False

    def contains(self, keys: Keys) -> list[bool]:
        with self._locks[_CONTAINS]:
            found: list[bool] = []
            for first in range(0, keys.count, _KEYS_MAX):
                part = raw_keys(keys, first, min(first + _KEYS_MAX, keys.count))
                found += self._ask(_CONTAINS, self._link(_CONTAINS, 0), part)
        return found

    @contextmanager
    def lend(self, rows: int) -> Iterator[_RemoteLent | None]:
        with self._locks[_READ]:
            link = self._link(_READ, rows)
            yield None if link is None else _RemoteLent(self, link)

    def clear(self) -> bool:
        """Asks the rank that writes to remove all blocks. Returns whether it has."""
        with self._locks[_CONTAINS]:
            link = self._link(_CONTAINS, 0)
            if link is None:
                return False
            try:
                link.clear()
            except OSError as error:
                self._give_up(_CONTAINS, error)
                return False
            return True

    def close(self) -> None:
        """Ends the connections."""
        for what, lock in self._locks.items():
            with lock:
                self._closed = True
                link = self._links.pop(what, None)
                if link is not None:
                    link.close()

    def _ask(self, what: int, link: _Link | None, keys: bytes) -> list[bool]:
        if link is not None:
            try:
                answer = link.ask(what, keys)
                self._reports[what].well()
                return [byte == 1 for byte in answer]
            except OSError as error:
                self._give_up(what, error)
        return [False] * (len(keys) // KEY_BYTES)

    def _link(self, what: int, rows: int) -> _Link | None:
        link = self._links.get(what)
        if link is not None and link.rows >= rows:
            return link
        if link is None and (self._closed or time.monotonic() < self._not_before[what]):
            return None
        try:
            if link is not None:
                self._links.pop(what).close()
            rows = max(rows, STAGING_BYTES // self._block_bytes) if what == _READ else 1
            self._links[what] = _Link(self._path, self._block_bytes, rows)
        except OSError as error:
            self._give_up(what, error)
        return self._links.get(what)

    def _give_up(self, what: int, error: OSError) -> None:
        link = self._links.pop(what, None)
        if link is not None:
            link.close()
        self._not_before[what] = time.monotonic() + _AGAIN_SECONDS
        self._reports[what].failed(error)
