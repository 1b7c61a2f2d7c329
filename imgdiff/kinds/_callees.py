"""The calls that matter to a trace: which may load code or a library, start a program, or ask for metadata.

A callee is known by the last part of its dotted name, after single module-level aliases and import renames are
resolved (``import subprocess as sp; sp.run`` is ``subprocess.run``). Where that last part is a common word, the part
before it decides: ``BASES`` lists the parts that are accepted, "" for a bare name, "?" for a base that does not fold.
The tables are generous on purpose: a call too many adds an edge, a call too few hides one.
"""

from __future__ import annotations

# Any base. The callee in the facts is this last part.
LOADERS = frozenset(
    {
        "import_module", "__import__", "find_spec", "find_loader", "get_loader", "find_module",
        "spec_from_file_location", "spec_from_loader", "module_from_spec", "run_module", "run_path", "execfile",
        "load_module", "load_source", "load_dynamic", "load_compiled", "exec_module", "create_module",
        "SourceFileLoader", "SourcelessFileLoader", "ExtensionFileLoader", "LazyLoader", "FileFinder",
        "iter_modules", "walk_packages", "iter_importers", "resolve_name", "extend_path", "declare_namespace",
        "import_string", "import_object", "import_name", "import_by_name", "import_optional_dependency",
        "importorskip",
        "locate", "lazy_import",
        "iter_importer_modules", "load_cdll", "import_attr", "import_from_string", "resolve_obj_by_qualname",
        "entry_points", "iter_entry_points", "load_entry_point", "get_entry_map", "get_entry_info",
        "get_distribution", "packages_distributions", "version_info_from",
        "CDLL", "PyDLL", "WinDLL", "OleDLL", "LoadLibrary", "find_library", "dlopen", "load_library", "load_inline",
        "load_library_permanently", "preload_library", "add_dll_directory",
        "addsitedir", "addpackage", "set_start_method", "get_context", "set_executable",
        "_LazyModule", "LazyModule", "attach", "attach_stub", "define_import_structure",
        "open_text", "open_binary", "read_binary", "as_file", "resource_filename", "resource_string",
        "resource_stream", "resource_listdir", "resource_exists", "resource_isdir", "get_data", "contents",
    }
)  # fmt: skip

PROGRAMS = frozenset(
    {
        "Popen", "check_call", "check_output", "getoutput", "getstatusoutput", "popen",
        "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell",
        "execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe",
        "spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe", "spawn",
        "posix_spawn", "posix_spawnp", "which", "find_executable",
    }
)  # fmt: skip

_METADATA = frozenset({"", "metadata", "importlib_metadata", "im", "ilm", "pkg_resources"})
BASES: dict[str, frozenset[str]] = {
    "exec": frozenset({"", "builtins", "six"}),
    "eval": frozenset({"", "builtins"}),
    "compile": frozenset({"", "builtins"}),
    "run": frozenset({"", "subprocess", "_subprocess", "sp"}),
    "call": frozenset({"", "subprocess", "_subprocess", "sp"}),
    "system": frozenset({"", "os", "posix", "nt"}),
    "version": _METADATA,
    "metadata": _METADATA,
    "distribution": _METADATA,
    "distributions": _METADATA,
    "requires": _METADATA,
    "require": frozenset({"pkg_resources"}),
    "files": _METADATA | {"resources", "importlib_resources"},
    "path": frozenset({"resources", "importlib_resources"}),
    "from_name": frozenset({"Distribution", "PathDistribution", "metadata"}),
    "load": frozenset({"cpp_extension"}),
    "reload": frozenset({"", "importlib", "imp"}),
}

# Recorded only where an argument (or the receiver, a folded path) holds some literal text.
PATHS = frozenset(
    {
        "open", "Path", "PosixPath", "PurePath", "read_text", "read_bytes", "glob", "iglob", "rglob", "iterdir",
        "listdir", "scandir", "walk", "load_dotenv", "find_dotenv", "is_file", "is_dir", "isfile", "isdir", "exists",
        "fopen", "chdir",
    }
)  # fmt: skip

# Recorded only where the second argument is a pattern with literal text.
ATTRIBUTES = frozenset(
    {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "methodcaller", "__getattr__", "__getattribute__"}
)

# What they are given is looked through by names that no text tells: with the bases that are accepted, as in BASES.
REFLECTORS: dict[str, frozenset[str]] = {
    "vars": frozenset({"", "builtins"}),
    "dir": frozenset({"", "builtins"}),
    "globals": frozenset({"", "builtins"}),
    "locals": frozenset({"", "builtins"}),
    "getmembers": frozenset({"", "inspect"}),
    "getmembers_static": frozenset({"", "inspect"}),
}

# Builtin functions that call nothing of what they are given by name.
LOOK_THROUGH_NOTHING = frozenset(
    {"isinstance", "issubclass", "len", "str", "repr", "print", "type", "id", "hash", "super", "cast", "TypeVar",
     "getattr", "hasattr", "setattr", "delattr", "vars", "dir", "getmembers", "bool", "int", "float", "callable",
     "range", "field", "reload"}
)  # fmt: skip

# entry_points().select(group=...): recorded only with that keyword.
SELECT = "select"

# sys.path.append(x) and its kin: the callee is "path.append".
SYS_PATH = frozenset({"append", "insert", "extend"})

INTERESTING = LOADERS | PROGRAMS | PATHS | ATTRIBUTES | SYS_PATH | frozenset(BASES) | frozenset(REFLECTORS) | {SELECT}

# Their string arguments are Python code.
CODE_EATERS = frozenset({"exec", "eval", "compile"})
# Module-level names whose use says that a module gives attributes lazily.
LAZY_MAKERS = frozenset(
    {"__getattr__", "_LazyModule", "LazyModule", "attach", "attach_stub", "lazy_import", "LazyLoader"}
)

VERSION_NAMES = frozenset(
    {"__version__", "version", "__version_tuple__", "version_tuple", "commit_id", "__commit_id__", "git_version"}
)
