"""What lies around the closures of a role: the files on the way to its programs, and the texts that name files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imgdiff.engines import PathRules, common
from imgdiff.model import Attribution, FactSource, Hop, Profile, Tree
from imgdiff.trace.closure.loaded import Loaded
from imgdiff.trace.closure.reach import DEFERRED, EAGER, Reach
from imgdiff.trace.evidence.world import World
from imgdiff.trace.launch.started import Launch
from imgdiff.trace.tracer.commands import Commands


def files_read(tree: Tree, launches: list[Launch], reaches: list[Reach]) -> dict[bytes, Loaded]:
    """Return what the launches, the loader and the search for modules read, by canonical path."""
    files: dict[bytes, Loaded] = {}
    for launch in launches:
        for each in launch.touched:
            level = EAGER if each.sure else DEFERRED
            hop = Hop(None, each.path, each.line, None, each.edge)
            known = files.get(each.path)
            if known is None or known.level < level:
                files[each.path] = Loaded(level, hop, each.by, "the way from the entry to the program")
    for path, level, why in _loader_files(tree):
        files.setdefault(path, Loaded(level, Hop(None, path, None, None, "root"), None, why))
    for reach in reaches:
        search = reach.graph.resolver.search
        for path in search.files:
            resolved = tree.resolve(path) or path
            files.setdefault(
                resolved,
                Loaded(EAGER, Hop(None, resolved, None, None, "pth"), None, "it decides where modules are found"),
            )
        for path, hop in reach.path_files.items():
            files.setdefault(path, Loaded(DEFERRED, hop, None, "code adds the directory that it lies in"))
        executable = search.environment.executable
        if executable is not None:
            files.setdefault(
                executable, Loaded(EAGER, Hop(None, executable, None, None, "interpreter"), None, "the interpreter")
            )
    return files


def _loader_files(tree: Tree) -> Iterator[tuple[bytes, int, str]]:
    """What the dynamic loader reads at every start, and what ldconfig makes its cache from."""
    for name in sorted(tree.children(b"etc")):
        if name in (b"ld.so.preload", b"ld.so.cache") or (name.startswith(b"ld-musl-") and name.endswith(b".path")):
            yield tree.resolve(b"etc/" + name) or b"etc/" + name, EAGER, "the loader reads it at every start"
        elif name == b"ld.so.conf":
            yield tree.resolve(b"etc/" + name) or b"etc/" + name, DEFERRED, "ldconfig reads it"
    for name in sorted(tree.children(b"etc/ld.so.conf.d")):
        path = b"etc/ld.so.conf.d/" + name
        yield tree.resolve(path) or path, DEFERRED, "ldconfig reads it"


def texts(commands: Commands, launches: list[Launch]) -> list[tuple[str, object]]:
    """Return the strings of the launches that can name a file, with who says them."""
    found: list[tuple[str, object]] = []
    for launch in launches:
        found += [(text, "the shell code of the entry") for text in launch.texts]
        found += [(word, "the command line") for word in launch.argv]
        for name in sorted(launch.env):
            for part in (launch.env[name], *launch.env[name].split(":")):
                found.append((part, f"ENV {name}"))
    for name in sorted(commands.env):
        for part in (commands.env[name], *commands.env[name].split(":")):
            found.append((part, f"ENV {name}"))
    if commands.config is not None:
        found += [(word, "the command line") for word in (*commands.config.entrypoint, *commands.config.cmd)]
    if commands.cwd:
        found.append(("/" + commands.cwd.decode("utf-8", "surrogateescape"), "the working directory"))
    return found


def shell_files(tree: Tree, facts: FactSource, launches: list[Launch]) -> list[str | None]:
    """The scripts on the way to a program, and what its shells read at their start; None for what can't be read."""
    rules = PathRules(common().shell_files)
    paths = {each.path for launch in launches for each in launch.touched if facts.elf(each.path) is None}
    if any(each.in_shell for each in launches):
        kinds = ("file", "symlink")
        paths |= {path for path, each in tree.entries.items() if each.type in kinds and rules.match(path)}
    texts = [facts.text(path) for path in sorted(paths) if not tree.is_dir(path)]
    return [None if text is None else text.decode("utf-8", "replace") for text in texts]


def world_of(
    tree: Tree,
    attribution: Attribution,
    facts: FactSource,
    profile: Profile,
    commands: Commands,
    launches: Sequence[Launch],
) -> World:
    """Return the image as the levels of evidence see it."""
    listed = [
        part.strip("/").encode("utf-8", "surrogateescape")
        for name in ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH")
        for part in commands.env.get(name, "").split(":")
        if part
    ]
    directories = frozenset(
        found
        for each in (b"lib", b"usr/lib", b"lib64", b"usr/lib64", *listed)
        if (found := tree.resolve(each)) is not None
    )
    rules = common()
    return World(
        tree,
        attribution,
        facts,
        PathRules((*rules.outside, *profile.outside)),
        PathRules((*rules.read_at_run_time, *profile.read_at_run_time)),
        directories,
        tuple(listed),
        working(tree, commands, launches),
    )


def working(tree: Tree, commands: Commands, launches: Sequence[Launch]) -> frozenset[bytes]:
    """Return the working directories of the image and the launches, canonical."""
    directories = (commands.cwd, *(launch.cwd for launch in launches))
    return frozenset(found for each in directories if (found := tree.resolve(each)) is not None)
