"""What differs between two Python sources: nothing that runs, a version literal alone, or code."""

from __future__ import annotations

import ast
import hashlib
import io
import re
import struct
import sys
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from imgdiff.model import Delta

VERSION = 2000 + sys.version_info.minor
"""Version of the deltas of this kind (its facts have one of their own): what can be parsed depends on this Python."""
MAX_SOURCE = 4 * 1024 * 1024
"""Bytes of source that are parsed at most."""
MAX_NAMES = 50
"""Qualified names that a detail lists at most, for each list."""
MODULE = "<module>"

VERSION_NAMES = frozenset(
    {"__version__", "version", "__version_tuple__", "version_tuple", "commit_id", "__commit_id__", "git_version"}
)

SAME_AST = "The syntax trees are equal without positions, and no type comment changed: only layout and comments differ."

_COMMITS = frozenset({"commit_id", "__commit_id__", "git_version"})
_NO_VERSION = frozenset({"", "unknown", "dev", "none", "n/a"})
_HOST = f"Python {sys.version_info.major}.{sys.version_info.minor}"
_TYPE_COMMENT = re.compile(r"#\s*type\s*:")


class _ParseError(ValueError):
    """The source can't be parsed here; the sentence says why."""


def delta(a: bytes, b: bytes) -> Delta:
    """Compare two Python sources (modules or scripts).

    Noise where the syntax trees are equal without positions and no ``# type:`` comment and no interpreter line
    changed; metadata where version literals alone differ; else code, with the functions and classes that differ.
    A source that this Python can't parse is code, and the reason says so.
    """
    if _shebang(a) != _shebang(b):
        return Delta("code", "The interpreter line differs.", {"fields": ["interpreter"], "lines": _lines(a, b)})
    trees: list[ast.Module] = []
    for side, source in (("a", a), ("b", b)):
        try:
            trees.append(_parse(source))
        except _ParseError as error:
            reason = f"The source in {side} can't be compared by its syntax: {error}."
            return Delta("code", reason, {"lines": _lines(a, b)})
    scopes_a, scopes_b = (_scopes(tree) for tree in trees)
    if scopes_a == scopes_b:
        if _same_type_comments(a, b):
            return Delta("noise", SAME_AST)
        reason = "The syntax trees are equal, but a type comment changed (torch.jit reads them)."
        return Delta("code", reason, {"fields": ["type comments"], "lines": _lines(a, b)})
    literals = _version_literals(*trees)
    if literals and _same_type_comments(a, b, literals=True):
        names = ", ".join(dict.fromkeys(literal["name"] for literal in literals))
        detail: dict[str, Any] = {"versions": literals}
        plain = [literal for literal in literals if literal["name"] in {"__version__", "version"}]
        if plain:
            detail["version"] = {"a": plain[0]["a"], "b": plain[0]["b"]}
        return Delta("metadata", f"Only version literals differ: {names}.", detail)
    return _code(a, b, scopes_a, scopes_b)


def _code(a: bytes, b: bytes, scopes_a: dict[str, bytes], scopes_b: dict[str, bytes]) -> Delta:
    lists = {
        "changed": [name for name in scopes_b if name in scopes_a and scopes_a[name] != scopes_b[name]],
        "added": [name for name in scopes_b if name not in scopes_a],
        "removed": [name for name in scopes_a if name not in scopes_b],
    }
    functions: dict[str, Any] = {key: [n[:200] for n in names[:MAX_NAMES]] for key, names in lists.items() if names}
    functions |= {f"{key}_count": len(names) for key, names in lists.items() if len(names) > MAX_NAMES}
    words = [f"{len(names)} {key}" for key, names in lists.items() if names]
    first = next(name for names in lists.values() for name in names)
    reason = f"The syntax trees differ: {first[:200]}" + (
        f" and others ({', '.join(words)})." if sum(map(len, lists.values())) > 1 else "."
    )
    return Delta("code", reason, {"functions": functions, "lines": _lines(a, b)})


def _shebang(source: bytes) -> bytes:
    return source.split(b"\n", 1)[0].rstrip() if source.startswith(b"#!") else b""


def _lines(a: bytes, b: bytes) -> dict[str, int]:
    """Count the lines of b that a lacks and the other way round; a line that only moved counts in neither."""
    lines_a, lines_b = Counter(a.splitlines()), Counter(b.splitlines())
    return {"added": (lines_b - lines_a).total(), "removed": (lines_a - lines_b).total()}


def _parse(source: bytes) -> ast.Module:
    if len(source) > MAX_SOURCE:
        raise _ParseError(f"it is larger than {MAX_SOURCE} bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise _ParseError(f"{_HOST} can't parse it (syntax error{where})") from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise _ParseError(f"{_HOST} can't parse it ({type(error).__name__})") from None


_DEFINITIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef})


def _scopes(tree: ast.Module) -> dict[str, bytes]:
    """Return a digest of each function, class and the module by qualified name, without what is defined inside it.

    Two trees with equal results are equal without positions: a definition stands in its parent as its name, and
    each node is written with its type and the number of its parts.
    """
    scopes: dict[str, bytes] = {}
    count: Counter[str] = Counter()
    pending: list[tuple[str, str, ast.AST]] = [(MODULE, "", tree)]
    while pending:
        key, prefix, root = pending.pop()
        inner: list[tuple[str, str, ast.AST]] = []

        def name_of(node: ast.AST, prefix: str = prefix, inner: list[tuple[str, str, ast.AST]] = inner) -> str:
            qualname = prefix + node.name  # type: ignore[attr-defined]  # only definitions come here
            count[qualname] += 1
            name = qualname if count[qualname] == 1 else f"{qualname}#{count[qualname]}"
            below = f"{qualname}." if type(node) is ast.ClassDef else f"{qualname}.<locals>."
            inner.append((name, below, node))
            return name

        text = _write(root, name_of)
        scopes[key] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        pending += reversed(inner)
    return scopes


def _write(root: ast.AST, name_of: Callable[[ast.AST], str]) -> str:
    """Write a tree as text, the definitions in it by name; no two different trees give one text."""
    tokens: list[str] = []
    add = tokens.append
    stack: list[Any] = [root]
    pop, extend = stack.pop, stack.extend
    while stack:
        node = pop()
        kind = type(node)
        if kind is str:
            add(f"{len(node)}'{node}")
        elif kind is list:
            add(f"[{len(node)}")
            extend(node[::-1])
        elif node is None:
            add("-")
        elif kind in _DEFINITIONS and node is not root:
            name = name_of(node)
            add(f"definition {len(name)}'{name}")
        elif isinstance(node, ast.AST):
            add(kind.__name__)
            extend([getattr(node, part, None) for part in _parts(type(node))])
        else:
            add(_constant(node))
    return " ".join(tokens)


_PARTS: dict[type[ast.AST], tuple[str, ...]] = {}


def _parts(kind: type[ast.AST]) -> tuple[str, ...]:
    """Return the names of a node's parts, last first. The ``u`` of ``u""`` is no part."""
    parts = _PARTS.get(kind)
    if parts is None:
        parts = tuple(field for field in reversed(kind._fields) if (kind, field) != (ast.Constant, "kind"))
        _PARTS[kind] = parts
    return parts


def _constant(value: Any) -> str:
    """Write a constant with its type: 1, 1.0 and True are three things, -0.0 and 0.0 two."""
    if isinstance(value, bytes):
        return "b" + value.hex()
    if isinstance(value, int):
        return f"{type(value).__name__}{int(value):x}"
    if isinstance(value, float):
        return "float" + struct.pack("<d", value).hex()
    if isinstance(value, complex):
        return "complex" + struct.pack("<dd", value.real, value.imag).hex()
    return repr(value)  # Ellipsis


def _same_type_comments(a: bytes, b: bytes, *, literals: bool = False) -> bool:
    """Tell whether two sources with equal trees have the same type comments at the same places.

    Told by their tokens, since a comment that moves to another statement says another thing. With ``literals``,
    strings and numbers may differ. What can't be told is no.
    """
    if not any(b"type" in source and _TYPE_COMMENT.search(source.decode("latin-1")) for source in (a, b)):
        return True
    try:
        return _tokens(a, literals=literals) == _tokens(b, literals=literals)
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        return False


_LAYOUT = frozenset({tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})
_TEXTLESS = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
_LITERALS = frozenset({tokenize.STRING, tokenize.NUMBER})


def _tokens(source: bytes, *, literals: bool) -> list[tuple[int, str]]:
    tokens = []
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type in _LAYOUT:
            continue
        text = token.string
        if token.type == tokenize.COMMENT:
            if not _TYPE_COMMENT.match(text):
                continue
            text = text.rstrip()
        elif token.type in _TEXTLESS or (literals and token.type in _LITERALS):
            text = ""
        tokens.append((token.type, text))
    return tokens


def _version_literals(a: ast.Module, b: ast.Module) -> list[dict[str, Any]]:
    """Return the version literals that differ, if nothing else does; else nothing.

    A literal is a str or tuple constant, of one kind on both sides, that a statement of the module's body assigns to
    nothing but names of :data:`VERSION_NAMES`.
    """
    if len(a.body) != len(b.body):
        return []
    found: list[dict[str, Any]] = []
    for x, y in zip(a.body, b.body, strict=True):
        if _scopes(ast.Module([x], [])) == _scopes(ast.Module([y], [])):
            continue
        names_x, value_x = _assignment(x)
        names_y, value_y = _assignment(y)
        text_x, text_y = _literal(value_x), _literal(value_y)
        if not _COMMITS.issuperset(names_x) and not (_is_version(text_x) and _is_version(text_y)):
            return []
        same_kind = type(value_x) is type(value_y) and type(x) is type(y) and names_x == names_y
        if not same_kind or not names_x or text_x is None or text_y is None:
            return []
        if isinstance(x, ast.AnnAssign) and isinstance(y, ast.AnnAssign) and _differ(x.annotation, y.annotation):
            return []
        lines = {"line": {"a": x.lineno, "b": y.lineno}}
        found += [{"name": name, "a": text_x, "b": text_y, **lines} for name in names_x]
    return found


def _is_version(text: str | None) -> bool:
    """Tell whether a text can be a version, and is no word that something decides by (``version = "fast"``)."""
    return text is not None and (any(char.isdigit() for char in text) or text.lower() in _NO_VERSION)


def _differ(a: ast.expr, b: ast.expr) -> bool:
    trees = [ast.Module([ast.Expr(value)], []) for value in (a, b)]
    return _scopes(trees[0]) != _scopes(trees[1])


def _assignment(node: ast.stmt) -> tuple[tuple[str, ...], ast.expr | None]:
    """Return the names that a statement assigns to and its value, if all of them are version names."""
    if isinstance(node, ast.Assign):
        targets: list[ast.expr] = node.targets
    elif isinstance(node, ast.AnnAssign) and node.simple:
        targets = [node.target]
    else:
        return (), None
    names = tuple(target.id for target in targets if isinstance(target, ast.Name) and target.id in VERSION_NAMES)
    return (names, node.value) if len(names) == len(targets) else ((), None)


def _literal(value: ast.expr | None) -> str | None:
    """Return a str or tuple constant as text of at most 100 characters; None if it is neither."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value[:100]
    if isinstance(value, ast.Tuple):
        parts = [part.value for part in value.elts if isinstance(part, ast.Constant)]
        # an integer of more digits than repr() converts is no version
        plain = [part for part in parts if isinstance(part, str) or (type(part) is int and part < 10**18)]
        if len(plain) == len(value.elts):
            return repr(tuple(plain))[:100]
    return None
