"""Records what a Python process loads, one JSON line an event, into a file of its own in ``$IMGDIFF_RECORD``.

It stands alone: pure Python, 3.8 and newer, started by the ``sitecustomize.py`` beside it. The format is imgdiff's
recording v1 (docs/recording.md). What binds it:

- it never changes what the program does: nothing is printed, no error of its own gets out, nothing stays importable;
- a line is one write to a file opened for appending, so that no way to end a process loses what was seen before;
- what it can't see it says, in lines of the event ``note``.

It imports only what every Python has built in, and one module for SHA-256 where the program has none loaded.
"""

import atexit
import posix
import sys
import time
from _thread import get_ident

if False:  # for type checkers; typing would be loaded for no other reason
    from collections.abc import Sequence
    from typing import Any

import imgdiff_recorder_events as events
import imgdiff_recorder_files as files
import imgdiff_recorder_words as words

# what the names of variables begin with that can steer what is loaded
# fmt: off
_STEERING = (
    "PYTHON", "LD_", "PATH", "VLLM", "SGL", "TORCH", "PYTORCH", "TRITON", "TRANSFORMERS", "HF_", "HUGGINGFACE",
    "CUDA", "NVIDIA_", "NCCL", "ROCR_", "ROCM", "HIP_", "HSA_", "ONEAPI", "ONEDNN", "DNNL", "ZE_", "ZES_", "SYCL",
    "UR_", "CCL_", "FI_", "I_MPI", "UCX_", "MKL", "OMP_", "KMP_", "OPENBLAS", "OPENCL", "OCL_", "GLIBC_", "MALLOC",
    "TCMALLOC", "LC_", "LANG", "HOME", "XDG_", "VIRTUAL_ENV", "CONDA", "RAY_", "IMGDIFF_",
)
# fmt: on

_later = []  # type: list[tuple[str, tuple[Any, ...]]]  # events of a signal's handler that came in between
_directory = ""
_SELF = __file__.rpartition("/")[0] + "/imgdiff_recorder"  # what the paths of its own code begin with
_argv = []  # type: list[str]
_tool = -1  # of sys.monitoring
_disable = getattr(getattr(sys, "monitoring", None), "DISABLE", None)
_LATER = 1000
_lost = [0]  # how many more there were


def _hook(event: str, args: "tuple[Any, ...]", handler_of: "Any" = events.HANDLERS.get) -> None:
    handler = handler_of(event)
    if handler is None or (event == "import" and args[1] is None and not events.state.due):
        return
    ident = get_ident()
    busy = files.busy.get(ident)
    if busy is not None:
        if event == "open" and args[0] is busy:
            return
        if _in_the_middle():
            if len(_later) < _LATER:
                _later.append((event, args))
            else:
                _lost[0] += 1
            return
    try:
        files.busy[ident] = True
        if events.state.pid != posix.getpid():
            _begin("fork", told=False)
        if events.state.due or time.monotonic() > events.state.look:
            events.look()
        handler(args)
        events.look_at_name()
        if _lost[0]:
            events.note("events of a signal's handler", "%d came while the recorder worked" % _lost[0])
            _lost[0] = 0
        while _later:
            held = _later[0]
            events.HANDLERS[held[0]](held[1])
            if _later and _later[0] is held:  # else another thread had the same one
                del _later[0]
    except BaseException as error:
        _failed(error)
    finally:
        files.busy.pop(ident, None)


def _in_the_middle() -> bool:
    """Tell whether a signal's handler runs in the middle of the recorder; else such a handler's error ended it."""
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_SELF):
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None ends it
    return False


def _failed(error: BaseException) -> None:
    """Note an error of the recorder's own, and raise one that a signal's handler raised while the recorder ran."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not trace.tb_frame.f_code.co_filename.startswith(_SELF) or isinstance(error, KeyboardInterrupt):
        raise error
    try:
        place = type(error).__name__ + " at " + trace.tb_frame.f_code.co_name
        events.note("an event that the recorder could not write", place)
    except Exception:  # noqa: S110 -- nothing of the recorder gets into the program, whatever happens
        pass


# Processes -----------------------------------------------------------------------------------------------------------


def begin(here: str, loaded: "list[tuple[str, object]]") -> None:
    """Begin the recording of this process in ``$IMGDIFF_RECORD``. ``here`` is the recorder's own directory, ``loaded``
    what was in ``sys.modules`` before the recorder came."""
    global _directory
    _directory = sys.modules["os"].environ["IMGDIFF_RECORD"]
    events.here = here
    _argv[:] = _command_line()
    files.busy[get_ident()] = True
    try:
        files.find_hash([name for name, _ in loaded])
        _begin("exec", loaded)
    except BaseException as error:
        _failed(error)
    finally:
        files.busy.pop(get_ident(), None)
    sys.addaudithook(_hook)
    atexit.register(_at_exit)
    posix.register_at_fork(after_in_child=_after_fork)


def _command_line() -> "list[str]":
    given = getattr(sys, "orig_argv", None)  # 3.10 and newer
    if isinstance(given, list) and given:
        return [str(word) for word in given]
    try:
        return files.read("/proc/self/cmdline").decode("utf-8", "surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def _begin(how: str, loaded: "Sequence[tuple[str, object]]" = (), told: bool = True) -> None:
    """Begin a file for this process: who it is, what it has loaded, what is mapped. ``told`` is False for a fork that
    Python was not told of: what ran in it until now was not seen."""
    before = events.state
    events.state = state = events.State()
    forked = how == "fork"
    parent = posix.getppid()
    if forked:
        before.output.close()  # the parent has it open under a number of its own
        parent, state.name, state.root = before.pid, before.name, before.root
    now = time.time()
    host = posix.uname().nodename
    safe = "".join([char if char.isalnum() or char in "-_." else "_" for char in host]) or "host"
    name = "%s-%d-%d.jsonl" % (safe, state.pid, int(now * 1_000_000_000))
    state.output = files.Output(_directory.rstrip("/") + "/" + name, state.begun)
    state.title = events.own_title()
    functions = forked and _watch_functions() and told
    state.output.put((_start(how, now, host, parent, functions) + "\n").encode("ascii"))
    for name, module in loaded:
        spec = events.spec_of(module)
        file = events.origin_of(spec)
        file = files.absolute(file) if file is not None else None
        digest = files.digest(file) if file is not None else None
        cached = getattr(spec, "cached", None)
        cached = cached if isinstance(cached, str) else None
        events.line("module", name=name, file=file, cached=cached, before=True, sha256=digest)
    for file in [] if forked else files.held():
        if not file.startswith(state.output.path.rpartition("/")[0] + "/"):
            events.line("open", file=file, mode="r")
            state.opened.add(file)
    events.look_at_maps()
    if functions:
        frame = sys._getframe(1)  # what was running when it forked goes on in the child
        while frame is not None:
            _started(frame.f_code.co_filename)
            frame = frame.f_back  # type: ignore[assignment]  # None ends it


def _start(how: str, now: float, host: str, parent: int, functions: bool) -> str:
    environ = sys.modules["os"].environ
    flags = {name: getattr(sys.flags, name) for name in dir(sys.flags) if name[0] != "_" and name[:2] != "n_"}
    flags = {name: int(value) for name, value in flags.items() if isinstance(value, int)}
    try:
        cwd = posix.getcwd()  # type: str | None
    except OSError:
        cwd = None
    steering = {name: words.variable(name, value) for name, value in environ.items() if name.startswith(_STEERING)}
    return words.json(
        {
            "event": "start",
            "schema": "imgdiff/recording/v1",
            "pid": events.state.pid,
            "parent": parent,
            "how": how,
            "time": now,
            "argv": words.argv(_argv),
            "cwd": cwd,
            "python": "%d.%d.%d" % sys.version_info[:3],
            "implementation": sys.implementation.name,
            "executable": sys.executable,
            "prefix": sys.prefix,
            "base_prefix": sys.base_prefix,
            "machine": posix.uname().machine,
            "hostname": host,
            "image": environ.get("IMGDIFF_RECORD_IMAGE") or None,
            "flags": flags,
            "path": [str(entry) for entry in sys.path if entry != events.here],
            "coverage": ["python", *(["functions"] if functions else []), "origins", "maps", "open"],
            "env": steering,
            "own": files.loaded,
            "recorder": events.here,
        }
    )


def _after_fork() -> None:
    files.busy.clear()  # of threads that are not here
    files.busy[get_ident()] = True
    try:
        del _later[:]
        _begin("fork")
    except BaseException as error:
        _failed(error)
    finally:
        files.busy.clear()


def _watch_functions() -> bool:
    """Have Python call back when a function first runs in this process; returns whether it can (3.12 and newer)."""
    global _tool
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None or sys.modules["os"].environ.get("IMGDIFF_RECORD_FUNCTIONS") == "0":
        return False
    if _tool >= 0:  # a fork of a fork: what ran in the parent is to be seen again
        monitoring.restart_events()
        return True
    for tool in (4, 3):
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, "imgdiff")
            _tool = tool
            kinds = monitoring.events
            monitoring.register_callback(tool, kinds.PY_START, _on_function)
            monitoring.register_callback(tool, kinds.PY_RESUME, _on_function)
            monitoring.register_callback(tool, kinds.PY_THROW, _on_throw)
            monitoring.set_events(tool, kinds.PY_START | kinds.PY_RESUME | kinds.PY_THROW)
            return True
    return False


def _on_function(code: "Any", offset: int) -> object:
    if code.co_filename not in events.state.functions:
        ident = get_ident()
        busy = files.busy.get(ident)
        files.busy[ident] = True
        try:
            _started(code.co_filename)
        except BaseException as error:
            _failed(error)
        finally:
            if busy is None:
                files.busy.pop(ident, None)
            else:
                files.busy[ident] = busy
    return _disable


def _on_throw(code: "Any", offset: int, error: object) -> None:
    _on_function(code, offset)  # this event can't be switched off place by place


def _started(file: str) -> None:
    seen = events.state.functions
    if file in seen or file[:1] in ("<", "") or file.startswith(_SELF) or len(seen) >= events.LIMIT:
        return
    for path in events.moved.get(file) or [file]:
        events.line("function", file=files.absolute(path))
    seen.add(file)


def _at_exit() -> None:
    files.busy[get_ident()] = True
    try:
        events.state.output.hurry()
        while _later:
            event, args = _later.pop(0)
            events.HANDLERS[event](args)
        events.look()
        events.look_at_name()
        events.line("end", how="exit")
    except BaseException as error:
        _failed(error)
    finally:
        files.busy.pop(get_ident(), None)
