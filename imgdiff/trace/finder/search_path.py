"""Where an interpreter looks for modules, and what it runs before the first line of a program.

sys.path as ``site`` builds it: the program's directory, PYTHONPATH, the standard library, the site directories, and
what their ``.pth`` lines add (Python documentation, "sys.path initialization" and "site").
"""

from __future__ import annotations

import ast
import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from imgdiff.model import Blindspot, Environment, Hop, Side, Tree

# Any ``.path`` but os.path can be that of sys under another name.
_ADDS_PATH = re.compile(
    r"sys\s*\.\s*path\b|(?<!\bos)\s*\.\s*path\b|addsitedir|site_packages|from\s+sys\s+import|__import__\s*\(\s*.sys"
    r"|getattr\s*\(\s*sys|vars\s*\(\s*sys"
)
_BEHIND = re.compile(r"sys\s*\.\s*path\s*(?:\.\s*(?:append|extend)\s*\(|\+=)|site\s*\.\s*addsitedir\s*\(")  # at the end
_ASKED_FIRST = re.compile(r"sys\s*\.\s*meta_path\s*\.\s*insert\s*\(\s*0\b")
_INSIDE = "modules can be imported from this archive, which is not looked into"
_MAX_PTH = 1_000_000  # bytes; a longer one is no list of directories


class Startup(msgspec.Struct, frozen=True):
    """A module that is imported before the program: by a ``.pth`` line or by ``site``. ``hop`` is who asks."""

    module: str
    hop: Hop


Source = Literal[
    "script directory", "working directory", "PYTHONPATH", "standard library", "site-packages", ".pth line"
]  # fmt: skip


class Searched(msgspec.Struct, frozen=True):
    """One place of a search path. ``written`` is the directory as it is put there (absolute, without a leading slash),
    ``found`` its canonical path, None where no directory is there. ``by`` and ``line`` say which file puts it there.
    ``archive`` is the canonical path of a file that it is, or lies in: modules can be imported from that."""

    written: bytes
    found: bytes | None
    source: Source
    by: bytes | None = None
    line: int | None = None
    archive: bytes | None = None


class SearchPath(msgspec.Struct, frozen=True):
    """Where one interpreter looks, in order. ``directories`` are canonical paths; ``sites`` those of them that hold
    distributions. ``mapping`` is what editable finders know: module name -> canonical path of its file or package;
    ``finders`` has who knows it, and whether it is asked before the directories (else behind them). ``files`` are the
    files that decide all this (``.pth``, ``pyvenv.cfg``). ``places`` are the directories with who puts them there."""

    environment: Environment
    directories: tuple[bytes, ...]
    sites: tuple[bytes, ...]
    startup: tuple[Startup, ...]
    mapping: Mapping[str, bytes]
    files: tuple[bytes, ...]
    blindspots: tuple[Blindspot, ...]
    nowhere: tuple[bytes, ...] = ()  # directories that are asked and do not exist
    places: tuple[Searched, ...] = ()
    finders: Mapping[str, tuple[bytes, bool]] = {}


class _Builder:
    def __init__(
        self, tree: Tree, environment: Environment, text: Callable[[bytes], bytes | None], side: Side | None
    ) -> None:
        self.tree, self.environment, self.text, self.side = tree, environment, text, side
        self.version = tuple(int(part) for part in environment.version.split(".") if part.isdigit())
        self.directories: list[bytes] = []
        self.startup: list[Startup] = []
        self.mapping: dict[str, bytes] = {}
        self.files: list[bytes] = []
        self.blindspots: list[Blindspot] = []
        self.nowhere: list[bytes] = []
        self.places: list[Searched] = []
        self.finders: dict[str, tuple[bytes, bool]] = {}
        self.sites: set[bytes] = set()  # directories whose .pth files were read
        self.fronted: list[tuple[bytes, bytes, int]] = []  # directories that a line of a .pth can put first

    def blind(self, what: str, reason: str, path: bytes) -> None:
        self.blindspots.append(Blindspot(what, reason, path, self.side))

    def add(
        self,
        directory: bytes,
        base: bytes = b"",
        source: Source = "site-packages",
        by: bytes | None = None,
        line: int | None = None,
    ) -> bytes | None:
        """Append a directory if it exists; a file there is an archive that Python would import from."""
        full = directory if directory.startswith(b"/") or not base else base + b"/" + directory
        written = b"/".join(part for part in full.split(b"/") if part not in (b"", b"."))
        found = self.tree.resolve(directory, base)
        if found is None:
            above = self.archive_above(directory, base)
            if above is not None:  # a directory inside of an archive
                self.blind("archive on sys.path", _INSIDE, above)
            self.nowhere.append(written)
            self.places.append(Searched(written, None, source, by, line, above))
            return None
        entry = self.tree.get(found)
        if entry is not None and entry.type == "file":
            self.blind("archive on sys.path", _INSIDE, found)
            self.places.append(Searched(written, None, source, by, line, found))
            return None
        if entry is not None and entry.type != "dir":
            return None
        if found not in self.directories:
            self.directories.append(found)
            self.places.append(Searched(written, found, source, by, line))
        return found

    def archive_above(self, directory: bytes, base: bytes) -> bytes | None:
        """Return the file that a path leads through, if it does."""
        above = directory.rstrip(b"/").rpartition(b"/")[0]
        while above:
            found = self.tree.resolve(above, base)
            entry = None if found is None else self.tree.get(found)
            if entry is not None:
                return found if entry.type == "file" else None
            above = above.rpartition(b"/")[0]
        return None

    def site(self, directory: bytes) -> None:
        found = self.add(directory)
        if found is not None:
            self.lines_of(found)

    def lines_of(self, found: bytes) -> None:
        """Read the ``.pth`` files of a directory, once."""
        if found in self.sites:
            return
        self.sites.add(found)
        for name in self.tree.children(found):
            # Hidden ones are left out since 3.13, and in late releases of the minors before: there they can count.
            if name.endswith(b".pth") and not (name.startswith(b".") and self.version >= (3, 13)):
                self.pth(found, found + b"/" + name)

    def pth(self, site: bytes, path: bytes) -> None:
        if self.tree.lookup(path) is None:
            return
        self.files.append(path)
        content = self.text(path)
        if content is not None and b"\0" in content.partition(b"\n")[0]:
            return  # site gives up at a line that is no text: this is no list but a resource fork, or the like
        if content is None or len(content) > _MAX_PTH:
            self.blind(".pth file", "its lines decide what is imported, and its content was not kept", path)
            return
        text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
        for number, line in enumerate(text.splitlines(), 1):
            stripped = line.rstrip()  # site takes blanks before a directory as a part of it, and those before a "#"
            if not stripped or stripped.startswith("#"):
                continue
            if line.startswith(("import ", "import\t")):
                self.code(site, path, number, line)
            else:
                self.add(stripped.encode("utf-8", "surrogateescape"), site, ".pth line", path, number)

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
            texts = [text.encode("utf-8", "surrogateescape") for text in _directories(module) if text.strip("/.")]
            added = [self.add(text, site, ".pth line", path, number) for text in texts]
            if "addsitedir" in line:
                for found in added:
                    if found is not None:
                        self.lines_of(found)
            if not any(found is not None for found in added) or _computes(module):
                self.blind(".pth line", f"line {number} changes sys.path by code that does not fold", path)
            if _ADDS_PATH.search(_BEHIND.sub("", line)):
                self.fronted += [(each, path, number) for each in added if each is not None]

    def look_over(self) -> None:
        """Say where a directory that a line can put first hides, or not, what other directories have, too."""
        for directory, path, number in dict.fromkeys(self.fronted):
            own = self._modules(directory)
            others = [each for each in self.directories if each != directory]
            twice = sorted(own & frozenset().union(*(self._modules(each) for each in others)))
            if twice:
                shown = ", ".join(name.decode("utf-8", "backslashreplace") for name in twice[:3])
                more = f" and {len(twice) - 3} more" if len(twice) > 3 else ""
                where = "/" + directory.decode("utf-8", "backslashreplace")
                reason = f"line {number} can put {where} first, which has its own copies of {shown}{more}"
                self.blind(".pth line", reason, path)

    def _modules(self, directory: bytes) -> frozenset[bytes]:
        """The names that can be imported from a directory, roughly: too many rather than too few."""
        found = set()
        for name in self.tree.children(directory):
            stem, dot, suffix = name.partition(b".")
            if not dot or suffix in (b"py", b"pyc") or suffix.endswith(b"so"):
                found.add(stem)
        return frozenset(found - {b"__pycache__", b"bin"})

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
        if not _has_table(module):
            self.blind("editable finder", f"{name} decides where modules come from by code that holds no table", pth)
        first = _ASKED_FIRST.search(content.decode("utf-8", "replace") if content is not None else "") is not None
        for key, value in _tables(module):
            target = value.encode("utf-8", "surrogateescape")
            found = self.tree.resolve(target, site)
            if found is None and "." not in value.rpartition("/")[2]:
                found = self.tree.resolve(target + b".py", site)
            if found is not None and (value.startswith("/") or value.endswith((".py", ".so"))):
                self.mapping.setdefault(key, found)
                self.finders.setdefault(key, (source, first))


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


def _computes(module: ast.Module) -> bool:
    """Tell whether a line makes a text by other means than calls over constants."""
    return any(
        isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and _has_text(node))
        for node in ast.walk(module)
    )


def _has_text(node: ast.BinOp) -> bool:
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in (node.left, node.right))


def _has_table(module: ast.Module) -> bool:
    """Tell whether a finder's module holds its table as text: a dict of the module, or in a call (setuptools,
    scikit-build-core), or calls of ``map_module`` (editables). meson-python reads its table when it runs."""
    for statement in module.body:
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Dict):
            return True
        if isinstance(value, ast.Call):
            arguments = [*value.args, *(keyword.value for keyword in value.keywords)]
            if any(isinstance(each, ast.Dict) for each in arguments) or _maps(value):
                return True
    return False


def _maps(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "map_module" and len(call.args) == 2


def _tables(module: ast.Module) -> Iterator[tuple[str, str]]:
    """The names and paths that a finder's module holds; relative ones start at the finder's directory."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _maps(node):
            name, path = node.args
            if isinstance(name, ast.Constant) and isinstance(path, ast.Constant):
                yield str(name.value), str(path.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                    continue
                values = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                for each in values:
                    if isinstance(each, ast.Constant) and isinstance(each.value, str) and "/" in each.value:
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
    cwd: bytes | None = None,
) -> SearchPath:
    """Return where this interpreter looks.

    ``first`` is the directory of the script, or the working directory for ``-m`` and ``-c``; None where nothing is
    put first. ``cwd`` is the working directory (``first`` where it is not given): relative and empty parts of
    PYTHONPATH start there. ``flags`` are the interpreter's single-letter options (``-I`` and ``-E`` ignore PYTHONPATH,
    ``-I`` and ``-P`` put nothing first, ``-S`` leaves ``site`` out). ``extra_sites`` are further site directories (a
    base's).
    """
    builder = _Builder(tree, environment, text, side)
    working = cwd if cwd is not None else first or b""
    isolated = "I" in flags
    ignore_env = isolated or "E" in flags
    safe = (
        isolated or "P" in flags or (builder.version >= (3, 11) and not ignore_env and bool(env.get("PYTHONSAFEPATH")))
    )
    if first is not None and not safe:
        builder.add(first, source="working directory" if first == working else "script directory")
    if not ignore_env and env.get("PYTHONPATH"):
        for part in env["PYTHONPATH"].split(":"):  # an empty part is the working directory (Modules/getpath.py)
            builder.add(part.encode("utf-8", "surrogateescape") or b".", working, "PYTHONPATH")
    if environment.stdlib is not None:
        if not ignore_env and env.get("PYTHONPLATLIBDIR", "lib") not in ("", "lib"):
            reason = "PYTHONPLATLIBDIR moves the standard library, and where to is not followed"
            builder.blind("standard library", reason, environment.stdlib)
        archive = b"python" + environment.version.replace(".", "").encode() + b".zip"
        builder.add(environment.stdlib.rpartition(b"/")[0] + b"/" + archive, source="standard library")
        builder.add(environment.stdlib, source="standard library")
        builder.add(environment.stdlib + b"/lib-dynload", source="standard library")
    sites = (*_with_user_sites(environment, env, flags, ignore_env), *extra_sites)
    if "S" not in flags:
        for site in sites:
            builder.site(site)
    builder.look_over()
    above = environment.prefix + b"/" if environment.prefix else b""
    configs = (above + b"bin/pyvenv.cfg", above + b"pyvenv.cfg")
    builder.files += [path for path in configs if tree.lookup(path) is not None]
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
        tuple(builder.places),
        builder.finders,
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
    builder.look_over()
    return SearchPath(
        environment,
        tuple(builder.directories),
        (directory,),
        tuple(builder.startup),
        builder.mapping,
        tuple(builder.files),
        tuple(builder.blindspots),
    )
