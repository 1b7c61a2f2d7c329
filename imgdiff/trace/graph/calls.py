"""Calls that load code, a library or a program, or ask for metadata: which argument says what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from imgdiff.model import HOLE, Call, Pattern, Scope

UseKind = Literal[
    "import", "walk", "load-path", "exec", "library", "program", "metadata", "entry-points", "attribute", "sys-path"
]
MAX_TEXT = 10_000  # characters; a longer string names no file or module

_IMPORT = frozenset(
    {"import_module", "__import__", "find_spec", "find_loader", "run_module", "resolve_name", "import_string",
     "import_from_string", "import_object", "import_optional_dependency", "locate", "LazyLoader", "lazy_import",
     "importorskip", "get_loader", "import_name", "load_module", "import_by_name", "reload", "find_module",
     "import_attr", "resolve_obj_by_qualname", "spec_from_loader", "attach"}
)  # fmt: skip
_WALK = {"iter_modules": False, "walk_packages": True, "iter_importer_modules": False}
_PATH = frozenset(
    {"spec_from_file_location", "SourceFileLoader", "SourcelessFileLoader", "ExtensionFileLoader", "load_source",
     "load_dynamic", "load_compiled"}
)  # fmt: skip
_RUN_PATH = frozenset({"run_path", "execfile"})
_EXEC = frozenset({"exec"})
_LIBRARY = frozenset(
    {"CDLL", "PyDLL", "WinDLL", "OleDLL", "LoadLibrary", "dlopen", "load_library", "find_library", "load_cdll"}
)
_PROGRAM = frozenset(
    {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "system", "popen", "which",
     "execv", "execve", "execvp", "execvpe", "execl", "execle", "execlp", "execlpe", "spawnv", "spawnve", "spawnvp",
     "spawnvpe", "spawnl", "spawnle", "spawnlp", "spawnlpe", "posix_spawn", "posix_spawnp", "create_subprocess_exec",
     "create_subprocess_shell", "subprocess_exec", "subprocess_shell", "spawn", "find_executable"}
)  # fmt: skip
_METADATA = frozenset(
    {"version", "distribution", "metadata", "requires", "files", "from_name", "get_distribution", "require",
     "packages_distributions"}
)  # fmt: skip
_ATTRIBUTES = frozenset({"getattr", "attrgetter", "methodcaller", "__getattr__", "__getattribute__", "hasattr"})
_SYS_PATH = frozenset({"path.append", "path.insert", "path.extend", "path.assign", "addsitedir", "FileFinder"})
SELECT = frozenset({"entry_points", "select"})  # they give what fits all keywords
_OF_ONE = frozenset({"get_entry_map", "get_entry_info"})  # a function of the distribution and group, or a method
_ENTRY_POINTS = SELECT | _OF_ONE | {"iter_entry_points"}


_IMPORTERS = frozenset({"import_module", "__import__"})


class Use(msgspec.Struct, frozen=True):
    """A call and what it asks for. ``name`` and ``path`` are patterns (None where not given); ``argv`` a program's
    command line; ``deep``: everything below, not only what lies directly there. Of entry points ``name`` is the group,
    and ``entry`` the pattern of the one that alone is asked for."""

    kind: UseKind
    line: int
    function: str | None
    callee: str
    name: Pattern | None = None
    package: Pattern | None = None
    path: Pattern | None = None
    argv: tuple[Pattern, ...] = ()
    deep: bool = False
    entry: Pattern | None = None


def holds_importer(scope: Scope) -> bool:
    """Tell whether a scope names an import function, so that ``held_importers`` can have something to say."""
    return not (_IMPORTERS.isdisjoint(scope.names) and _IMPORTERS.isdisjoint(scope.strings))


def held_importers(scope: Scope, scopes: Iterable[Scope]) -> Iterator[Use]:
    """Yield a use of any name for each import function that a scope holds as a value (``map(import_module, names)``,
    ``getattr(importlib, "import_module")``): who calls it, and with which name, is not known.

    ``scopes`` are all of the module: where one calls what this one only imports, it is held for that call.
    """
    held = _IMPORTERS & (scope.names | scope.strings)
    if not held:
        return
    held -= {call.callee.rpartition(".")[2] for call in scope.calls}
    imported = {name for each in scope.imports for name in each.names}
    for name in sorted(held):
        elsewhere = any(call.callee.rpartition(".")[2] == name for other in scopes for call in other.calls)
        if name not in imported or not elsewhere:
            yield Use("import", scope.line, scope.qualname or None, name, HOLE)


def _added(call: Call) -> tuple[Pattern, ...]:
    """Return the directories that a call adds to the search path: a HOLE for each that does not fold."""
    keywords = dict(call.keywords)
    if call.sequence:
        return call.sequence
    if call.callee == "path.insert":
        return call.arguments[1:2] or (keywords.get("object", HOLE),)
    return call.arguments[:1] or tuple(keywords.values())[:1] or (HOLE,)


def use_of(call: Call, function: str | None) -> Use | None:
    """Return what a call asks for; None for one that concerns nobody."""
    callee = call.callee.rpartition(".")[2]
    arguments = call.arguments
    keywords = dict(call.keywords)
    first = arguments[0] if arguments else None
    second = arguments[1] if len(arguments) > 1 else None
    if call.callee in _SYS_PATH:
        return Use("sys-path", call.line, function, call.callee, argv=_added(call))
    if callee in _ATTRIBUTES:
        name = first if callee in ("attrgetter", "methodcaller") else second
        return None if name is None else Use("attribute", call.line, function, callee, name)
    if callee == "attach" and len(arguments) + len(keywords) < 2:
        return None  # not lazy_loader's, which is given what to attach, but that of a process or context
    if callee in _IMPORT:
        name = first or keywords.get("name") or keywords.get("mod_name") or HOLE
        return Use("import", call.line, function, callee, name, second or keywords.get("package"))
    if callee in _WALK:
        prefix = second or keywords.get("prefix")
        return Use("walk", call.line, function, callee, first or keywords.get("path"), prefix, deep=_WALK[callee])
    if callee in _PATH:
        path = second or keywords.get("location") or keywords.get("path") or HOLE
        return Use("load-path", call.line, function, callee, first or keywords.get("name") or HOLE, path=path)
    if callee in _RUN_PATH:
        return Use("load-path", call.line, function, callee, path=first or keywords.get("path_name") or HOLE)
    if callee in _EXEC:
        return Use("exec", call.line, function, callee, first)
    if callee in _LIBRARY:
        return Use("library", call.line, function, callee, first or keywords.get("name") or HOLE)
    if callee in _PROGRAM:
        argv = call.sequence or tuple(arguments) or (keywords.get("args", HOLE),)
        return Use("program", call.line, function, callee, argv=argv)
    if callee in _METADATA:
        return Use("metadata", call.line, function, callee, first or keywords.get("distribution_name") or HOLE)
    if callee in _ENTRY_POINTS:
        entry = keywords.get("name") if callee in SELECT else None
        group = keywords.get("group") or (HOLE if callee in _OF_ONE and second is not None else first) or HOLE
        return Use("entry-points", call.line, function, callee, group, entry=entry)
    return None
