"""The variables and the words of a command that start a recording, and the paths that they name in the container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

ROOT: Final = "/imgdiff"
PYTHON: Final = f"{ROOT}/python"
OUT: Final = f"{ROOT}/out"
STRACE: Final = f"{ROOT}/strace"
LOADER: Final = "loader"  # the tracer's own dynamic loader, in its directory
OURS: Final = "tracer"

_LOADERS: Final = ("LD_PRELOAD", "LD_AUDIT", "LD_DEBUG")
# open: what was read; stat, access and readlink: what was looked for; chdir: what a relative name is relative to; the
# rest is rare: other ways to look for a name, and what makes names lead elsewhere. tracer.c has the same list.
_CALLS: Final = (
    "?open,?creat,openat,?openat2,?stat,?lstat,?newfstatat,?statx,?access,faccessat,?faccessat2,?readlink,readlinkat,"
    "execve,execveat,chdir,fchdir,chroot,getdents64,?fork,?vfork,clone,?clone3,?stat64,?lstat64,?fstatat64,"
    "getxattr,lgetxattr,listxattr,llistxattr,statfs,inotify_add_watch,?rename,renameat,?renameat2,?link,linkat,"
    "?mkdir,mkdirat,?rmdir,?unlink,unlinkat,truncate,"
    "pivot_root,mount,?move_mount,setns,unshare,name_to_handle_at,open_by_handle_at,?io_uring_setup"
)
# -D: the program stays process 1 and gets its signals. -s 0: no string but the names of files is written, so that no
# word of a command line and nothing that is read or sent can be a secret in it. -y: names of open directories.
_OPTIONS: Final = ("-D", "-f", "-ff", "--seccomp-bpf", "-ttt", "-y", "-s", "0", "-e", f"trace={_CALLS}")


class Tracer(msgspec.Struct, frozen=True):
    """What traces system calls in a container: ``tracer`` (tracer.c, built here) or ``strace``. ``loader``: it comes
    with its loader and libraries, and is not static."""

    program: str
    loader: bool


def variables(own: Mapping[str, str], image: str | None) -> dict[str, str]:
    """Return the variables to set in a container whose own ones are given: the recorder stands before whatever
    PYTHONPATH the container has, and the dynamic loader says what it maps, unless it was told something else.

    ``image`` is the digest by which the recording is to be known.
    """
    path = own.get("PYTHONPATH")
    found = {"PYTHONPATH": f"{PYTHON}:{path}" if path else PYTHON, "IMGDIFF_RECORD": OUT}
    if image is not None:
        found["IMGDIFF_RECORD_IMAGE"] = image
    if not own.get("LD_DEBUG"):
        found["LD_DEBUG"] = "files"
        found["LD_DEBUG_OUTPUT"] = f"{OUT}/ld"
    return found


def loaders(env: Mapping[str, str]) -> dict[str, str]:
    """Return those of an image's variables that make the dynamic loader do something in each program."""
    return {name: env[name] for name in _LOADERS if env.get(name)}


def traced(argv: Sequence[str], environment: Mapping[str, str], tracer: Tracer) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs another one under a tracer, and the variables of the container then.

    What the dynamic loader is to do for the program (LD_PRELOAD, LD_DEBUG) it must not do for the tracer: the program
    gets it from there.
    """
    command = [f"{STRACE}/{tracer.program}"]
    if tracer.loader:
        command = [f"{STRACE}/{LOADER}", "--library-path", STRACE, *command]
    command += [*(() if tracer.program == OURS else _OPTIONS), "-o", f"{OUT}/strace"]
    outside = dict(environment)
    for name in _LOADERS:
        if environment.get(name):
            command += ["-E", f"{name}={environment[name]}"]
            outside[name] = ""
    return [*command, "--", *argv], outside
