"""Facts for tests: of a source, of its bytecode by this Python and by others, and what may differ between them."""

from __future__ import annotations

import importlib.util
import marshal
import re
import subprocess
import textwrap
import warnings
from pathlib import Path

from imgdiff.kinds import bytecode, python
from imgdiff.model import HOLE, HOLE_DIR, HOLE_FILE, HOLE_NAME, HOLE_PACKAGE, ModuleFacts, Scope

FIXTURES = Path(__file__).parents[2] / "fixtures" / "facts"
_HOLES = re.compile(f"[{HOLE}{HOLE_NAME}{HOLE_PACKAGE}{HOLE_FILE}{HOLE_DIR}]")
_COMPILE = """
import py_compile, sys
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        py_compile.compile(source, target, doraise=True)
    except py_compile.PyCompileError:
        pass
"""


def pyc_of(source: bytes | str) -> bytes:
    """A .pyc of this Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, "m.py", "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)


def compile_with(interpreter: str, sources: list[Path], folder: Path) -> dict[Path, bytes]:
    """The .pyc that another Python makes of sources, where it can."""
    targets = [folder / f"{index}.pyc" for index in range(len(sources))]
    pairs = [str(path) for pair in zip(sources, targets, strict=True) for path in pair]
    subprocess.run([interpreter, "-W", "ignore", "-c", _COMPILE, *pairs], check=True)
    return {source: target.read_bytes() for source, target in zip(sources, targets, strict=True) if target.exists()}


def facts_of(source: str) -> ModuleFacts:
    """The facts of a source, which must be those of its bytecode too."""
    text = textwrap.dedent(source).encode()
    found = python.facts(text)
    assert isinstance(found, ModuleFacts)
    assert bytecode.facts(pyc_of(text)) == found
    return found


def body_of(source: str) -> Scope:
    """The scope of the module's body."""
    return facts_of(source).scopes[0]


def scope_of(source: str, qualname: str) -> Scope:
    """The one scope with this name."""
    (scope,) = [scope for scope in facts_of(source).scopes if scope.qualname == qualname]
    return scope


def covers(wide: str, narrow: str) -> bool:
    """Tell whether a pattern stands for all that another one does."""
    parts = [re.escape(part) for part in _HOLES.split(wide)]
    return re.fullmatch(".*".join(parts), narrow, re.DOTALL) is not None


def disagreements(source: ModuleFacts, compiled: ModuleFacts) -> list[str]:
    """What differs between the facts of a source and of its bytecode beyond what the contract allows.

    Allowed: compilers from 3.10 on copy a short end of a function for each branch that leads to it, and a pattern in
    it is then known better than its source says; from 3.11 on they write a long f-string as ``"".join([...])``.
    """
    found = [
        f"{field}: {getattr(source, field)} {getattr(compiled, field)}"
        for field in ("binds", "exports", "aliases", "lazy", "versions", "bases")
        if getattr(source, field) != getattr(compiled, field)
    ]
    if source.binds_only and not compiled.binds_only:  # 3.14 evaluates no annotations, so its bytecode may know better
        found.append("binds_only")
    if [scope.qualname for scope in source.scopes] != [scope.qualname for scope in compiled.scopes]:
        return [*found, "scopes"]
    for one, other in zip(source.scopes, compiled.scopes, strict=True):
        found += [
            f"{one.qualname} {field}: {getattr(one, field)} {getattr(other, field)}"
            for field in ("line", "imports", "strings", "decorators", "numbers", "reflects", "handed")
            if getattr(one, field) != getattr(other, field)
        ]
        if one.names != other.names - ({"join"} - one.names):
            found.append(f"{one.qualname} names: {one.names ^ other.names}")
        found += [
            f"{one.qualname} pattern: {narrow!r}"
            for narrow in other.patterns - one.patterns
            if not any(covers(wide, narrow) for wide in one.patterns)
        ]
        if {(call.callee, call.conditional) for call in one.calls} != {
            (call.callee, call.conditional) for call in other.calls
        }:
            found.append(f"{one.qualname} calls: {one.calls} {other.calls}")
    return found
