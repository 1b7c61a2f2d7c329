"""What ``strace`` says (strace(1)): every path that a process opened or looked for, whether it was there or not.

With ``-f``, children are followed; with ``-ff -o NAME``, each thread has a file of its own, ``NAME.TID``. A relative
path is one of the working directory, of a descriptor that was opened before, or of what ``-y`` says. No bytes are seen,
so that such a log alone never proves on which image it was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from imgdiff.model import RecordedHow, RecordedProcess, RecordingFormat, Started
from imgdiff.recordings._lines import Files, Lines, Room

FORMAT: RecordingFormat = "strace"
_LINE = re.compile(
    rb"\s*(?:\[pid\s+(\d+)\]\s+|(\d+)\s+)?(?:(\d{9,}\.\d+|\d+\.\d+|\d\d:\d\d:\d\d(?:\.\d+)?)\s+)?(\S.*)", re.DOTALL
)
_CALL = re.compile(rb"([a-z_][a-z0-9_]*)\((.*)", re.DOTALL)
_RESUMED = re.compile(rb"<\.\.\. ([a-z_][a-z0-9_]*) resumed>(.*)", re.DOTALL)
_UNFINISHED = b" <unfinished ...>"
_RESULT = re.compile(
    rb"\)\s+= (-?\d+|\?|0x[0-9a-f]+)(?:<((?:[^>\\]|\\.)*)>)?(?:\s+(E[A-Z0-9]+)\b[^\"]*|\s+\([^\"]*|\s*)"
    rb"(?:\s<\d+\.\d+>)?$"  # -T
)
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"(\.\.\.)?')
_AT = re.compile(rb"\s*(AT_FDCWD|-?\d+)(?:<((?:[^>\\]|\\.)*)>)?(?:,|$)")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"v": b"\v", b"f": b"\f", b"a": b"\a", b"b": b"\b"}
_SIGNS = re.compile(
    rb"\s*(?:\[pid\s+\d+\]\s+|\d+\s+)?(?:[\d.:]+\s+)?"
    rb"(?:open|openat|execve|newfstatat|stat|lstat|statx|access|faccessat2?|mmap|clone3?|vfork|readlink|read|close)"
    rb"\(.*\)\s+= "
)
_SHAPE = re.compile(  # of each line, with the time that -ttt writes
    rb"\s*(?:\d+\s+)?\d{9,}\.\d{6} (?:[a-z_][a-z0-9_]*\(.*(?:\)\s+= .*|<unfinished \.\.\.>)|<\.\.\. .* resumed>.*"
    rb"|\+\+\+ .* \+\+\+|--- .* ---)$"
)
_PID = re.compile(r"\.(\d+)(?:\.gz|\.zst|\.log|\.txt)?$")
_NOT_SEEN = re.compile(rb"\+\+\+ not seen: (.*) \+\+\+")  # said by the tracer of imgdiff record
_ENDED = re.compile(rb"\+\+\+ (exited with \d+|killed by SIG\w+)")

_LOOKS = frozenset(
    b"stat lstat stat64 lstat64 access readlink statfs getxattr lgetxattr listxattr llistxattr chmod chown lchown "
    b"truncate utime utimes mkdir rmdir unlink rename link symlink mknod inotify_add_watch".split()
)
_LOOKS_AT = frozenset(
    b"newfstatat fstatat64 statx faccessat faccessat2 readlinkat mkdirat unlinkat renameat renameat2 linkat symlinkat "
    b"mknodat fchmodat fchmodat2 fchownat utimensat name_to_handle_at".split()
)
_TWO = frozenset((b"rename", b"link", b"symlink", b"renameat", b"renameat2", b"linkat"))  # paths
_OPENS = frozenset((b"open", b"openat", b"openat2", b"creat"))
_EXECS = frozenset((b"execve", b"execveat"))
_FORKS = frozenset((b"clone", b"clone3", b"fork", b"vfork"))
# Links that lead anywhere (proc(5)): what stands behind one is the name of another file.
_MAGIC = re.compile(rb"/proc/(self|thread-self|\d+)/(?:task/\d+/)?(root|cwd|fd/(\d+))(/.*)?", re.DOTALL)
_ONE_ONLY = re.compile(rb'", \.\.\.\)')  # as our own tracer writes a call of two paths: the first is looked for
_COPIES = frozenset((b"dup", b"dup2", b"dup3", b"fcntl", b"fcntl64"))
_ELSEWHERE: Mapping[bytes, str] = {
    b"chroot": "it changed its root directory",
    b"pivot_root": "it changed its root directory",
    b"mount": "it mounted something",
    b"move_mount": "it mounted something",
    b"setns": "it went into another namespace",
    b"open_by_handle_at": "it opened files by handles",
    b"io_uring_setup": "it can open files through io_uring, of which no log tells",
}
_MOST_EARLY = 10_000  # lines of one thread
_FAILED = b"(failed)"  # stands for any such call
_DESCRIPTORS = frozenset((b"fchdir", b"close", b"read", b"mmap"))  # each program has some, where they are traced
_NAMING = (_LOOKS | _LOOKS_AT | _OPENS | _EXECS | {b"chdir"}) - {b"utimensat"}
_STATS = frozenset((b"stat", b"lstat", b"newfstatat", b"statx", b"stat64", b"fstatat64"))


def matches(lines: Sequence[bytes]) -> bool:
    """Tell whether these first lines are of such a log. One with a file for each process can have a single line."""
    some = sum(_SIGNS.match(line) is not None for line in lines[:200])
    return some >= 2 or (bool(lines) and all(_SHAPE.match(line) for line in lines[:200]))


def read(lines: Lines, name: str) -> list[RecordedProcess]:
    """Read every process of one log. Its first process's pid is the number at the end of the file's name where the
    lines name none."""
    found = _PID.search(name)
    log = _Log(name, int(found[1]) if found else 0)
    for line in lines:
        log.line(line)
    return log.finish(lines.gaps())


class _Program:
    """One program of one process, from its start or exec to its end."""

    def __init__(self, pid: int, parent: int | None, start: str, cwd: bytes | None, room: Room) -> None:
        self.pid, self.parent, self.start, self.cwd = pid, parent, start, cwd
        self.home = cwd
        self.files = Files(room)
        self.argv: tuple[str, ...] = ()
        self.executable: str | None = None
        self.children: list[Started] = []
        self.began: float | None = None
        self.last: float | None = None
        self.ended: str | None = None
        self.gaps: dict[str, None] = {}
        self.moved = False  # its working directory is another one than at its start, and not known
        self.near = 0  # paths relative to a directory that fchdir(2) could have changed
        self.lost = 0  # paths relative to the directory that it began in, where that is not known
        self.gone = 0  # those relative to one that will never be known


class _Log:
    def __init__(self, name: str, alone: int) -> None:
        self._name, self._alone = name, alone
        self._room = Room()
        self._programs: list[_Program] = []
        self._current: dict[int, _Program] = {}
        self._group: dict[int, int] = {}  # thread -> its process
        self._descriptors: dict[int, dict[bytes, bytes]] = {}  # of each process: descriptor -> directory or file
        self._waiting: dict[tuple[int, bytes], bytes] = {}
        self._born: dict[int, int] = {}
        self._calls: set[bytes] = set()
        self._alive: set[int] = set()  # threads of which there are lines, and no end
        self._strange = 0
        self._early: dict[int, list[bytes]] = {}  # lines of threads of which no call has told yet whose they are

    def line(self, line: bytes) -> None:
        """Take one line."""
        found = _LINE.fullmatch(line)
        if found is None:
            return
        thread = int(found[1] or found[2] or self._alone)
        when = float(found[3]) if found[3] is not None and b":" not in found[3] and len(found[3]) > 12 else None
        text = found[4]
        if text.startswith((b"--- ", b"strace: ")):
            return
        unseen = _NOT_SEEN.fullmatch(text)
        if unseen is not None:
            self._program(thread).gaps[_text(unseen[1])] = None
            return
        ended, resumed, call = _ENDED.match(text), _RESUMED.match(text), _CALL.match(text)
        if ended is None and resumed is None and call is None:
            self._strange += 1  # what a program wrote, where the log is of its stderr
            return
        if self._waits(thread, line):
            return
        program = self._program(thread)
        self._alive.add(thread)
        if when is not None:
            program.began = when if program.began is None else program.began
            program.last = when
        if ended is not None:
            self._alive.discard(thread)
            if self._group.get(thread, thread) == thread:
                program.ended = ended[1].decode()
        elif resumed is not None:
            self._call(program, resumed[1], self._waiting.pop((thread, resumed[1]), b"") + resumed[2])
        elif call is not None and call[2].endswith(_UNFINISHED):
            self._waiting[thread, call[1]] = call[2].removesuffix(_UNFINISHED)
        elif call is not None:
            self._call(program, call[1], call[2])

    def _waits(self, thread: int, line: bytes) -> bool:
        """Put a line off: the first ones of a child can stand before the end of the call that made it, and what they
        are relative to is its parent's. That call's beginning stands before them."""
        lines = self._early.get(thread)
        if lines is None:
            if thread in self._group or thread in self._born or thread in self._current:
                return False
            if not any(name in _FORKS for _, name in self._waiting):
                return False
            lines = self._early[thread] = []
        lines.append(line)
        if len(lines) > _MOST_EARLY:
            self._take_early(thread)
        return True

    def _take_early(self, thread: int) -> None:
        lines = self._early.pop(thread, ())
        if lines:
            self._program(thread)  # it is known from here on
        for line in lines:
            self.line(line)

    def _program(self, thread: int) -> _Program:
        pid = self._group.get(thread, thread)
        program = self._current.get(pid)
        if program is None:
            parent = self._born.get(pid)
            above = None if parent is None else self._current.get(parent)
            program = _Program(
                pid, parent, "unknown" if parent is None else "fork", above.cwd if above else None, self._room
            )
            program.moved = above is not None and above.moved
            if parent is not None:
                self._descriptors[pid] = dict(self._descriptors.get(parent, {}))
            self._programs.append(program)
            self._current[pid] = program
        return program

    # Calls ----------------------------------------------------------------------------------------------------------

    def _call(self, program: _Program, name: bytes, rest: bytes) -> None:
        self._calls.add(name)
        if self._nameless(name, rest):
            program.gaps["some of its calls name a path that the log does not have"] = None
        found = _RESULT.search(rest)
        if found is None:
            if name in _NAMING or name in _FORKS:
                program.gaps["some of its calls are cut off"] = None
            return
        arguments, result, said, failed = rest[: found.start()], found[1], found[2], found[3] is not None
        if failed and (name in _OPENS or name in _LOOKS or name in _LOOKS_AT):
            self._calls.add(_FAILED)
        handle = self._handlers.get(name)
        if handle is not None:
            handle(self, program, arguments, result, said, failed)
        elif name in _OPENS:
            self._open(program, name, arguments, result, said, failed)
        elif name in _LOOKS:
            texts = [each[1] for each in _STRING.finditer(arguments)]
            for each in texts[:2] if name in _TWO else texts[:1]:  # others are an answer, or the name of an attribute
                self._seen(program, each, None, "sought")
        elif name in _LOOKS_AT:
            self._look_at(program, name, arguments)
        elif name in _FORKS:
            self._fork(program, arguments, result, failed)
        elif name in _COPIES:
            self._copy(program, name, arguments, result, said, failed)
        elif name in _ELSEWHERE and not failed:
            program.gaps[_ELSEWHERE[name]] = None
        elif name == b"unshare" and b"CLONE_NEWNS" in arguments and not failed:
            program.gaps[_ELSEWHERE[b"setns"]] = None

    def _nameless(self, name: bytes, rest: bytes) -> bool:
        """Tell whether a call has an address where its path would stand (``-e raw``, memory that strace could not
        read), or a path that is cut."""
        if name not in _NAMING:
            return False
        texts = list(_STRING.finditer(rest))
        wanted = 2 if name in _TWO and not _ONE_ONLY.search(rest) else 1
        if any(each[2] is not None for each in texts[:wanted]):
            return True
        return len(texts) < wanted and b"NULL" not in rest and b"EFAULT" not in rest and _UNFINISHED not in rest

    def _seen(self, program: _Program, text: bytes, base: bytes | None, how: RecordedHow) -> bytes | None:
        """Note a path, relative to ``base`` (None: the working directory); returns it absolute, if that is known."""
        path = _plain(text)
        if not path:
            return None
        directory = base if base is not None else program.cwd
        magic = _MAGIC.fullmatch(path if path.startswith(b"/") else (directory or b"").rstrip(b"/") + b"/" + path)
        if magic is not None and magic[4]:
            return self._through(program, magic, how)
        if path.startswith(b"/"):
            program.files.add(path, how)
            return path
        if directory is None and program.moved:
            program.gone += 1
            return None
        program.near += base is None
        if directory is None:
            program.files.add(path, how)  # where it began, which may be told later
            program.lost += 1
            return None
        program.files.add(path, how, cwd=directory)
        return directory.rstrip(b"/") + b"/" + path

    def _through(self, program: _Program, magic: re.Match[bytes], how: RecordedHow) -> bytes | None:
        """Note a path behind one of the links that the kernel makes for a process (proc(5))."""
        own = not magic[1].isdigit() or int(magic[1]) == program.pid
        base: bytes | None = b"/" if magic[2] == b"root" else None
        if magic[2] == b"cwd" and own:
            base = program.cwd
        elif magic[3] is not None and own:
            base = self._descriptors.get(program.pid, {}).get(magic[3])
        if base is None:
            program.gone += 1
            return None
        path = base.rstrip(b"/") + magic[4]
        program.files.add(path, how)
        return path

    def _base(self, program: _Program, arguments: bytes) -> tuple[bytes | None, bytes, bool]:
        """Return the directory that a call's path is relative to, the rest of its arguments, and whether it is known.
        None is the working directory."""
        found = _AT.match(arguments)
        if found is None:
            return None, arguments, True
        rest = arguments[found.end() :]
        if found[2] is not None:
            return _plain(found[2]), rest, True
        if found[1] == b"AT_FDCWD":
            return None, rest, True
        known = self._descriptors.get(program.pid, {}).get(found[1])
        return known, rest, known is not None

    def _open(
        self, program: _Program, name: bytes, arguments: bytes, result: bytes, said: bytes | None, failed: bool
    ) -> None:
        base, rest, known = self._base(program, arguments) if name != b"open" else (None, arguments, True)
        text = _STRING.search(rest)
        if text is None:
            return
        if not known and not text[1].startswith(b"/"):
            program.gone += 1
            return
        flags = rest[text.end() :]
        how: RecordedHow = "opened"
        if failed or name == b"creat" or b"O_PATH" in flags or (b"O_WRONLY" in flags and b"O_RDWR" not in flags):
            how = "sought"
        elif b"O_DIRECTORY" in flags:
            how = "listed"
        path = self._seen(program, text[1], base, how)
        if not failed:
            opened = path if said is None else _plain(said)
            if opened is not None and opened != path and opened.startswith(b"/"):
                program.files.add(opened, how)  # where the path led to then, whatever it leads to in the image
            if opened is not None:
                self._descriptors.setdefault(program.pid, {})[result] = opened

    def _look_at(self, program: _Program, name: bytes, arguments: bytes) -> None:
        if name == b"symlinkat":  # the text of the link comes first
            text = _STRING.match(arguments)
            arguments = arguments if text is None else arguments[text.end() + 1 :]
        for _ in range(2 if name in _TWO else 1):
            base, rest, known = self._base(program, arguments)
            text = _STRING.search(rest)
            if text is None:
                return
            if not known and text[1] and not text[1].startswith(b"/"):
                program.gone += 1
            else:
                self._seen(program, text[1], base, "sought")
            arguments = rest[text.end() + 1 :]

    def _fork(self, program: _Program, arguments: bytes, result: bytes, failed: bool) -> None:
        if failed or not result.isdigit():
            return
        child = int(result)
        if b"CLONE_THREAD" in arguments:
            self._group[child] = program.pid
            program.children.append(Started("thread", pid=child))
            early = self._current.pop(child, None)  # its first line can come before the call has returned
            if early is not None:
                self._programs.remove(early)
                _merge(program, early)
            self._take_early(child)
            return
        program.children.append(Started("fork", pid=child))
        self._born[child] = program.pid
        early = self._current.get(child)
        if early is not None and early.parent is None:
            early.parent = program.pid
            first = next(each for each in self._programs if each.pid == child)
            first.parent = program.pid
            if first.start == "unknown":
                first.start = "fork"
            if first.home is None:
                first.home = program.cwd
            if first.cwd is None and not first.moved:
                first.cwd, first.moved = program.cwd, program.moved
            self._descriptors[child] = {**self._descriptors.get(program.pid, {}), **self._descriptors.get(child, {})}
        self._take_early(child)

    def _copy(
        self, program: _Program, name: bytes, arguments: bytes, result: bytes, said: bytes | None, failed: bool
    ) -> None:
        if failed or (name.startswith(b"fcntl") and b"F_DUPFD" not in arguments):
            return
        descriptors = self._descriptors.setdefault(program.pid, {})
        old = re.match(rb"\s*(\d+)", arguments)
        path = _plain(said) if said is not None else None if old is None else descriptors.get(old[1])
        if path is not None:
            descriptors[result] = path
        else:
            descriptors.pop(result, None)

    def _close(self, program: _Program, arguments: bytes, result: bytes, said: bytes | None, failed: bool) -> None:
        del result, said, failed
        found = re.match(rb"\s*(\d+)", arguments)
        if found is not None:
            self._descriptors.get(program.pid, {}).pop(found[1], None)

    def _exec(self, program: _Program, arguments: bytes, result: bytes, said: bytes | None, failed: bool) -> None:
        del result, said
        text = _STRING.search(arguments)
        if text is None:
            return
        path = self._seen(program, text[1], None, "sought" if failed else "mapped")
        if not failed:
            self._becomes(program, path if path is not None else _plain(text[1]), arguments[text.end() :])

    def _exec_at(self, program: _Program, arguments: bytes, result: bytes, said: bytes | None, failed: bool) -> None:
        """execveat(2): relative to a descriptor, or, with an empty path, the descriptor's own file (fexecve)."""
        del result, said
        base, rest, known = self._base(program, arguments)
        text = _STRING.search(rest)
        if text is None:
            return
        if not known and not text[1].startswith(b"/"):
            program.gone += 1
            path: bytes | None = None
        elif text[1] or base is None:
            path = self._seen(program, text[1], base, "sought" if failed else "mapped")
        else:
            path = self._seen(program, base, None, "sought" if failed else "mapped")
        if not failed:
            self._becomes(program, path or _plain(text[1]), rest[text.end() :])

    def _becomes(self, program: _Program, path: bytes, words: bytes) -> None:
        """Another program goes on in the place of this one."""
        parent = program.parent
        after = _Program(program.pid, parent, "exec", program.cwd, self._room)
        after.executable = _text(path)
        after.argv = tuple(_text(_plain(each[1])) for each in _STRING.finditer(words))
        after.began = program.last
        after.files.add(path, "mapped")
        if program.start == "exec":
            program.ended = "replaced"
            program.children.append(Started("replace", after.executable, after.argv, program.pid))
        else:  # strace's own start of it, or a child on its way to another program
            self._programs.remove(program)
            _merge(after, program)
            after.home, after.moved = program.home, program.moved
        self._programs.append(after)
        self._current[program.pid] = after

    def _chdir(self, program: _Program, arguments: bytes, result: bytes, said: bytes | None, failed: bool) -> None:
        del result, said
        text = _STRING.search(arguments)
        if text is None or failed:
            return
        program.cwd = self._seen(program, text[1], None, "sought")
        program.moved = program.cwd is None

    def _fchdir(self, program: _Program, arguments: bytes, result: bytes, said: bytes | None, failed: bool) -> None:
        del result, said
        if failed:
            return
        directory, _, known = self._base(program, arguments)
        program.cwd = directory
        program.moved = not known

    def _getcwd(self, program: _Program, arguments: bytes, result: bytes, said: bytes | None, failed: bool) -> None:
        del result, said
        text = _STRING.search(arguments)
        if text is None or failed or text[2] is not None or program.cwd is not None:
            return
        program.cwd = _plain(text[1])
        if program.home is None and not program.moved:
            program.home = program.cwd

    def _mmap(self, program: _Program, arguments: bytes, result: bytes, said: bytes | None, failed: bool) -> None:
        del result, said
        parts = arguments.split(b", ")
        if failed or len(parts) < 6 or b"PROT_EXEC" not in parts[2]:
            return
        found = _AT.match(parts[4])
        if found is None or found[1].startswith(b"-"):
            return
        path = _plain(found[2]) if found[2] is not None else self._descriptors.get(program.pid, {}).get(found[1])
        if path is not None and path.startswith(b"/"):
            program.files.add(path, "mapped")

    _handlers: Mapping[bytes, Callable[[_Log, _Program, bytes, bytes, bytes | None, bool], None]] = {
        b"execve": _exec,
        b"execveat": _exec_at,
        b"chdir": _chdir,
        b"fchdir": _fchdir,
        b"getcwd": _getcwd,
        b"mmap": _mmap,
        b"mmap2": _mmap,
        b"close": _close,
    }

    # The end --------------------------------------------------------------------------------------------------------

    def finish(self, gaps: Sequence[str]) -> list[RecordedProcess]:
        """Return the processes."""
        for thread in tuple(self._early):
            self._take_early(thread)
        for (thread, name), begun in tuple(self._waiting.items()):
            self._call(self._program(thread), name, begun)  # it was never resumed
        calls = frozenset(name for name, calls in _KINDS.items() if calls & self._calls)
        found = []
        for program in self._programs:
            own = [*gaps, *program.files.gaps(), *program.gaps]
            lost = program.gone + (program.lost if program.home is None else 0)
            if lost:
                own.append(f"{lost:,} of its paths are relative to a directory that the log does not name")
            if program.near and not self._calls & _DESCRIPTORS:
                own.append(
                    f"{program.near:,} of its paths are relative to a directory that could have been changed through a "
                    "descriptor, and the log has no calls on such ones (strace -y tells the directory)"
                )
            if any(self._group.get(thread, thread) == program.pid for thread in self._alive):
                program.ended = None
            if self._strange:
                own.append(f"{self._strange:,} lines of the log are none of strace's")
            found.append(_process(program, self._name, calls, tuple(own)))
        return found


_KINDS: Mapping[str, frozenset[bytes]] = {
    "open": _OPENS,
    "stat": _STATS,
    "access": frozenset((b"access", b"faccessat", b"faccessat2")),  # the loader asks for /etc/ld.so.preload
    "readlink": frozenset((b"readlink", b"readlinkat")),  # Python asks where it lies
    "execve": _EXECS,
    "failing": frozenset((_FAILED,)),  # any program looks in vain for something; strace -z leaves that out
}


def _process(program: _Program, name: str, calls: frozenset[str], gaps: tuple[str, ...]) -> RecordedProcess:
    return RecordedProcess(
        pid=program.pid or None,
        parent=program.parent,
        start="exec" if program.start == "exec" else "fork" if program.start == "fork" else "unknown",
        source=name,
        argv=program.argv,
        cwd=program.home or b"/",
        executable=program.executable,
        started=program.began,
        last=program.last,
        ended=program.ended,
        files=program.files.all(),
        children=tuple(program.children),
        gaps=gaps,
        calls=calls,
    )


def _merge(program: _Program, early: _Program) -> None:
    """Take what a thread did before it was known to be one."""
    for file in early.files.all():
        program.files.add(file.path, file.how, file.digest, file.name, file.cwd)
    program.children += early.children
    program.gaps.update(early.gaps)
    program.lost += early.lost
    program.gone += early.gone


def _plain(text: bytes) -> bytes:
    """Return a string without strace's escapes."""
    if b"\\" not in text:
        return text

    def one(found: re.Match[bytes]) -> bytes:
        word = found[1]
        if word[:1] == b"x" and len(word) == 3:
            return bytes([int(word[1:], 16)])
        if word[:1].isdigit():
            return bytes([int(word, 8) & 0xFF])
        return _ESCAPED.get(word, word)

    return _ESCAPE.sub(one, text)


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
