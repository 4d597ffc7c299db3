"""A disk below SQLite, with the cache of Linux: a sync fails once, and its pages are lost.

After a failed fsync, Linux counts the unwritten pages as clean. The next fsync succeeds, reads
return the pages from the cache, and after a power cut they have their old content
(docs/decisions/0043-failed-sync.md). This file gives SQLite such a disk. It knows no statement and
no order of syncs: it only sees what SQLite writes to which file.

The files themselves have the content of the cache. For each page whose content on the disk differs,
``Cached.on_disk`` has that content.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

PAGE: Final = 4_096

_OK, _IOERR_FSYNC = 0, 1_034
_MAIN_DB, _WAL = 0x100, 0x80000
_FILE_METHODS: Final = 19
"""The version number of ``sqlite3_io_methods``, and its functions."""
_CLOSE, _READ, _WRITE, _TRUNCATE, _SYNC, _SIZE = 1, 2, 3, 4, 5, 6
"""Places in ``sqlite3_io_methods`` (https://sqlite.org/c3ref/io_methods.html)."""

_Pointer = ctypes.c_void_p
_OnClose = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer)
_OnRead = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Pointer, ctypes.c_int, ctypes.c_int64)
_OnTruncate = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, ctypes.c_int64)
_OnSync = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, ctypes.c_int)
_OnSize = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, ctypes.POINTER(ctypes.c_int64))
# Names are pointers here, and not bytes: SQLite keeps the pointer of an open file's name.
_OnOpen = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Pointer, _Pointer, ctypes.c_int, _Pointer)
_OnDelete = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Pointer, ctypes.c_int)


class _Vfs(ctypes.Structure):
    """The beginning of ``sqlite3_vfs`` (https://sqlite.org/c3ref/vfs.html)."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", _Pointer),
        ("name", ctypes.c_char_p),
        ("data", _Pointer),
        ("open", _Pointer),
        ("delete", _Pointer),
    )


_Methods = _Pointer * _FILE_METHODS


class Cached:
    """A file, as the cache and as the disk have it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.on_disk: dict[int, bytes] = {}
        """Page -> its content on the disk, if the cache has another one."""
        self.dirty: set[int] = set()
        """Pages that the next sync writes."""
        self.disk_size = 0

    def sync(self, size: int) -> None:
        for page in self.dirty:
            self.on_disk.pop(page, None)
        self.dirty.clear()
        self.disk_size = size

    def lose(self, random: Random) -> None:
        """Fail a sync. Some pages were written before. The others are not written, but count as
        clean.
        """
        for page in sorted(self.dirty):
            if random.random() < 0.3:
                del self.on_disk[page]
        self.dirty.clear()

    def image(self, content: bytes) -> bytes:
        """Return the content of the disk. ``content`` is that of the cache."""
        whole = bytearray(content.ljust(self.disk_size, b"\0"))
        for page, old in self.on_disk.items():
            end = page * PAGE + len(old)
            whole.extend(bytes(max(0, end - len(whole))))
            whole[page * PAGE : end] = old
        return bytes(whole[: self.disk_size])


class _OpenFile:
    """A file that SQLite has open. Its methods are replaced."""

    def __init__(
        self, disk: ForgetfulDisk, mutex: threading.RLock, address: int, file: Cached
    ) -> None:
        slot = _Pointer.from_address(address)
        self._methods = _Methods.from_buffer_copy(_Methods.from_address(slot.value or 0))
        self._disk, self._mutex, self._address, self._file = disk, mutex, address, file
        self._page = ctypes.create_string_buffer(PAGE)
        self._close, self._read = _OnClose(self._methods[_CLOSE]), _OnRead(self._methods[_READ])
        self._write = _OnRead(self._methods[_WRITE])
        self._truncate = _OnTruncate(self._methods[_TRUNCATE])
        self._size = _OnSize(self._methods[_SIZE])
        self._replaced = {
            _CLOSE: _OnClose(self._on_close),
            _WRITE: _OnRead(self._on_write),
            _TRUNCATE: _OnTruncate(self._on_truncate),
            _SYNC: _OnSync(self._on_sync),
        }
        for place, function in self._replaced.items():
            self._methods[place] = ctypes.cast(function, _Pointer).value
        slot.value = ctypes.addressof(self._methods)

    def _on_close(self, _: int) -> int:
        self._disk.closed(self._address)
        return int(self._close(self._address))

    def _on_write(self, _: int, data: int, count: int, at: int) -> int:
        with self._mutex:
            self._touch(at // PAGE, (at + count - 1) // PAGE)
            return int(self._write(self._address, data, count, at))

    def _on_truncate(self, _: int, new_size: int) -> int:
        with self._mutex:
            self._touch(new_size // PAGE, (self._bytes() - 1) // PAGE)
            return int(self._truncate(self._address, new_size))

    def _on_sync(self, _: int, flags: int) -> int:
        with self._mutex:
            return _OK if self._disk.synced(self._file, self._bytes()) else _IOERR_FSYNC

    def _bytes(self) -> int:
        found = ctypes.c_int64()
        self._size(self._address, ctypes.byref(found))
        return found.value

    def _touch(self, first: int, last: int) -> None:
        """Keep the disk's content of these pages, which are about to change."""
        for page in range(first, last + 1):
            if page not in self._file.on_disk:
                self._read(self._address, ctypes.addressof(self._page), PAGE, page * PAGE)
                self._file.on_disk[page] = self._page.raw
            self._file.dirty.add(page)


class ForgetfulDisk:
    """The disk of one folder, or of all, for the connections of this process to SQLite. ``remove``
    ends it.

    Only databases and their write-ahead logs are watched, not rollback journals. So do not let a
    sync fail before a new database has a write-ahead log.
    """

    def __init__(self, folder: Path | None, random: Random) -> None:
        self._folder = folder
        self._random = random
        self._mutex = threading.RLock()
        self._names: dict[str, Cached] = {}
        """The files by their names."""
        self._durable: dict[str, tuple[Cached, bytes | None]] = {}
        """The names that the folder has on the disk. With a file that was deleted since: its
        content there."""
        self.fails: Callable[[Cached], bool] = lambda _: False
        """Asked before each sync of a file. True lets it fail."""
        self._kept: dict[int, _OpenFile] = {}
        """The open files by their addresses. Their methods must live as long."""
        self._closing: _OpenFile | None = None
        """The file that was closed last. Its method may still be running."""
        self._vfs, self._found = _patched(self._open, self._delete)
        self._fsync, self._fadvise, self._pwrite = os.fsync, os.posix_fadvise, os.pwrite
        os.fsync, os.posix_fadvise = self._on_fsync, self._on_fadvise  # type: ignore[assignment]
        os.pwrite = self._on_pwrite  # type: ignore[assignment]

    def remove(self) -> None:
        """Give SQLite the real disk again. Close its connections first."""
        os.fsync, os.posix_fadvise, os.pwrite = self._fsync, self._fadvise, self._pwrite
        self._vfs.open, self._vfs.delete = self._found
        self._names, self._durable = {}, {}

    def cut_power(self) -> None:
        """Replace each file by a new one with the content that is on the disk. Connections that are
        still open see the old files, and nobody else does.
        """
        with self._mutex:
            images = {}
            for name, (file, content) in self._durable.items():
                if content is None:
                    content = file.image(Path(name).read_bytes())
                images[name] = content
            for name in self._names:
                Path(name).unlink(missing_ok=True)
            for name in images:
                Path(f"{name}-shm").unlink(missing_ok=True)
            self._names, self._durable = {}, {}
            for name, content in images.items():
                Path(name).write_bytes(content)
                file = self._names[name] = Cached(name)
                file.disk_size = len(content)
                self._durable[name] = file, None

    def forget(self) -> None:
        """Let the kernel use the memory of the cache for something else: pages that count as clean
        get the content that they have on the disk.
        """
        with self._mutex:
            for name, file in self._names.items():
                if file.on_disk.keys() - file.dirty:
                    with Path(name).open("r+b") as opened:
                        self._on_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    # --- the calls of SQLite ----------------------------------------------------------------------

    def _open(self, vfs: int, name: int | None, file: int, flags: int, result: int | None) -> int:
        path = "" if name is None else os.fsdecode(ctypes.string_at(name))
        is_watched = bool(flags & (_MAIN_DB | _WAL)) and self._folder in (None, Path(path).parent)
        with self._mutex:
            if is_watched:
                self._find(path)
            code: int = _OnOpen(self._found[0])(vfs, name, file, flags, result)
            if is_watched and code == _OK:
                self._watch(file, self._names.setdefault(path, Cached(path)))
        return code

    def _find(self, path: str) -> None:
        """Count a file as durable that is there before this process first opens it."""
        if path not in self._names and Path(path).exists():
            file = self._names[path] = Cached(path)
            file.disk_size = Path(path).stat().st_size
            self._durable[path] = file, None

    def _delete(self, vfs: int, name: int, sync_folder: int) -> int:
        path = os.fsdecode(ctypes.string_at(name))
        with self._mutex:
            if (file := self._names.get(path)) is not None:
                if path in self._durable and self._durable[path][1] is None:
                    self._durable[path] = file, file.image(Path(path).read_bytes())
                del self._names[path]
            code: int = _OnDelete(self._found[1])(vfs, name, sync_folder)
        return code

    def synced(self, file: Cached, size: int) -> bool:
        """Sync a file of this size. Return False if that fails."""
        if self.fails(file):
            file.lose(self._random)
            return False
        file.sync(size)
        return True

    def closed(self, address: int) -> None:
        """Free the methods of an open file, at the next close: one of them is still running."""
        self._closing = self._kept.pop(address, None)

    def _watch(self, address: int, file: Cached) -> None:
        self._kept[address] = _OpenFile(self, self._mutex, address, file)

    # --- the calls of Python ----------------------------------------------------------------------

    def _on_fsync(self, descriptor: int) -> None:
        path = _path_of(descriptor)
        with self._mutex:
            if path == str(self._folder):
                self._durable = {name: (file, None) for name, file in self._names.items()}
            elif path in self._names:
                self._names[path].sync(os.fstat(descriptor).st_size)
            else:
                self._fsync(descriptor)

    def _on_fadvise(self, descriptor: int, offset: int, length: int, advice: int) -> None:
        """Forget the pages of the cache that count as clean. A page stays if it is not wholly in
        the range: Linux ignores a part of a page. Length 0 means up to the end.
        """
        with self._mutex:
            file = self._names.get(_path_of(descriptor))
            for page in sorted(file.on_disk.keys() - file.dirty) if file is not None else ():
                assert file is not None
                is_whole = offset <= page * PAGE and (
                    not length or (page + 1) * PAGE <= offset + length
                )
                if is_whole:
                    self._pwrite(descriptor, file.on_disk.pop(page), page * PAGE)

    def _on_pwrite(self, descriptor: int, data: bytes, at: int) -> int:
        """Write what the start and the end write into the header of a database."""
        with self._mutex:
            file = self._names.get(_path_of(descriptor))
            if file is not None:
                for page in range(at // PAGE, (at + len(data) - 1) // PAGE + 1):
                    file.on_disk.setdefault(page, os.pread(descriptor, PAGE, page * PAGE))
                    file.dirty.add(page)
            return self._pwrite(descriptor, data, at)


def _path_of(descriptor: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return ""


def _patched(
    on_open: Callable[..., int], on_delete: Callable[..., int]
) -> tuple[_Vfs, tuple[int, int]]:
    """Let SQLite's own access to files call these functions. Return it, with the functions that it
    had.
    """
    import _sqlite3

    library = ctypes.CDLL(_sqlite3.__file__)  # its symbols include those of its libraries
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    vfs: _Vfs = library.sqlite3_vfs_find(None).contents
    found = vfs.open, vfs.delete
    callbacks = _OnOpen(on_open), _OnDelete(on_delete)
    _callbacks.append(callbacks)
    vfs.open, vfs.delete = (ctypes.cast(each, _Pointer).value for each in callbacks)
    return vfs, found


_callbacks: list[Any] = []
"""Functions that C code may still call, so they must not be freed. A connection may be closed long
after its disk was removed."""
