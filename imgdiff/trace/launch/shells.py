"""What the commands of shell code start with: their words, their ENV, the directories that they can run in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imgdiff.model import HOLE, HOLE_FILE, Computed, Tree
from imgdiff.trace.launch.computed import candidates
from imgdiff.trace.launch.places import at_homes, own_place
from imgdiff.trace.launch.started import Launch

_MAX_VARIANTS = 6  # parts of a path that a script may or may not set, each tried alone


def command_line(
    tree: Tree,
    base: Launch,
    script: bytes | None,
    words: Sequence[str],
    rest: Sequence[str],
    name: Sequence[str] = (),
) -> list[str]:
    """Return the command line of a shell command, with the script's own arguments where a word does not fold: it
    is mostly ``"$@"``."""
    argv: list[str] = []
    for word in words:
        if word == HOLE_FILE and script is None:
            argv += name
        elif word == HOLE:
            argv += rest
        else:
            argv.append(at_homes(own_place(word, script), base.env, tree)[0])
    return argv


def variants(launch: Launch) -> list[Mapping[str, str]]:
    """Return what the ENV of a shell's commands can be: with all that its code sets, and, where a line that may not
    run decides which modules and programs are found, without all such, and with each of them alone."""
    open_ = [(name, part) for name in ("PATH", "PYTHONPATH") for part in sorted(launch.unsure(name))]
    found = [launch.env]
    kept: list[tuple[tuple[str, str], ...]] = [(), *((each,) for each in open_[:_MAX_VARIANTS])] if open_ else []
    for some in kept:
        env = dict(launch.env)
        for name in {name for name, _ in open_}:
            left_out = {part for other, part in open_ if other == name and (other, part) not in some}
            env[name] = ":".join(part for part in env.get(name, "").split(":") if part not in left_out)
            if not env[name]:
                del env[name]
        if env not in found:
            found.append(env)
    return found


def entered(
    tree: Tree,
    base: Launch,
    commands: Sequence[tuple[bytes | None, Sequence[str]]],
    computed: Sequence[tuple[bytes | None, Computed]],
) -> list[bytes]:
    """Return the directories that shell code changes to: its other commands run there, or where it began."""
    found: dict[bytes, None] = {}
    matched = [
        each
        for script, one in computed
        if one.kind == "directory"
        for each in candidates(one, tree, base.cwd, script, base.env) or ()
    ]
    listed = [part.encode("utf-8", "surrogateescape") for part in base.env.get("CDPATH", "").split(":") if part]
    for script, words in commands:
        if words[0] in ("cd", "pushd"):
            target = next((word for word in words[1:] if not word.startswith("-")), "~")
            for name in at_homes(own_place(target, script), base.env, tree):
                for cwd in (base.cwd, *found, *listed) if HOLE not in name else ():
                    path = tree.resolve(name.encode("utf-8", "surrogateescape"), cwd)
                    if path is not None and path != base.cwd and tree.is_dir(path):
                        found[path] = None
                        break
    return [*dict.fromkeys((*[*found][:_MAX_VARIANTS], *matched))]


def open_to_all(tree: Tree, directory: bytes) -> bool:
    """Tell whether every user can enter a directory."""
    parts = directory.split(b"/")
    entries = [tree.get(b"/".join(parts[: end + 1])) for end in range(len(parts))] if directory else []
    return all(entry is not None and entry.mode & 0o001 for entry in entries)


def asks_directory(launches: Sequence[Launch], found: Sequence[tuple[bytes | None, Sequence[str], int]]) -> bool:
    """Tell whether the working directory can decide what is loaded: by Python's search path, or a relative name."""
    for launch in launches:
        start = launch.python
        if start is not None and not (start.mode == "script" and start.target.startswith("/")):
            return True
    return any("/" in words[0] and not words[0].startswith(("/", "~")) for _, words, _ in found)
