"""Sources in a grammar that is newer than this Python's: the facts that a Python which knows it would give."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
import textwrap
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds import bytecode, python
from imgdiff.kinds.python import newer
from imgdiff.kinds.python._nodes import TypeParameter
from imgdiff.model import ModuleFacts, Scope, Unreadable
from tests.kinds.bytecode_inputs import interpreters
from tests.kinds.facts_inputs import FIXTURES, compile_with, disagreements

STDLIB = Path(sysconfig.get_path("stdlib"))
PARAMETERS = {"TypeVar", "TypeVarTuple", "ParamSpec", "TypeParameter"}


def shape(tree: ast.AST) -> list[object]:
    """A tree as a list, with the lines of statements and expressions; lines in f-strings differ between Pythons, and
    3.12.0 and 3.12.1 end a format specifier with an empty constant. A type parameter of any kind is one of ours."""
    found: list[object] = []
    stack: list[tuple[object, bool]] = [(tree, False)]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, ast.AST):
            inside = inside or isinstance(node, ast.JoinedStr)
            parameter = type(node).__name__ in PARAMETERS
            found.append("TypeParameter" if parameter else type(node).__name__)
            if isinstance(node, (ast.stmt, ast.expr)) and not inside:
                found.append(node.lineno)
            stack += [
                (getattr(node, field, None), inside)
                for field in (TypeParameter._fields if parameter else node._fields)
                if (type(node), field) != (ast.Constant, "kind")
            ]
        elif isinstance(node, list):
            items = [item for item in node if not (inside and isinstance(item, ast.Constant) and item.value == "")]
            found.append(len(items))
            stack += [(item, inside) for item in items]
        else:
            found.append((type(node).__name__, ascii(node)))
    return found


def host(source: bytes) -> list[object] | None:
    """The shape that this Python's own parser gives; None where it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return shape(ast.parse(source))
        except (SyntaxError, ValueError):
            return None


def ours(source: bytes) -> list[object] | None:
    """The shape that we give, f-strings rewritten in any case; None where we refuse."""
    tree = newer.parse(source, every=True)
    return None if isinstance(tree, Unreadable) else shape(tree)


def facts_of(source: str) -> ModuleFacts:
    """The facts of a source that must be readable."""
    found = python.facts(textwrap.dedent(source).encode())
    assert isinstance(found, ModuleFacts), found
    return found


def scope_of(source: str, qualname: str) -> Scope:
    """The one scope with this name."""
    (scope,) = [scope for scope in facts_of(source).scopes if scope.qualname == qualname]
    return scope


# What this Python parses is read the same ---------------------------------------------------------------------------


def test_the_standard_library_gives_the_same_trees() -> None:
    every = sorted(path for path in STDLIB.rglob("*.py") if "site-packages" not in path.parts)
    compared = 0
    for path in every[:: max(1, len(every) // 110)]:
        source = path.read_bytes()
        expected = host(source)
        if expected is not None and len(source) < 100_000:
            assert ours(source) == expected, path
            compared += 1
    assert compared > 80


def test_the_standard_library_gives_the_same_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [path.read_bytes() for path in sorted(STDLIB.glob("*.py"))[::6]]
    expected = [python.facts(source) for source in sources]
    parse = newer.parse
    monkeypatch.setattr(sys.modules["imgdiff.kinds.python.facts"], "parse", lambda source: None)
    monkeypatch.setattr(newer, "parse", lambda source: parse(source, every=True))
    assert [python.facts(source) for source in sources] == expected
    assert all(isinstance(facts, ModuleFacts) for facts in expected)


@pytest.mark.parametrize(
    "source",
    [
        "f''", "f'a' 'b'", "'a' f'b{c}' \"d\" f'{e}'", "f'{{{x}}}'", "f'{x!r:>{w}.{p}}'", "f'{x:}'", "f'{x=}'",
        "f'{ x = !s:^9}'", "f'{x!=y}'", "f'{x==y}'", "f'{(x:=1)}'", "f'{x:=+9}'", "f'{x[a:b]}'", "f'{ {1: 2}[1] }'",
        "f'{*a, b}'", "f'{a, b}'", "f'{(lambda x: 1)}'", "f'\\N{EN DASH}{x}\\x41\\u0041\\101'", "rf'\\d{x}\\{y}'",
        "Rf'\\\"{x}'", "f'\\\n{x}'", "f'''a\n'{x\n}\"b'''", "f\"\"\"'{x}\\\"\"\"\"", "(f'a' # c\n   'b'\n)", "u'x' f'{y}'",
        "x = f'{a}' \\\n  'b'; y = 1", "def f():\n  f'{doc}'", "f'{x}'.join(y)[0]", "f'{f\"{x}\"}'", "f'\\{x}'",
        "class A:\n  async def f(self): pass", "try: pass\nexcept* (A, B) as e: pass",
        "try: pass\nexcept A: a, b\nexcept lambda: x: pass\nexcept: c, d", "type = 1\ntype(x)\ntype[0]\ntype in x",
        "lazy = 1\nlazy.x\nlazy, b = c", "[*a, b]\n{**a}\nf(*a)\nf(**a)", "{**a, 'b': [c for c in d]}", "[(*a,) for a in b]",
        "x = 1if y else 2\n0x1for x", "if x:\n\ty\n\x0c\nz", "x = 'a\\\nb'; z", "'''a\n'''; b'\\x00'; rb'\\\\'", "\\\nx = 1",
        "match x:\n  case {'a': [*_], **r}: pass\n  case f(y) | -1: type = 3", "x: type = 3\ny = lambda: type\n",
    ],
)  # fmt: skip
def test_old_words_are_read_as_they_were(source: str) -> None:
    for text in (source, source + "\nafter = 1\n", source.replace("\n", "\r\n")):
        expected = host(text.encode())
        assert expected is not None
        assert ours(text.encode()) == expected


PIECES = st.sampled_from(
    [
        "a", "{{", "}}", "\\n", "\\'", '\\"', "\\\\", "\\\n", "\n", "'", '"', "\\{", "#", "\xe9", "\\N{EN DASH}", ":", "!",
        "{x}", "{x!r}", "{x!s:>5}", "{x:{y}}", "{x=}", "{ x = !a}", "{x!=y}", "{x,}", "{x[a:b]}", "{x:%Y}", "{(a:=b)}",
        "{", "}", "{f'{x}'}", '{f"{x}"}', "{x\n}", "{'a'}", '{"b"}', "{x:'}", "{}", "{x)}", "{x # c\n}", "{{1: 2}}",
    ]
)  # fmt: skip
STRINGS = st.builds(
    lambda prefix, quote, pieces: f"{prefix}{quote}{''.join(pieces)}{quote}",
    st.sampled_from(["f", "F", "rf", "fR", ""]),
    st.sampled_from(["'", '"', "'''", '"""']),
    st.lists(PIECES, max_size=5),
)


@given(st.lists(STRINGS, min_size=1, max_size=3), st.sampled_from(["x = {}\n", "g({})\n", "if x:\n    {}.y\n"]))
@settings(max_examples=400, deadline=None)
def test_strings_that_this_python_parses_are_read_the_same(strings: list[str], frame: str) -> None:
    source = (frame.replace("{}", " ".join(strings)) + "after = 1\n").encode()
    expected, found = host(source), ours(source)
    if expected is not None:
        assert found == expected


WORDS = st.sampled_from(
    [
        "type", "X", "[", "]", "=", ":", ",", "*", "**", "def", "class", "(", ")", "except", "try", "\n", "  ", "lazy",
        "import", "from", "for", "in", "{", "}", "f'{", "}'", "t'{x}'", "'a'", "#", "\\\n", ";", "lambda", "async",
        "as", "if", "pass", "1", "\x00", "\ufb01", '"""', "match", "_format0_0(",
    ]
)  # fmt: skip


@given(st.lists(WORDS, max_size=25))
@settings(max_examples=500, deadline=None)
def test_any_words_give_a_tree_or_a_reason(words: list[str]) -> None:
    for joined in (" ".join(words), "".join(words)):
        source = joined.encode()
        found = newer.parse(source, every=True)
        if isinstance(found, Unreadable):
            assert found.reason.endswith(".")
            assert host(source) is None
        elif (expected := host(source)) is not None:
            assert shape(found) == expected


# Newer words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "older"),
    [
        # PEP 701
        ("x = import_module(f'a.{b['c']}.d')", "x = import_module(f'a.{b[\"c\"]}.d')"),
        ("f'{a\n+ b # why\n}'\nimport c", "f'''{a\n+ b\n}'''\nimport c"),
        ("f'{f'{f'{f'{x}'}'}'}/path'", "f'''{f\"\"\"{f'{f\"{x}\"}'}\"\"\"}/path'''"),
        ("f'{x!r:{'>'}{f'{w}'}}'", "f'{x!r:{\">\"}{f\"{w}\"}}'"),
        ("f'{x:>5\n}'\nimport c", "f'''{x:>5}'''\n\nimport c"),
        ("f'{'a' 'b'}' 'c'\n", 'f\'{"a" "b"}\' "c"'),
        ("f'{g('x' if y else \"z\")}'", "f'''{g('x' if y else \"z\")}'''"),
        # PEP 750, read as an f-string
        ("load(t'{a}.b' rt'\\{c}')", "load(f'{a}.b' rf'\\{c}')"),
        # PEP 758
        ("try: import a\nexcept A, B.c: import b", "try: import a\nexcept (A, B.c): import b"),
        ("try: import a\nexcept*A, B: import b", "try: import a\nexcept* (A, B): import b"),
        ("try: a\nexcept A, (lambda: 'x', c)[0], : b", "try: a\nexcept (A, (lambda: 'x', c)[0], ): b"),
        # PEP 798
        ("[*x for x in y]; {*x for x in y}; f(*x for x in y)", "[x for x in y]; {x for x in y}; f(x for x in y)"),
        ("x = { **d async for d in [*e for e in f] }", "x = { d async for d in [e for e in f] }"),
        # PEP 810
        ("lazy import a.b as c, d", "import a.b as c, d"),
        ("if x: lazy from . import c; lazy import d", "if x: from . import c; import d"),
        ("def f():\n  lazy \\\n from a import b\nimport c", "def f():\n  from \\\n a import b\nimport c"),
    ],
)  # fmt: skip
def test_newer_words_give_the_facts_of_older_ones(source: str, older: str) -> None:
    assert facts_of(source) == facts_of(older)


def test_type_parameters_are_no_names_and_their_bounds_and_defaults_are() -> None:
    facts = facts_of(
        """
        def f[T: a.Bound = b.Default, *Ts = *c[int], **P = [d]](x: T) -> E:
            return T, g

        class C[T = h](Base[T], k=i):
            def m[U: "text"](self, x: U): pass

        type A[
            V: (j, k),
            W = V,
        ] = dict[V, l]
        """
    )
    assert [(scope.qualname, scope.line) for scope in facts.scopes] == [("", 1), ("f", 2), ("C.m", 6)]
    names = facts.scopes[0].names
    assert {"a", "Bound", "b", "Default", "c", "d", "E", "h", "Base", "i", "j", "k", "l", "dict"} <= names
    assert not names & {"T", "Ts", "P", "U", "V", "W"}
    assert facts.scopes[0].strings == {"text"}
    assert facts.binds == {"f", "C", "A"}
    assert facts.scopes[1].names == {"g"}
    assert not facts.binds_only


def test_a_soft_keyword_stays_a_name() -> None:
    facts = facts_of("type type = int\ntype match[T] = T\ntype = 3\nprint(type)\nlazy = type\nlazy.x = 1\nf'{'a'}'")
    assert facts.binds == {"type", "match", "lazy"}
    assert {"int", "print", "type", "lazy"} <= facts.scopes[0].names


def test_lines_are_those_of_the_source() -> None:
    source = """
    def f[
        T,

        U: (
            int, str),
    ](
        x,
    ):
        import_module(f"a.{
            b
        }" ".c" f'''
        ''')
    type A[
        T] = (
        import_module("d.e"))
    import g
    lazy \\
        import h
    """
    facts = facts_of(source)
    assert [(each.module, each.line) for each in facts.scopes[0].imports] == [("g", 17), ("h", 18)]
    assert [(call.callee, call.line) for call in facts.scopes[0].calls] == [("import_module", 16)]
    assert [call.line for call in scope_of(source, "f").calls] == [10]


@pytest.mark.parametrize("name", ["generics.cpython-312", "generics.cpython-313", "defaults.cpython-313"])
def test_recorded_bytecode_of_newer_pythons_gives_the_same_facts(name: str) -> None:
    source = python.facts((FIXTURES / f"{name.partition('.')[0]}.py").read_bytes())
    assert isinstance(source, ModuleFacts)
    assert source == bytecode.facts((FIXTURES / f"{name}.pyc").read_bytes())


@pytest.mark.parametrize("interpreter", interpreters() or ["none"])
def test_what_only_another_python_parses_agrees_with_its_bytecode(interpreter: str, tmp_path: Path) -> None:
    if interpreter == "none":
        pytest.skip("no other Python is at hand (IMGDIFF_TEST_PYTHONS names them)")
    asked = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('stdlib'))"
    said = subprocess.run([interpreter, "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    if (int(said[0]), int(said[1])) <= sys.version_info[:2]:
        pytest.skip("no other Python is at hand that is newer (IMGDIFF_TEST_PYTHONS names them)")
    sources = [path for path in Path(said[2]).glob("*.py") if host(path.read_bytes()) is None]
    assert Path(said[2], "typing.py") in sources or sys.version_info >= (3, 12)
    for path, pyc in compile_with(interpreter, sources, tmp_path).items():
        source, compiled = python.facts(path.read_bytes()), bytecode.facts(pyc)
        assert isinstance(source, ModuleFacts)
        assert isinstance(compiled, ModuleFacts)
        assert disagreements(source, compiled) == []


# What no Python 3 would take ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import a\nprint 'x'", 2),
        ("exec 'x' in y", 1),
        ("x = `y`", 1),
        ("a <> b", 1),
        ("x = 0777", 1),
        ("raise A, 'b'", 1),
        ("ur'x'", 1),
        ("try: a\nexcept A, B as c: d", 2),
        ("type = = 3\n", 1),
        ("type X", 1),
        ("type X: int = 3", 1),
        ("type X = y = 3", 1),
        ("type X += 3", 1),
        ("type X.y = 3", 1),
        ("type X, Y = 3", 1),
        ("type X[] = 3", 1),
        ("type X[T:] = 3", 1),
        ("type X[T=] = 3", 1),
        ("type X[T, , U] = 3", 1),
        ("type X[T U] = 3", 1),
        ("type X[1] = 3", 1),
        ("type X[T] [U] = 3", 1),
        ("def f[T: x = y = z](): pass", 1),
        ("def f[def](): pass", 1),
        ("def f[T]: pass", 1),
        ("class A[T: )(]: pass", 1),
        ("class A[T: x) + (y]: pass", 1),
        ("x\nf'{x)(y}'", 2),
        ("f'{}'", 1),
        ("f'{ }'", 1),
        ("f'{x'", 1),
        ("f'{x!}'", 1),
        ("f'{x!z}'", 1),
        ("f'{x! r}'", 1),
        ("f'}'", 1),
        ("f'a\nb'", 1),
        ("f'{x:a\nb}'", 2),
        ("f'''{x", 1),
        ("f'\\", 1),
        ("f'\\N{NO SUCH NAME}{'a'}'", 1),
        ("b'a' f'{'b'}'", 1),
        ("f'{'a'}' = 3", 1),
        ("match x:\n  case f'{'a'}' as: pass", 2),
        ("'a", 1),
        ("'''a", 1),
        ("f'{type X = 3}'", 1),
        ("f'{x y 'z'}'", 1),
        ("[*a, b for a in c]", 1),
        ("lazy import", 1),
        ("lazy x", 1),
        ("def f[T](x): return\n  y", 2),
    ],
)  # fmt: skip
def test_what_fits_no_grammar_is_unreadable(source: str, line: int) -> None:
    found = python.facts(source.encode())
    assert isinstance(found, Unreadable)
    assert found.reason == f"No grammar up to Python {newer.NEWEST} fits this source (line {line})."


@pytest.mark.parametrize(
    "source",
    [
        b"f'{'a'}'" + b"(" * 10_000 + b")" * 10_000,
        b"f'{'a'}'\n" + b"-" * 30_000 + b"1",
        b"f'{" * 30 + b"x" + b"}'" * 30,
        b"f'{x:" + b"{y:" * 2_000 + b"}" * 2_000 + b"}'",
        b"def f[T: " + b"[" * 300 + b"]" * 300 + b"](): pass",
        b"x = f'{" + b"(" * 180 + b")" * 180 + b"'a'}'",
        b"type X = " + b"lambda: " * 3_000 + b"f'{'a'}'",
    ],
    ids=range(7),
)
def test_what_nests_too_deeply_gives_facts_or_a_reason(source: bytes) -> None:
    assert isinstance(python.facts(source), (ModuleFacts, Unreadable))


@pytest.mark.parametrize(
    "source",
    [
        b"f'{'a'}'; " + b"except " * 30_000,
        b"f'{'a'}'; " + b"except lambda:" * 20_000,
        b"x = " + b"[*a]," * 30_000 + b"f'{'a'}'\n",
        b"_format0_" + b"_format1_" * 30_000 + b"= f'{'a'}'\n",
        b"f'" + b"\\N{" * 30_000 + b"'",
        b"f'{x" + b"= " * 30_000 + b"}'",
        b"#" * 300_000 + b"\nf'{'a'}'\n" + b"#\n" * 30_000,
    ],
    ids=range(7),
)
def test_what_is_long_takes_no_longer_than_its_length(source: bytes) -> None:
    assert isinstance(python.facts(source), (ModuleFacts, Unreadable))


def test_a_name_of_the_source_is_no_placeholder() -> None:
    spelled = "_\uff46ormat0_0"  # a fullwidth f: to Python the name is _format0_0
    facts = facts_of(f"{spelled}('own')\n_format1_0('too')\nx = import_module(f'a.{{b['c']}}')\n")
    assert {"_format1_0"} <= facts.scopes[0].names
    assert facts.scopes[0].strings == {"own", "too", "a.", "c"}
    assert [call.arguments[0][:2] for call in facts.scopes[0].calls] == ["a."]


def test_encodings_of_newer_sources() -> None:
    for encoding in ("latin-1", "utf-8"):
        source = f"# -*- coding: {encoding} -*-\r\nx = f'caf\xe9{{y['\xe9']}}'\r\nimport a\r".encode(encoding)
        found = python.facts(source)
        assert isinstance(found, ModuleFacts)
        assert found.scopes[0].strings == {"caf\xe9", "\xe9"}
        assert found.scopes[0].imports[0].line == 3
    for source in (b"f'{'\xff'}'", b"# coding: no-such\nf'{'a'}'", b"f'{'a'}'\nx\0", b"# coding: utf-7\nf'{'+2AA-'}'"):
        assert isinstance(python.facts(source), Unreadable)


def test_a_large_source_is_not_rewritten() -> None:
    found = python.facts(
        b"f'{'a'}'\n" + b"x = 1\n" * (newer.MAX_SIZE // 6)
        if sys.version_info < (3, 12)
        else b"(" * (newer.MAX_SIZE + 1)
    )
    assert isinstance(found, Unreadable)
    assert "larger" in found.reason
