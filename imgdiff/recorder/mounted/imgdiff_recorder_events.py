"""What of the interpreter's events goes into the recording, and what raises no event: libraries and titles."""

import posix
import sys
import time

import imgdiff_recorder_children as children
import imgdiff_recorder_files as files
import imgdiff_recorder_words as words

if False:  # for type checkers; typing would be loaded for no other reason
    from typing import Any

LIMIT = 200_000  # files of one kind that a process names
_EVERY = 2.0  # seconds between two looks at what raises no event
_MAPPED_ELSEWHERE = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage", "/[aio]")
_CODE, _SPEC = type((lambda: 0).__code__), type(sys.__spec__)


def _root() -> "tuple[object, ...]":
    found = posix.stat("/")
    try:
        return found.st_dev, found.st_ino, posix.readlink("/proc/self/ns/mnt")
    except OSError:
        return found.st_dev, found.st_ino


class State:
    """What one process knows of its own recording. A fork begins a new one."""

    def __init__(self) -> None:
        self.pid = posix.getpid()
        self.begun = time.monotonic()
        self.output = files.Output("", self.begun)
        self.executed = set()  # type: set[str]
        self.opened = set()  # type: set[str]
        self.written = set()  # type: set[str]
        self.functions = set()  # type: set[str]
        self.noted = set()  # type: set[str]
        self.maps = set()  # type: set[bytes]
        self.mapped = set()  # type: set[str]
        self.due = False  # a library was asked for, and the maps are to be read
        self.look = self.begun + _EVERY
        self.title = self.name = ""
        self.root = _root()  # what paths are told from, and which mounts are seen


state = State()
here = ""  # the recorder's own directory
moved = {}  # type: dict[str, list[str]]  # file names of code -> where its module really lies


def line(event: str, **more: object) -> None:
    """Write one event."""
    parts = ['{"event":"', event, '","t":', "%.6f" % (time.monotonic() - state.begun)]
    for key, value in more.items():
        parts += [',"', key, '":', words.json(value)]
    parts.append("}\n")
    state.output.put("".join(parts).encode("ascii"))


def note(what: str, reason: str) -> None:
    """Write what the recorder can't see, once."""
    key = what + "\0" + reason
    if key not in state.noted and len(state.noted) < 1000:
        line("note", what=what, reason=reason)
        state.noted.add(key)


def spec_of(module: object) -> object:
    """Return a module's spec if it is Python's own kind, without waking a module that loads itself when it is asked."""
    try:
        found = object.__getattribute__(module, "__dict__").get("__spec__")
    except AttributeError:
        return None
    return found if type(found) is _SPEC else None


def origin_of(spec: object) -> "str | None":
    """Return the file that a module came from, None where it came from none."""
    origin = getattr(spec, "origin", None)
    return (
        str.__str__(origin) if isinstance(origin, str) and origin not in ("built-in", "frozen", "namespace") else None
    )


# Events --------------------------------------------------------------------------------------------------------------


def _on_exec(args: "tuple[Any, ...]") -> None:
    code = args[0]
    if type(code) is not _CODE:
        return
    file = code.co_filename
    if file in state.executed or file[:1] in ("<", ""):
        return
    look_at_root()
    path = files.behind(files.absolute(file))
    name, origin = _running(file)
    if origin is not None and origin != path and (origin[-4:] == ".pyc" or not files.is_file(path)):
        path = files.absolute(origin)  # a .pyc without source has the name that its build gave it
    if path in state.executed:
        return
    if len(state.executed) >= LIMIT:
        note("more executed files than %d" % LIMIT, "the recorder keeps no more names")
        return
    elsewhere = {}
    if path == origin and path != files.absolute(file):
        elsewhere["origin"] = path
        moved.setdefault(file, []).append(path)  # its functions have the other name, too
    line("exec", file=path, sha256=files.digest(path), name=name, **elsewhere)
    state.executed.add(path)  # only now: a signal's handler may have ended this with an error before


def _running(file: str) -> "tuple[str | None, str | None]":
    """Return name and origin of the module whose body is about to run."""
    modules = sys.modules
    if type(modules) is dict:
        try:
            spec = spec_of(modules[next(reversed(modules))])
        except (RuntimeError, KeyError, StopIteration):  # another thread imports
            spec = None
        if spec is not None and origin_of(spec) == file:
            return spec.name, file  # type: ignore[attr-defined]
    try:
        frame = sys._getframe(3)  # behind _on_exec and the hook: who calls exec
    except ValueError:
        return ("__main__", None)  # the interpreter itself runs a script
    called = frame.f_code.co_name
    names = None
    if called == "_call_with_frames_removed":
        given = frame.f_locals.get("args")
        names = given[1] if isinstance(given, tuple) and len(given) > 1 else None
    elif called == "_run_code":
        names = frame.f_locals.get("run_globals")
    if type(names) is not dict:
        return None, None
    name = names.get("__name__")
    found = names.get("__spec__")
    spec = found if type(found) is _SPEC else None
    return (name if isinstance(name, str) else None), origin_of(spec)


def _on_open(args: "tuple[Any, ...]") -> None:
    path, mode, flags = args[0], args[1], args[2]
    if isinstance(path, int):
        _on_launch(3)
        return
    if type(path) is str and path in state.opened:
        return
    file = files.text(path)
    if not file or "\0" in file:
        return
    file = files.behind(files.absolute(file))
    if files.kernels(file):
        return
    if isinstance(mode, str):
        reads = "r" in mode or "+" in mode
    elif isinstance(flags, int):
        reads = flags & 3 != posix.O_WRONLY
        mode = "r" if flags & 3 == posix.O_RDONLY else "w" if not reads else "r+"
    else:
        reads, mode = True, "r"
    known = state.opened if reads else state.written
    if file in known or not files.is_file(file):
        return
    if len(known) >= LIMIT:
        note("more opened files than %d" % LIMIT, "the recorder keeps no more names")
        return
    line("open", file=file, mode=mode)
    known.add(file)


def _on_import(args: "tuple[Any, ...]") -> None:
    if isinstance(args[1], str):
        file = files.absolute(str.__str__(args[1]))
        state.due = True
        line("extension", name=files.text(args[0]), file=file, sha256=None)


def _on_dlopen(args: "tuple[Any, ...]") -> None:
    state.due = True


def _on_fork(args: "tuple[Any, ...]") -> None:
    line("fork")


def _on_popen(args: "tuple[Any, ...]") -> None:
    _spawn("subprocess.Popen", args[0], args[1], args[3])


def _on_posix_spawn(args: "tuple[Any, ...]") -> None:
    caller = sys._getframe(2).f_code
    if caller.co_name == "_posix_spawn" and caller.co_filename.endswith("subprocess.py"):
        return  # of a Popen, whose own event came before
    _spawn("os.posix_spawn", args[0], args[1], args[2])


def _on_os_exec(args: "tuple[Any, ...]") -> None:
    path = files.text(args[0])
    if path and not files.is_file(path):
        return  # exec along PATH tries each directory
    look()
    _spawn("os.exec", args[0], args[1], args[2])


def _on_os_spawn(args: "tuple[Any, ...]") -> None:
    _spawn("os.spawn", args[1], args[2], args[3])


def _on_system(args: "tuple[Any, ...]") -> None:
    _spawn("os.system", "/bin/sh", ["sh", "-c", args[0]], None)


def _on_bind(args: "tuple[Any, ...]") -> None:
    _on_launch(3)


def _on_launch(depth: int) -> None:
    """multiprocessing starts programs without an event; what it does just before or after has one."""
    frame = sys._getframe(depth)
    name, file = frame.f_code.co_name, frame.f_code.co_filename
    if name == "_launch" and file.endswith("popen_spawn_posix.py"):
        _spawn("multiprocessing.spawn", None, frame.f_locals.get("cmd"), None, vars(frame.f_locals["self"]).get("pid"))
    elif name == "ensure_running" and file.endswith("forkserver.py"):
        _spawn("multiprocessing.forkserver", sys.executable, [sys.executable, "-c", "(the fork server)"], None)


def _word(value: "Any") -> str:
    if not isinstance(value, (str, bytes)) and hasattr(type(value), "__fspath__"):
        value = type(value).__fspath__(value)
    return files.text(value)


def _spawn(call: str, executable: object, argv: object, env: object, pid: object = None) -> None:
    if isinstance(argv, (str, bytes)):
        argv = [argv]
    given = [_word(word) for word in argv] if isinstance(argv, (list, tuple)) else []
    program = _word(executable) or (given[0] if given else "")
    kind = children.environment(env, here)
    known = {"pid": pid} if isinstance(pid, int) else {}
    line("spawn", call=call, executable=program or None, argv=words.argv(given), env=kind, **known)
    reason = children.unseen(program, given)
    if kind == "empty-of-recorder":
        reason = "its environment lacks the recorder's variables"
    if reason is not None:
        note("a child, " + words.urls(program), reason)


# What raises no event: libraries, titles -----------------------------------------------------------------------------


def look() -> None:
    """Read the maps and the title, and write what is new."""
    state.look = time.monotonic() + _EVERY
    state.due = False
    look_at_root()
    look_at_maps()
    title = own_title()
    if title and title != state.title:
        state.title = title
        line("title", title=title)


def look_at_root() -> None:
    """Note a change of what names lead to: a chroot, other mounts."""
    if state.root != _root():
        note("files by their names", "it changed its root directory, or the mounts that it sees")


def look_at_maps() -> None:
    """Write which files are mapped executable, those that were not before."""
    try:
        lines = set(files.read("/proc/self/maps").split(b"\n"))
    except OSError as error:
        note("libraries", "/proc/self/maps can't be read: " + str(error.strerror))
        return
    for each in sorted(lines - state.maps):
        at = each.find(b"/")
        if at < 0 or b"x" not in each[:at].split(b" ", 2)[1]:
            continue
        file = each[at:].replace(b"\\012", b"\n").decode(sys.getfilesystemencoding(), "surrogateescape")
        deleted = file.endswith(" (deleted)")
        file = file[:-10] if deleted else file
        if file not in state.mapped and not file.startswith(_MAPPED_ELSEWHERE):
            line("map", file=file, **({"deleted": True} if deleted else {}))
            state.mapped.add(file)
    state.maps = lines


def own_title() -> str:
    """Return the command line as the system shows it now, which is where programs put a title."""
    try:
        shown = files.read("/proc/self/cmdline").rstrip(b"\0").decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    return " ".join(words.argv(shown.split("\0")))


def look_at_name() -> None:
    """Look at multiprocessing's name for this process, where that is loaded."""
    module = sys.modules.get("multiprocessing.process")
    if module is None:
        return
    process = object.__getattribute__(module, "__dict__").get("_current_process")
    try:
        name = object.__getattribute__(process, "__dict__").get("_name")
    except AttributeError:
        return
    if isinstance(name, str) and name != state.name:
        state.name = name
        if name != "MainProcess":
            line("title", title=name)


HANDLERS = {
    "exec": _on_exec,
    "open": _on_open,
    "import": _on_import,
    "ctypes.dlopen": _on_dlopen,
    "os.fork": _on_fork,
    "os.forkpty": _on_fork,
    "subprocess.Popen": _on_popen,
    "os.posix_spawn": _on_posix_spawn,
    "os.exec": _on_os_exec,
    "os.spawn": _on_os_spawn,
    "os.system": _on_system,
    "socket.bind": _on_bind,
}
