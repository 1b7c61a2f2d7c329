"""The recorder's hands: the file that one process writes, and the files that it looks at."""

import posix
import sys
import time
from _thread import get_ident

import imgdiff_recorder_words as words

_AGAIN = 1.0  # seconds until a write that failed is tried again
_PENDING = 1 << 20  # bytes that may wait for it
_NUMBERS = (1000, 1001, 1007, 250, 251, 100, 60)  # of descriptors that no program counts on
O_READ = posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK | posix.O_NOCTTY
_O_WRITE = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_CLOEXEC | posix.O_NOCTTY
_REGULAR, _FORMAT = 0o100000, 0o170000
_KERNEL = ("/proc/", "/sys/", "/dev/")
_BAD_NUMBER = 9  # EBADF

busy = {}  # type: dict[int, object]  # by thread: True while the recorder works, or the path that it opens itself
loaded = []  # type: list[str]  # modules that the recorder loaded, and their files
_hash = None  # type: object


class Output:
    """The recording of one process: ``path`` is opened when the first line is written."""

    def __init__(self, path: str, begun: float) -> None:
        self.path = path
        self.begun = begun
        self.fd = -1
        self._identity = (0, 0)  # device and inode: a number alone may be another file's by now
        self._waiting = []  # type: list[bytes]
        self._size = self._lost = 0
        self._trouble = ""
        self._retry = 0.0
        self._cut = False
        self._length = 0

    def put(self, line: bytes) -> None:
        """Write a line with one call. What can't be written waits, up to a limit, and is tried again later."""
        if not self._waiting and not self._lost and self._write(line):
            return
        if self._size + len(line) > _PENDING:
            self._lost += 1
        else:
            self._waiting.append(line)
            self._size += len(line)
        now = time.monotonic()
        if now < self._retry:
            return
        self._retry = now + _AGAIN
        lines = self._waiting
        data = b"".join(lines)
        if self._lost:
            data += self._note(now)
        if self._write(data):
            self._waiting, self._size, self._lost = [], 0, 0

    def hurry(self) -> None:
        """Try again with the next line, however short ago it failed."""
        self._retry = 0.0

    def _note(self, now: float) -> bytes:
        what = words.text("%d lines of the recording, which could not be written for a time" % self._lost)
        note = '{"event":"note","t":%.6f,"what":%s,"reason":%s}\n'
        return (note % (now - self.begun, what, words.text(self._trouble))).encode("ascii")

    def _write(self, data: bytes) -> bool:
        for attempt in (0, 1):
            try:
                if not self.is_open():
                    self._open()
                if self._cut:
                    data = b"\n" + data
                done = posix.write(self.fd, data)
            except OSError as error:
                self._trouble = str(error.strerror)
                if attempt or error.errno != _BAD_NUMBER:
                    self._spoil()
                    return False
                continue
            if done < len(data):
                self._trouble = "the disk took a part of a line"
                self._cut = not self._taken_back(done) or self._cut
                self._spoil()
                return False
            self._cut = False
            return True
        return False

    def _spoil(self) -> None:
        """Take the end of the last line away, or make a file that is none, where a line could not be written: it may
        never be, and what is there would look whole. Neither takes room; the next write puts the end back."""
        try:
            if not self.is_open():
                posix.close(opened(self.path + ".lost", _O_WRITE, 0o644))
            elif self._length and not self._cut:
                posix.ftruncate(self.fd, self._length - 1)
                self._cut = True
        except OSError:
            return

    def _taken_back(self, done: int) -> bool:
        """Take back the part of a line that a nearly full disk took; else the next one begins on a line of its own."""
        try:
            if posix.fstat(self.fd).st_size != self._length + done:
                return False  # another thread has written meanwhile
            posix.ftruncate(self.fd, self._length)
        except OSError:
            return False
        return True

    def is_open(self) -> bool:
        """Tell whether the number is still this file's: a program may have closed it, and reused it."""
        if self.fd < 0:
            return False
        try:
            found = posix.fstat(self.fd)
        except OSError:
            return False
        self._length = found.st_size
        return (found.st_dev, found.st_ino) == self._identity and found.st_nlink > 0

    def close(self) -> None:
        """Close it, if it is still open."""
        if self.is_open():
            posix.close(self.fd)
        self.fd = -1

    def _open(self) -> None:
        self.fd = -1
        fd = opened(self.path, _O_WRITE, 0o644)
        try:
            found = posix.fstat(fd)
            if not found.st_size:
                posix.fchmod(fd, 0o644)  # whatever the program's umask: the host's user reads it
            self.fd = _moved(fd)
            self._identity, self._length = (found.st_dev, found.st_ino), found.st_size
        finally:
            posix.close(fd)


def _moved(fd: int) -> int:
    """Return the same file under a high number, so that the program's own files have the numbers as ever."""
    for number in _NUMBERS:
        try:
            posix.fstat(number)
        except OSError:
            try:
                return posix.dup2(fd, number, False)
            except OSError:  # above this process's limit
                continue
    return posix.dup(fd)


def opened(path: str, flags: int, mode: int = 0) -> int:
    """Open a file of the recorder's own; the event that this raises is none of the program's. Raises OSError."""
    ident = get_ident()
    before = busy.get(ident)
    busy[ident] = path
    try:
        return posix.open(path, flags, mode)
    finally:
        if before is None:
            busy.pop(ident, None)
        else:
            busy[ident] = before


def read(path: str) -> bytes:
    """Return what is in a file. Raises OSError."""
    fd = opened(path, O_READ)
    try:
        size = posix.fstat(fd).st_size + 1  # one more: a file's end is then seen with the first read
        pieces = []
        while True:
            piece = posix.read(fd, max(size, 1 << 16))
            pieces.append(piece)
            if not piece or len(piece) < size:
                return b"".join(pieces)
    finally:
        posix.close(fd)


def text(path: object) -> str:
    """Return a path or word as str, its bytes that are no UTF-8 as surrogates; empty for anything else."""
    if isinstance(path, str):
        return str.__str__(path)
    if isinstance(path, bytes):
        return bytes.decode(path, sys.getfilesystemencoding(), "surrogateescape")
    return ""


def absolute(path: str) -> str:
    """Return a path from the root. Raises OSError where the working directory is gone."""
    return path if path[:1] == "/" else posix.getcwd().rstrip("/") + "/" + path


def kernels(path: str) -> bool:
    """Tell whether the kernel makes what has this name: /dev/shm has files as any other directory."""
    return path.startswith(_KERNEL) and not path.startswith("/dev/shm/")  # noqa: S108  nothing is written there


def behind(path: str) -> str:
    """Return where a name that the kernel makes leads: /proc/self/fd/3, /proc/self/root/x; the name itself where that
    is no file of another name, or is not to be had. Raises OSError."""
    if not kernels(path) or not is_file(path):
        return path
    fd = opened(path, posix.O_PATH | posix.O_CLOEXEC)
    try:
        found = posix.readlink("/proc/self/fd/%d" % fd)
    finally:
        posix.close(fd)
    return path if found[:1] != "/" or found[-10:] == " (deleted)" else found


def held() -> "list[str]":
    """Return the files that this process was started with open for reading (``python < script.py``)."""
    found = []
    try:
        numbers = posix.listdir("/proc/self/fd")
    except OSError:
        return []
    for number in numbers:
        try:
            path = posix.readlink("/proc/self/fd/" + number)
            if path[:1] == "/" and not kernels(path) and is_file(path):
                flags = read("/proc/self/fdinfo/" + number).partition(b"flags:")[2].split()[0]
                if int(flags, 8) & 3 != posix.O_WRONLY:
                    found.append(path)
        except (OSError, ValueError, IndexError):
            continue
    return sorted(set(found))


def is_file(path: str) -> bool:
    """Tell whether a regular file lies there (a pipe would be emptied by who reads it)."""
    try:
        return posix.stat(path).st_mode & _FORMAT == _REGULAR
    except (OSError, ValueError):
        return False


def digest(path: str) -> "str | None":
    """Return the SHA-256 of a regular file, None where there is none that can be read."""
    if not is_file(path):
        return None
    openssl = sys.modules.get("_hashlib")
    maker = object.__getattribute__(openssl, "__dict__").get("openssl_sha256") if openssl is not None else None
    try:
        data = read(path)
    except OSError:
        return None
    for each in (maker, _hash):  # OpenSSL's is five times as fast, and often there
        if each is not None:
            try:
                return str(each(data).hexdigest())  # type: ignore[operator]
            except ValueError:  # an OpenSSL that was told to refuse
                continue
    return None


def find_hash(before: "list[str]") -> None:
    """Load what computes SHA-256: a small module of Python itself; hashlib, with OpenSSL behind it, only without it.
    ``before`` names the modules that the recorder did not load."""
    global _hash
    searched = set(sys.path_importer_cache)
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            _hash = getattr(__import__(name), "sha256")  # noqa: B009
            break
        except (ImportError, AttributeError):
            continue
    for place in set(sys.path_importer_cache).difference(searched):  # as if nobody had looked there
        sys.path_importer_cache.pop(place, None)
    for name in sorted(set(sys.modules).difference(before)):
        if name == "sitecustomize" or name.startswith("imgdiff_recorder"):
            continue
        loaded.append(name)
        file = getattr(sys.modules[name], "__file__", None)
        if isinstance(file, str):
            loaded.append(file)
