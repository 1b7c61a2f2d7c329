"""What a program name leads to: every directory of PATH, in order, with what it has."""

from __future__ import annotations

from imgdiff.model import LookupAnswer, LookupCandidate, LookupPlace
from imgdiff.starting import DEFAULT_PATH
from imgdiff.trace.lookup._asked import Asked, Desk
from imgdiff.trace.paths import show


def program(desk: Desk, asked: Asked, name: str) -> LookupAnswer:
    """Return what a program name leads to."""
    launch = asked.launch
    found = desk.tracer.follower.programs.which(name, launch.env, launch.cwd)
    places = []
    if "/" in name:
        path = name.encode("utf-8", "surrogateescape")
        places.append(
            LookupPlace("path", None, True, said="the name is a path", candidates=_at(desk, path, launch.cwd, found))
        )
    for part in () if "/" in name else launch.env.get("PATH", DEFAULT_PATH).split(":"):
        directory = part.encode("utf-8", "surrogateescape")
        by, line, said = desk.setters(launch, "PATH", part)
        full = directory if directory.startswith(b"/") else launch.cwd + b"/" + directory
        candidates = _at(desk, directory + b"/" + name.encode("utf-8", "surrogateescape"), launch.cwd, found)
        present = desk.tree.is_dir(full)
        written = b"/".join(each for each in full.split(b"/") if each not in (b"", b"."))
        known = {each.path for place in places for each in place.candidates if each.wins}
        candidates = tuple(each for each in candidates if not (each.wins and each.path in known))
        places.append(LookupPlace("PATH", written, present, by, line, said, candidates))
    winners = tuple(each for place in places for each in place.candidates if each.wins)[:1]
    known_files = {each.file for place in places for each in place.candidates}
    ending = b"/" + name.encode("utf-8", "surrogateescape")
    elsewhere = () if "/" in name else desk.elsewhere(lambda path: path.endswith(b"bin" + ending), known_files)
    return LookupAnswer("program", name, (), winners, tuple(places), _leads_to(desk, asked, name), elsewhere)


def _at(desk: Desk, path: bytes, cwd: bytes, found: bytes | None) -> tuple[LookupCandidate, ...]:
    full = path.strip(b"/") if path.startswith(b"/") else (cwd + b"/" + path).strip(b"/")
    file = desk.tree.resolve(full)
    entry = None if file is None else desk.tree.get(file)
    if file is None or entry is None or entry.type == "dir":
        return ()
    note = None
    if entry.type != "file":
        note = "it is no regular file"
    elif not entry.mode & 0o111:
        note = "it can't be executed: no execute bit"
    return (desk.candidate(full, file, note, wins=full == found and note is None),)


def _leads_to(desk: Desk, asked: Asked, name: str) -> tuple[str, ...]:
    """Say what the program runs in turn: the interpreter of a script, the environment of a Python."""
    notes: dict[str, None] = {}
    for launch in desk.tracer.follower.follow([name], asked.launch.env, asked.launch.cwd):
        for each in launch.touched:
            if each.edge == "interpreter":
                notes[f"It is a script that {show(each.path)} runs."] = None
        start = launch.python
        if start is not None and start.environment is not None:
            prefix = show(start.environment.prefix)
            notes[f"The Python is that of {prefix}, version {start.environment.version}."] = None
    return tuple(notes)
