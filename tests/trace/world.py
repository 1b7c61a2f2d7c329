"""Small images for tests of the trace: from a dict of files or from directories, with their facts."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from imgdiff.engines import load_profiles
from imgdiff.kinds import bytecode, elf, python, shell
from imgdiff.model import (
    Attribution,
    Claim,
    Distribution,
    ElfFacts,
    Environment,
    Evidence,
    FileEntry,
    ImageConfig,
    LookupAnswer,
    LookupKind,
    ModuleFacts,
    Owner,
    Profile,
    ProfileRole,
    RootGroup,
    ShellFacts,
    Trace,
    Tree,
    Unreadable,
)
from imgdiff.trace import freeze, thaw, trace
from imgdiff.trace.lookup import kinds_of, look_up
from imgdiff.trace.tracer import Tracer

SITE = b"usr/lib/python3.12/site-packages"
STDLIB = b"usr/lib/python3.12"
PYTHON = b"usr/bin/python3.12"


class Facts:
    """A ``FactSource`` over contents."""

    def __init__(
        self, tree: Tree, contents: Mapping[bytes, bytes], elves: Mapping[bytes, ElfFacts | Unreadable]
    ) -> None:
        self._tree, self._contents, self._elves = tree, contents, dict(elves)
        self._modules: dict[bytes, ModuleFacts | Unreadable] = {}
        self.waves: list[list[bytes]] = []

    def prefetch(self, paths: Iterable[bytes]) -> None:
        self.waves.append(list(paths))

    def _read(self, path: bytes) -> bytes | None:
        found = self._tree.resolve(path)
        return None if found is None else self._contents.get(found)

    def module(self, path: bytes) -> ModuleFacts | Unreadable:
        if path not in self._modules:
            content = self._read(path)
            if content is None:
                self._modules[path] = Unreadable("its content was not kept by the indexing pass")
            else:
                self._modules[path] = bytecode.facts(content) if path.endswith(b".pyc") else python.facts(content)
        return self._modules[path]

    def elf(self, path: bytes) -> ElfFacts | Unreadable | None:
        found = self._tree.resolve(path)
        if found is None:
            return None
        if found not in self._elves:
            content = self._contents.get(found, b"")
            scanned: ElfFacts | Unreadable | None = None
            if content.startswith(b"\x7fELF"):
                scanner = elf.Scanner(content[:65536], len(content))
                scanner.feed(memoryview(content))
                scanned = scanner.finish()
            if scanned is None:
                return None
            self._elves[found] = scanned
        return self._elves[found]

    def shell(self, path: bytes) -> ShellFacts | Unreadable:
        content = self._read(path)
        return Unreadable("gone") if content is None else shell.facts(content)

    def text(self, path: bytes) -> bytes | None:
        return self._read(path)

    def runs(self, path: bytes) -> Literal["source", "bytecode"]:
        return "source"


def encode(path: str | bytes) -> bytes:
    return path.encode() if isinstance(path, str) else path


def make_tree(
    files: Mapping[str, bytes | str], links: Mapping[str, str] | None = None
) -> tuple[Tree, dict[bytes, bytes]]:
    """Make a tree: contents by path; names below a ``bin`` and those ending in ``.sh`` are executable."""
    entries: dict[bytes, FileEntry] = {}
    contents: dict[bytes, bytes] = {}

    def parents(path: bytes) -> None:
        parent = path.rpartition(b"/")[0]
        if parent and parent not in entries:
            entries[parent] = FileEntry(parent, "dir", 0o755, 0, 0, 0, 0)
            parents(parent)

    for name, content in files.items():
        path = encode(name)
        parents(path)
        if name.endswith("/"):
            path = path.rstrip(b"/")
            entries[path] = FileEntry(path, "dir", 0o755, 0, 0, 0, 0)
            parents(path)
            continue
        data = content.encode() if isinstance(content, str) else content
        contents[path] = data
        mode = 0o755 if b"bin/" in path or path.endswith(b".sh") or b".so" in path else 0o644
        entries[path] = FileEntry(path, "file", mode, 0, 0, 0, len(data), hashlib.sha256(data).digest())
    for name, target in (links or {}).items():
        path = encode(name)
        parents(path)
        entries[path] = FileEntry(path, "symlink", 0o777, 0, 0, 0, 0, None, encode(target))
    return Tree(entries), contents


def make_attribution(
    tree: Tree,
    distributions: Iterable[Distribution] = (),
    environments: Iterable[Environment] | None = None,
    owned: Mapping[str, Iterable[bytes]] | None = None,
) -> Attribution:
    """Give each file an owner: the distribution named in ``owned`` by directory, the standard library, or nobody."""
    owners = [Owner("unowned", "unowned:/", None, b""), Owner("stdlib", "python3.12", "3.12", STDLIB)]
    prefixes: list[tuple[bytes, int]] = []
    for name, directories in (owned or {}).items():
        owners.append(Owner("wheel", name, "1", SITE))
        prefixes += [(directory, len(owners) - 1) for directory in directories]
    claims: dict[bytes, tuple[Claim, ...]] = {}
    for path, entry in tree.entries.items():
        if entry.type == "dir":
            continue
        owner = next((number for prefix, number in prefixes if path.startswith(prefix)), None)
        if owner is None:
            owner = 1 if path.startswith(STDLIB + b"/") and not path.startswith(SITE) else 0
        claims[path] = (Claim(owner, "record", path),)
    if environments is None:
        environments = [Environment(b"usr", b"usr", PYTHON, "3.12", STDLIB, (SITE,))]
    return Attribution(tuple(owners), claims, tuple(distributions), tuple(environments))


BASE: dict[str, bytes | str] = {
    "usr/bin/python3.12": "ELF",
    "usr/lib/python3.12/os.py": "import stat\n",
    "usr/lib/python3.12/stat.py": "",
    "usr/lib/python3.12/site.py": "import os\n",
    "usr/lib/python3.12/runpy.py": "",
    "usr/lib/python3.12/importlib/__init__.py": "",
    "usr/lib/python3.12/lib-dynload/": "",
}
INTERPRETER = ElfFacts(62, 64, python=True)


class World:
    """One small image and its trace."""

    def __init__(
        self,
        files: Mapping[str, bytes | str],
        *,
        argv: Iterable[str] = ("python3.12", "-m", "app"),
        env: Iterable[str] = (),
        cwd: str = "/srv",
        profile: Profile | None = None,
        links: Mapping[str, str] | None = None,
        elves: Mapping[str, ElfFacts | Unreadable] | None = None,
        owned: Mapping[str, Iterable[bytes]] | None = None,
        distributions: Iterable[Distribution] = (),
        environments: Iterable[Environment] | None = None,
        entry: str | None = None,
        config: bool = True,
    ) -> None:
        everything = {**BASE, **files}
        self.tree, contents = make_tree(everything, links)
        known: dict[bytes, ElfFacts | Unreadable] = {PYTHON: INTERPRETER}
        known.update({encode(path): facts for path, facts in (elves or {}).items()})
        self.facts = Facts(self.tree, contents, known)
        self.attribution = make_attribution(self.tree, distributions, environments, owned)
        image = ImageConfig(env=tuple(env), cmd=tuple(argv), working_dir=cwd) if config else None
        chosen = profile or load_profiles()[-1]
        self._question = image, chosen, entry
        self.trace: Trace = trace(self.tree, self.attribution, self.facts, image, chosen, entry, "a")
        kept = freeze(self.trace, "a")
        assert kept is not None
        thawed = thaw(kept, self.tree, self.attribution, self.facts, chosen, "b", lambda: self.trace)
        assert thawed is not None
        self.thawed: Trace = thawed

    def evidence(self, path: str, role: str | None = None) -> Evidence:
        """What a role (the first where none is named) says of a path; what was kept of the trace says the same."""
        name = role or next(iter(self.trace.roles))
        found = self.trace.roles[name].evidence(encode(path))
        assert self.thawed.roles[name].evidence(encode(path)) == found
        return found

    def look_up(self, name: str, *kinds: LookupKind, loader: str | None = None) -> tuple[LookupAnswer, ...]:
        """What the search says of one name."""
        image, profile, entry = self._question
        tracer = Tracer(self.tree, self.attribution, self.facts, image, profile, entry, "a")
        return look_up(tracer, name, kinds or kinds_of(name), loader)

    def level(self, path: str, role: str | None = None) -> str:
        """The level of a path in a role."""
        return self.evidence(path, role).level

    def absent(self, path: str, role: str | None = None) -> str:
        """The level that a file would have at a path."""
        name = role or next(iter(self.trace.roles))
        like = FileEntry(encode(path), "file", 0o644, 0, 0, 0, 1, b"x" * 32)
        found = self.trace.roles[name].absent(encode(path), like)
        assert self.thawed.roles[name].absent(encode(path), like) == found
        return found.level

    def chain(self, path: str, role: str | None = None) -> list[tuple[str | None, int | None, str | None, str]]:
        """The chain of a path, without the paths."""
        return [(hop.module, hop.line, hop.function, hop.edge) for hop in self.evidence(path, role).chain]


def site(files: Mapping[str, bytes | str]) -> dict[str, bytes | str]:
    """Put files into site-packages."""
    return {f"{SITE.decode()}/{name}": content for name, content in files.items()}


def role_profile(*roots: str, **more: object) -> Profile:
    """A profile of one role with these roots, a child of nobody."""
    group = tuple(RootGroup((root,), "a root") for root in roots)
    return Profile("test", "app", (ProfileRole("main", True, "runs", group),), **more)  # type: ignore[arg-type]  # forwarded


def from_directory(root: Path, keep: Iterable[Path]) -> tuple[Tree, dict[bytes, bytes]]:
    """Make a tree of real directories under ``root``, with what links in them lead to; content of files below 30 MB."""
    entries: dict[bytes, FileEntry] = {}
    contents: dict[bytes, bytes] = {}

    def add(path: Path) -> None:
        if not path.is_relative_to(root) or path == root:
            return
        relative = os.fsencode(path.relative_to(root))
        if relative in entries:
            return
        add(path.parent)
        info = path.lstat()
        if stat.S_ISDIR(info.st_mode):
            entries[relative] = FileEntry(relative, "dir", info.st_mode & 0o7777, 0, 0, 0, 0)
        elif stat.S_ISLNK(info.st_mode):
            entries[relative] = FileEntry(relative, "symlink", 0o777, 0, 0, 0, 0, None, os.fsencode(path.readlink()))
            if path.exists():
                add(path.resolve())
        elif stat.S_ISREG(info.st_mode):
            if info.st_size < 30_000_000:
                contents[relative] = path.read_bytes()
            digest = hashlib.sha256(relative).digest()
            mode = info.st_mode & 0o7777
            entries[relative] = FileEntry(relative, "file", mode, 0, 0, info.st_mtime_ns, info.st_size, digest)

    for directory in keep:
        add(directory)
        for current, names, files in os.walk(directory):
            for name in (*names, *files):
                add(Path(current) / name)
    return Tree(entries), contents
