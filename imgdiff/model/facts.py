"""What one file refers to, from its bytes alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol

import msgspec

# A folded string is a Pattern: literal text in which these characters stand for what is known only at run time.
HOLE = "\x00"  # any text
HOLE_NAME = "\x01"  # the module's own __name__
HOLE_PACKAGE = "\x02"  # the module's own __package__ (or __spec__.parent)
HOLE_FILE = "\x03"  # the module's own __file__, absolute
HOLE_DIR = "\x04"  # the directory of the module's own __file__, absolute
Pattern = str


class Import(msgspec.Struct, frozen=True, array_like=True):
    """One import statement's target. ``import a.b as c`` -> module "a.b", no names. ``from ..a import x, y`` ->
    module "a", names ("x", "y"), level 2. ``from . import *`` -> module "", names ("*",), level 1.

    ``conditional``: inside a try, with, loop or a branch whose test does not fold to a constant, or behind a return,
    raise or assert outside of an except block; such an edge may not run. The else of a try is none, nor is that of a
    loop without break. Imports in code that a string holds (``exec``, ``-c``) are conditional.
    """

    module: str
    names: tuple[str, ...]
    level: int
    line: int
    conditional: bool


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call that can load code or a library, run a program, or ask for metadata, by the last part or two of the
    callee's dotted name (``import_module``, ``importlib.import_module`` -> callee "import_module"), import renames and
    single aliases resolved. ``imgdiff/kinds/_callees.py`` is the table; two parts are "path.append", "path.insert",
    "path.extend" (of sys.path) and "cpp_extension.load". Assigning to sys.path, to a part of it, or adding in place is
    a call "path.assign" of what is assigned.

    ``arguments`` are the folded positional arguments, HOLE where one does not fold to text; a starred one that does
    not fold is the last, as HOLE. A method of a folded path has the path first. Keyword arguments are in ``keywords``
    as (name, pattern). The elements of a first argument (or ``args=``) that is a list or tuple are in ``sequence``
    (``subprocess.run([sys.executable, "-m", "x"])`` -> (HOLE, "-m", "x")). What reads a path is recorded only where it
    has literal text, ``getattr`` and its kin only where the name is a pattern with literal text. ``line`` is that of
    the callee's last part, or of the call's start in bytecode before 3.11.

    What folds: constants, f-strings, ``+``, ``%``, ``.format``, ``.join`` of a list, ``os.path`` and ``pathlib``
    chains, ``__name__``, ``__package__``, ``__file__``, and names that the module or function binds exactly once.
    """

    callee: str
    arguments: tuple[Pattern, ...]
    line: int
    conditional: bool = False
    keywords: tuple[tuple[str, Pattern], ...] = ()
    sequence: tuple[Pattern, ...] = ()


class Scope(msgspec.Struct, frozen=True, array_like=True):
    """What one code object does when it runs. Class bodies, lambdas and comprehensions belong to the scope that
    holds them (a class body runs with its module); functions are scopes of their own.

    ``qualname`` is "" for the module, else as Python's ``__qualname__`` ("C.method", "f.<locals>.g"); "<main>" is
    the scope of what stands in a module's ``if __name__ == "__main__":`` blocks. ``line`` is the first decorator's
    where there is one. Code that no path reaches is in no scope.

    ``names`` are the identifiers that the body loads (global, builtin and attribute names, the names of from-imports,
    constant names given to ``getattr``; not names that are local to a function), private ones as the compiler writes
    them (``_C__x``), and all names in annotations, evaluated or text. AssertionError is never one: asserts load it.

    ``strings`` are the string constants that the body loads, elements of constant tuples and dict keys included;
    docstrings, annotations that are text, format specs, names of imports and keywords, and strings without any letter
    or digit excluded. A template of ``%`` gives its literal pieces. A string longer than 1,000 characters gives its
    tokens: runs of two to 4,096 letters, digits and ``_./+:@%~-``.

    ``patterns`` are what folding makes with a hole and some telling text (f-strings, ``%``, ``.format``, ``+``,
    joins and paths), the largest only. Bytecode from 3.10 on may know one better than its source (the compiler copies
    a short end of a function for each branch). ``decorators`` are dotted names, "?" for calls and all else.

    ``numbers`` are what the body compares with, as tuples of integers from 0 to 999,999,999: an int (``x.major > 1``
    gives (1,)), a float with digits on both sides of its point (1.6 gives (1, 6)), a tuple or list of up to six ints
    (``x >= (2, 1)``), and each such element of a tuple, list or constant set behind ``in``. They are constants as the
    compiler folds them, or names that the module or function binds once to one; a number in a ``case`` counts, the
    lengths that patterns ask for and what ``is`` compares do not.

    ``reflects`` are the dotted names (as calls have them: relative imports begin with dots, HOLE_NAME is the module
    itself) of what the body looks through by names that do not fold: ``vars(x)``, ``x.__dict__``, ``dir(x)``,
    ``inspect.getmembers(x)``, ``getattr(x, name)``, ``globals()``. "?self" and "?cls" are a method's own object and
    class, "?" is anything else that does not fold. ``handed`` are the dotted names of what the module imports and its
    code hands on as it is, alone or in a list, tuple or dict: it may be a module. It is given to a function (but for
    those that look through nothing, ``_callees.LOOK_THROUGH_NOTHING``), returned, gone through, or kept in an
    attribute, an item or a table of the module. Both are sorted.
    """

    qualname: str
    line: int
    imports: tuple[Import, ...] = ()
    names: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    patterns: frozenset[Pattern] = frozenset()
    calls: tuple[Call, ...] = ()
    decorators: tuple[str, ...] = ()
    numbers: frozenset[tuple[int, ...]] = frozenset()
    reflects: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()


class ModuleFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one Python module refers to, per function, the same from its source and from its bytecode.

    ``scopes[0]`` is the module body (with class bodies), "<main>" follows where there is one, then the functions by
    line. What stands under ``if TYPE_CHECKING:`` is in none of them (its else is), unless the module binds that name
    to anything but False. ``binds`` are the names that the module body binds, ``exports`` the strings of ``__all__``
    where it is a literal. ``aliases`` are module-level ``name = other`` bindings and from-import renames as
    (name, dotted origin). ``lazy`` are the names that a module-level ``__getattr__`` or a literal table can give
    (``_import_structure``, a dict of name -> module), as (name, module as written). ``versions`` are version
    literals: (name, text, line) of assignments to __version__ and its kin. ``binds_only``: the body does nothing
    but bind names (imports, defs, constants), so that running it again changes nothing.
    """

    scopes: tuple[Scope, ...]
    binds: frozenset[str] = frozenset()
    exports: tuple[str, ...] = ()
    aliases: tuple[tuple[str, str], ...] = ()
    lazy: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str, int], ...] = ()
    binds_only: bool = False
    bases: tuple[tuple[str, str], ...] = ()


class ElfFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one ELF file refers to (gABI, "Dynamic Section").

    ``strings`` are the printable runs of its read-only data that hold a "/", a "." or a "%" (paths, file names,
    SONAMEs to dlopen), ``identifiers`` those that are Python identifiers, kept only where ``python`` (it uses the
    Python C API). ``symbols`` are undefined dynamic symbols that matter to the trace ("dlopen", "execve",
    "system", "fopen", ...). ``machine`` is e_machine, ``bits`` 32 or 64.
    """

    machine: int
    bits: int
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    interpreter: str | None = None
    build_id: str | None = None
    strings: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    python: bool = False
    nodeflib: bool = False


ComputedKind = Literal["program", "source", "directory", "code", "argument"]


class Computed(msgspec.Struct, frozen=True, array_like=True):
    """A place where a shell script starts, sources or enters what it computes: a program, a file that it sources, a
    directory, code (``eval``), or what an interpreter is given. ``pattern`` is HOLE where its text is read or printed;
    the names then come out of ``places``, if any are listed."""

    kind: ComputedKind
    pattern: Pattern
    line: int
    places: tuple[str, ...] = ()


class ShellFacts(msgspec.Struct, frozen=True, array_like=True):
    """What one shell script refers to: files it sources, programs it runs with their arguments (each command as the
    words that fold, HOLE for the rest), variables it sets (name, pattern), and all its literal words.

    ``assigned`` has, for each of ``assigns``, the line where it first stands and whether its command runs in any case
    (no branch, loop, function, nothing behind ``&&`` or ``||``); where the command can set several values, each of them
    is an assign of that line. ``sourced`` has for each of ``sources`` whether it is sourced in any case. ``computed``
    are the places where only a run tells what is started.
    """

    interpreter: tuple[str, ...] = ()
    sources: tuple[tuple[Pattern, int], ...] = ()
    commands: tuple[tuple[tuple[Pattern, ...], int], ...] = ()
    assigns: tuple[tuple[str, Pattern], ...] = ()
    strings: frozenset[str] = frozenset()
    assigned: tuple[tuple[int, bool], ...] = ()
    sourced: tuple[bool, ...] = ()
    computed: tuple[Computed, ...] = ()


class Unreadable(msgspec.Struct, frozen=True):
    """Facts that could not be had, and why (one sentence)."""

    reason: str


class FactSource(Protocol):
    """Facts of files of one image, from the cache or made now. All are pure functions of a file's bytes."""

    def prefetch(self, paths: Iterable[bytes]) -> None:
        """Make the facts of these files in parallel; asking for them afterwards is cheap."""

    def module(self, path: bytes) -> ModuleFacts | Unreadable:
        """Return the facts of a Python source (taken from its fitting ``.pyc`` where that is cheaper or the source
        can't be parsed), a sourceless ``.pyc``, or an extensionless script."""

    def elf(self, path: bytes) -> ElfFacts | Unreadable | None:
        """Return the facts of an ELF file; None if it is no ELF file."""

    def shell(self, path: bytes) -> ShellFacts | Unreadable:
        """Return the facts of a shell script."""

    def text(self, path: bytes) -> bytes | None:
        """Return the content of a small file that the indexing pass kept, links followed; None if not kept."""

    def runs(self, path: bytes) -> Literal["source", "bytecode"]:
        """Tell which of the two Python executes for this source: its ``.pyc`` where that one fits (PEP 552)."""
