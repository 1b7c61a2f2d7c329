"""Where an interpreter looks for modules, and what it runs before the first line of a program.

sys.path as ``site`` builds it: the program's directory, PYTHONPATH, the standard library, the site directories, and
what their ``.pth`` lines add (Python documentation, "sys.path initialization" and "site").
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from imgdiff.model import Blindspot, Environment, Hop, Side, Tree

_ADDS_PATH = re.compile(r"sys\s*\.\s*path\b|addsitedir|site_packages")
_MAX_PTH = 1_000_000  # bytes; a longer one is no list of directories


class Startup(msgspec.Struct, frozen=True):
    """A module that is imported before the program: by a ``.pth`` line or by ``site``. ``hop`` is who asks."""

    module: str
    hop: Hop


class SearchPath(msgspec.Struct, frozen=True):
    """Where one interpreter looks, in order. ``directories`` are canonical paths; ``sites`` those of them that hold
    distributions. ``mapping`` is what editable finders know: module name -> canonical path of its file or package.
    ``files`` are the files that decide all this (``.pth``, ``pyvenv.cfg``)."""

    environment: Environment
    directories: tuple[bytes, ...]
    sites: tuple[bytes, ...]
    startup: tuple[Startup, ...]
    mapping: Mapping[str, bytes]
    files: tuple[bytes, ...]
    blindspots: tuple[Blindspot, ...]
    nowhere: tuple[bytes, ...] = ()  # directories that are asked and do not exist


class _Builder:
    def __init__(
        self, tree: Tree, environment: Environment, text: Callable[[bytes], bytes | None], side: Side | None
    ) -> None:
        self.tree, self.environment, self.text, self.side = tree, environment, text, side
        self.directories: list[bytes] = []
        self.startup: list[Startup] = []
        self.mapping: dict[str, bytes] = {}
        self.files: list[bytes] = []
        self.blindspots: list[Blindspot] = []
        self.nowhere: list[bytes] = []

    def blind(self, what: str, reason: str, path: bytes) -> None:
        self.blindspots.append(Blindspot(what, reason, path, self.side))

    def add(self, directory: bytes, base: bytes = b"") -> bytes | None:
        """Append a directory if it exists; a file there is an archive that Python would import from."""
        found = self.tree.resolve(directory, base)
        if found is None:
            full = directory if directory.startswith(b"/") or not base else base + b"/" + directory
            self.nowhere.append(b"/".join(part for part in full.split(b"/") if part not in (b"", b".")))
            return None
        entry = self.tree.get(found)
        if entry is not None and entry.type == "file":
            self.blind(
                "archive on sys.path", "modules can be imported from this archive, which is not looked into", found
            )
            return None
        if entry is not None and entry.type != "dir":
            return None
        if found not in self.directories:
            self.directories.append(found)
        return found

    def site(self, directory: bytes) -> None:
        found = self.add(directory)
        if found is None:
            return
        for name in self.tree.children(found):
            if name.endswith(b".pth") and not name.startswith(b"."):
                self.pth(found, found + b"/" + name)

    def pth(self, site: bytes, path: bytes) -> None:
        if self.tree.lookup(path) is None:
            return
        self.files.append(path)
        content = self.text(path)
        if content is None or len(content) > _MAX_PTH:
            self.blind(".pth file", "its lines decide what is imported, and its content was not kept", path)
            return
        for number, line in enumerate(content.decode("utf-8", "surrogateescape").splitlines(), 1):
            stripped = line.strip()
            if not stripped or stripped.startswith("#"):
                continue
            if line.startswith(("import ", "import\t")):
                self.code(site, path, number, line)
            else:
                self.add(stripped.encode("utf-8", "surrogateescape"), site)

    def code(self, site: bytes, path: bytes, number: int, line: str) -> None:
        """A line that ``site`` executes: what it imports, and the directories that it adds."""
        module = _parse(line)
        if module is None:
            self.blind(".pth line", f"line {number} is executed at start and could not be parsed", path)
            return
        hop = Hop(None, path, number, None, "pth")
        for name in _imported(module):
            self.startup.append(Startup(name, hop))
            self.finder(site, name, path)
        if _ADDS_PATH.search(line):
            added = [self.add(text.encode(), site) for text in _directories(module) if text.strip("/.")]
            if not any(found is not None for found in added):
                self.blind(".pth line", f"line {number} changes sys.path by code that does not fold", path)

    def finder(self, site: bytes, name: str, pth: bytes) -> None:
        """The module behind an editable install: its table of names and paths."""
        source = site + b"/" + name.replace(".", "/").encode() + b".py"
        if "editable" not in name.lower():
            return
        content = self.text(source)
        module = None if content is None else _parse(content.decode("utf-8", "replace"))
        if module is None:
            self.blind("editable finder", f"{name} decides where modules come from and could not be read", pth)
            return
        for key, value in _tables(module):
            found = self.tree.resolve(value.encode("utf-8", "surrogateescape"))
            if found is None and "." not in value.rpartition("/")[2]:
                found = self.tree.resolve(value.encode("utf-8", "surrogateescape") + b".py")
            if found is not None:
                self.mapping.setdefault(key, found)


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            callee = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if callee in ("__import__", "import_module") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def _directories(module: ast.Module) -> Iterator[str]:
    """Directories relative to the site that the line could add: constants joined in one call, and each alone."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            parts: list[str] = []
            for argument in node.args:
                inner = argument.value if isinstance(argument, ast.Starred) else argument
                elements = inner.elts if isinstance(inner, ast.Tuple | ast.List) else [inner]
                parts += [
                    each.value for each in elements if isinstance(each, ast.Constant) and isinstance(each.value, str)
                ]
            if parts:
                yield "/".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _tables(module: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                    continue
                values = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                for each in values:
                    if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value.startswith("/"):
                        yield key.value, each.value


def _with_user_sites(
    environment: Environment, env: Mapping[str, str], flags: frozenset[str], ignore_env: bool
) -> tuple[bytes, ...]:
    """The site directories with the user's before the system's: below HOME where the image says which, else in every
    home, since who runs it decides. A venv's own come first."""
    if flags & {"s", "I"} or (not ignore_env and env.get("PYTHONNOUSERSITE")):
        return environment.sites
    own = 1 if environment.prefix != environment.base else 0
    if own and not environment.system_site:
        return environment.sites
    users = environment.user_sites
    base = "" if ignore_env else env.get("PYTHONUSERBASE", "")
    if base:
        users = (f"{base.strip('/')}/lib/python{environment.version}/site-packages".encode("utf-8", "surrogateescape"),)
    elif env.get("HOME"):
        home = env["HOME"].strip("/").encode("utf-8", "surrogateescape") + b"/.local/"
        users = tuple(site for site in users if site.startswith(home))
    return (*environment.sites[:own], *users, *environment.sites[own:])


def build_search_path(
    tree: Tree,
    environment: Environment,
    text: Callable[[bytes], bytes | None],
    env: Mapping[str, str],
    first: bytes | None,
    flags: frozenset[str] = frozenset(),
    side: Side | None = None,
    extra_sites: tuple[bytes, ...] = (),
) -> SearchPath:
    """Return where this interpreter looks.

    ``first`` is the directory of the script, or the working directory for ``-m`` and ``-c``; None where nothing is
    put first. ``flags`` are the interpreter's single-letter options (``-I`` and ``-E`` ignore PYTHONPATH, ``-I`` and
    ``-P`` put nothing first, ``-S`` leaves ``site`` out). ``extra_sites`` are further site directories (a base's).
    """
    builder = _Builder(tree, environment, text, side)
    isolated = "I" in flags
    ignore_env = isolated or "E" in flags
    safe = isolated or "P" in flags or (not ignore_env and bool(env.get("PYTHONSAFEPATH")))
    if first is not None and not safe:
        builder.add(first)
    if not ignore_env:
        for part in env.get("PYTHONPATH", "").split(":"):
            if part:
                builder.add(part.encode("utf-8", "surrogateescape"), first or b"")
    if environment.stdlib is not None:
        archive = b"python" + environment.version.replace(".", "").encode() + b".zip"
        builder.add(environment.stdlib.rpartition(b"/")[0] + b"/" + archive)
        builder.add(environment.stdlib)
        builder.add(environment.stdlib + b"/lib-dynload")
    sites = (*_with_user_sites(environment, env, flags, ignore_env), *extra_sites)
    if "S" not in flags:
        for site in sites:
            builder.site(site)
    config = (environment.prefix + b"/" if environment.prefix else b"") + b"pyvenv.cfg"
    if tree.lookup(config) is not None:
        builder.files.append(config)
    kept = [found for site in sites if (found := tree.resolve(site)) is not None]
    return SearchPath(
        environment,
        tuple(builder.directories),
        tuple(dict.fromkeys(kept)),
        tuple(builder.startup),
        builder.mapping,
        tuple(builder.files),
        tuple(builder.blindspots),
        tuple(builder.nowhere),
    )


def site_directory(
    tree: Tree,
    environment: Environment,
    text: Callable[[bytes], bytes | None],
    directory: bytes,
    side: Side | None = None,
) -> SearchPath:
    """Return what ``site.addsitedir`` adds at run time: the directory, and what its ``.pth`` lines say."""
    builder = _Builder(tree, environment, text, side)
    builder.site(b"/" + directory)
    return SearchPath(
        environment,
        tuple(builder.directories),
        (directory,),
        tuple(builder.startup),
        builder.mapping,
        tuple(builder.files),
        tuple(builder.blindspots),
    )
