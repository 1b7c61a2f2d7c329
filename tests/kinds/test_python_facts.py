"""What a Python module refers to: the contract of its facts, each example from source and from bytecode alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from imgdiff.kinds import bytecode, python
from imgdiff.kinds._facts import LONG
from imgdiff.model import HOLE, HOLE_DIR, HOLE_FILE, HOLE_NAME, HOLE_PACKAGE, Import, ModuleFacts, Unreadable
from tests.kinds.facts_inputs import FIXTURES, body_of, facts_of, scope_of

# Imports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "module", "names", "level"),
    [
        ("import a", "a", (), 0),
        ("import a.b.c", "a.b.c", (), 0),
        ("import a.b as c", "a.b", (), 0),
        ("from a import b", "a", ("b",), 0),
        ("from a.b import c as d, e", "a.b", ("c", "e"), 0),
        ("from . import a", "", ("a",), 1),
        ("from ...a import b", "a", ("b",), 3),
        ("from a import *", "a", ("*",), 0),
    ],
)
def test_import_forms(source: str, module: str, names: tuple[str, ...], level: int) -> None:
    assert body_of(source).imports == (Import(module, names, level, 1, False),)


def test_imports_are_in_the_scope_that_runs_them() -> None:
    facts = facts_of(
        """
        class C:
            import in_class
            def method(self):
                import in_method
                def inner():
                    import in_inner
        """
    )
    found = {scope.qualname: [each.module for each in scope.imports] for scope in facts.scopes}
    assert found == {"": ["in_class"], "C.method": ["in_method"], "C.method.<locals>.inner": ["in_inner"]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if TYPE_CHECKING:\n import a\nelse:\n import b", {"b": False}),
        ("import typing\nif typing.TYPE_CHECKING:\n import a\nimport b", {"typing": False, "b": False}),
        ("import typing as t\nif t.TYPE_CHECKING:\n import a", {"typing": False}),
        ("if not TYPE_CHECKING:\n import a\nelse:\n import b", {"a": False}),
        ("if TYPE_CHECKING and x:\n import a", {}),
        ("if x and TYPE_CHECKING:\n import a\nelse:\n import b", {"b": False}),
        ("if x or TYPE_CHECKING:\n import a", {"a": True}),
        ("if TYPE_CHECKING or x:\n import a", {"a": True}),
        ("if TYPE_CHECKING:\n import a\nelif x:\n import b\nelse:\n import c", {"b": True, "c": True}),
        ("TYPE_CHECKING = False\nif TYPE_CHECKING:\n import a", {}),
        ("TYPE_CHECKING = True\nif TYPE_CHECKING:\n import a", {"a": True}),
        ("if self.thing().TYPE_CHECKING:\n import a", {"a": True}),
        ("if 0:\n import a\nelse:\n import b", {"b": False}),
        ("if False:\n import a", {}),
        ("if True:\n import a", {"a": False}),
        ("if __debug__:\n import a", {"a": False}),
        ("while 0:\n import a", {}),
        ("while 1:\n import a", {"a": True}),
    ],
)
def test_branches_that_never_run_are_no_edges(source: str, expected: dict[str, bool]) -> None:
    assert {each.module: each.conditional for each in body_of(source).imports} == expected


@pytest.mark.parametrize(
    ("source", "conditional"),
    [
        ("import a", False),
        ("if x:\n import a", True),
        ("if x:\n pass\nelse:\n import a", True),
        ("for x in y:\n import a", True),
        ("while x:\n import a", True),
        ("try:\n import a\nexcept E:\n pass", True),
        ("try:\n x()\nexcept E:\n import a", True),
        ("try:\n x()\nfinally:\n import a", True),
        ("with x:\n import a", True),
        ("with x:\n pass\nimport a", False),
        ("try:\n x()\nexcept E:\n pass\nimport a", False),
        ("for x in y:\n pass\nimport a", False),
        ("if x:\n y()\nimport a", False),
        ("if x:\n raise E\nimport a", True),
        ("assert x\nimport a", True),
        ("for x in y:\n if x:\n  break\nelse:\n import a", True),
        ("for x in y:\n pass\nelse:\n import a", False),
    ],
)
def test_conditional_imports(source: str, conditional: bool) -> None:
    assert [each.conditional for each in body_of(source).imports if each.module == "a"] == [conditional]


def test_after_a_possible_return_all_is_conditional() -> None:
    scope = scope_of("def f():\n if x:\n  return\n import a", "f")
    assert scope.imports == (Import("a", (), 0, 4, True),)


def test_what_only_a_main_module_runs_is_a_scope_of_its_own() -> None:
    facts = facts_of(
        """
        import a
        if __name__ == "__main__":
            import b
            run("text")
        else:
            import c
        """
    )
    body, main = facts.scopes
    assert main.qualname == "<main>"
    assert [each.module for each in main.imports] == ["b"]
    assert main.names == {"run"}
    assert main.strings == {"text"}
    assert [each.module for each in body.imports] == ["a", "c"]
    assert facts.binds == {"a", "c"}


def test_an_assertion_of_the_main_module_hides_nothing() -> None:
    # python -O leaves it out
    assert [each.module for each in body_of('assert __name__ == "__main__"\nimport a').imports] == ["a"]


# Names and strings ------------------------------------------------------------------------------------------------


def test_names_are_loads_of_what_is_not_local() -> None:
    scope = scope_of(
        """
        def f(parameter):
            local = glob.attribute
            from module import taken
            def inner():
                return local, outer_name
            return parameter, [each for each in local], taken, local.other
        """,
        "f",
    )
    assert scope.names == {"glob", "attribute", "other", "taken"}


def test_names_of_nested_functions_and_classes() -> None:
    source = """
        def f():
            captured = 1
            class C:
                mine = captured
                def method(self):
                    return captured, super().method, __class__, mine
        """
    assert scope_of(source, "f").names == set()
    assert scope_of(source, "f.<locals>.C.method").names == {"super", "method", "mine"}


def test_private_names_are_as_the_compiler_writes_them() -> None:
    assert scope_of("class _C:\n def f(self): return self.__x, __y, self.__z__", "_C.f").names == {
        "_C__x",
        "_C__y",
        "__z__",
    }


def test_lambdas_comprehensions_and_class_bodies_belong_to_their_scope() -> None:
    scope = body_of(
        """
        class C(Base, metaclass=Meta):
            field = Field("field")
        f = lambda x: called("in lambda", x)
        g = [each.part for each in rows if each != "in comprehension"]
        """
    )
    assert scope.names == {"Base", "Meta", "Field", "called", "part", "rows"}
    assert scope.strings == {"field", "in lambda", "in comprehension"}


def test_strings_are_constants_that_are_loaded() -> None:
    scope = body_of(
        '''
        """Docstring of the module."""
        x = ["one", ("two", ("three",))], {"four": "five"}, {"six"}
        y = "sev" + "en" + z
        if x in ("eight", "nine"):
            "a statement"
        def f(a="default", *, key="keyword default"):
            """Docstring of a function."""
        class C:
            """Docstring of a class."""
        f(name="argument")
        '''
    )
    assert scope.strings == {
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "default", "keyword default", "argument",
    }  # fmt: skip


def test_a_percent_template_gives_its_pieces() -> None:
    # newer compilers keep nothing else of it
    assert scope_of('def f(a, b): return "lib%s.so.%d%%" % (a, b)', "f").strings == {"lib", ".so."}


def test_annotations_give_names_and_no_strings() -> None:
    source = 'def f(a: "Quoted[pkg.Inner]", b: plain.Kind = 1) -> "Result": pass\nx: "Variable" = 2'
    for prefix in ("", "from __future__ import annotations\n"):
        scope = body_of(prefix + source)
        assert {"Quoted", "pkg", "Inner", "plain", "Kind", "Result", "Variable"} <= scope.names
        assert scope.strings == set()


def test_a_long_string_is_kept_as_its_tokens() -> None:
    text = "run /opt/tool/run.sh, then pkg.module:func! " + "word " * LONG
    scope = body_of(f"x = {text!r}")
    assert scope.strings == {"run", "/opt/tool/run.sh", "then", "pkg.module:func", "word"}


def test_a_constant_attribute_name_is_a_name() -> None:
    scope = body_of('getattr(x, "attr_one")\nhasattr(x, "attr_two")\noperator.attrgetter("three.four")')
    assert {"attr_one", "attr_two", "three", "four"} <= scope.names
    assert scope.calls == ()


# Patterns and calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "pattern"),
    [
        ('f"a.{x}.b"', f"a.{HOLE}.b"),
        ('f"a.{x!r}{y:>5}"', f"a.{HOLE}"),
        ('"a." + x', f"a.{HOLE}"),
        ('x + ".b"', f"{HOLE}.b"),
        ('"a." + x + ".b"', f"a.{HOLE}.b"),
        ('"a.%s.b" % x', f"a.{HOLE}.b"),
        ('"a.%s.%d" % (x, y)', f"a.{HOLE}.{HOLE}"),
        ('"a.%(name)s" % {"name": x}', f"a.{HOLE}"),
        ('"a.{}".format(x)', f"a.{HOLE}"),
        ('"a.{0}.{key}".format(x, key="k")', f"a.{HOLE}.k"),
        ('".".join(["a", x, "b"])', f"a.{HOLE}.b"),
        ('__name__ + ".sub"', f"{HOLE_NAME}.sub"),
        ('f"{__package__}.sub"', f"{HOLE_PACKAGE}.sub"),
        ('__spec__.parent + ".sub"', f"{HOLE_PACKAGE}.sub"),
        ('__file__ + "c"', f"{HOLE_FILE}c"),
        ('os.path.join(x, "lib.so")', f"{HOLE}/lib.so"),
        ('os.path.join(os.path.dirname(__file__), "d", "f.json")', f"{HOLE_DIR}/d/f.json"),
        ('os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "f")', f"{HOLE_DIR}/../f"),
        ('Path(__file__).parent / "d" / "f.json"', f"{HOLE_DIR}/d/f.json"),
        ('Path(__file__).resolve().parents[1] / "f.json"', f"{HOLE_DIR}/../f.json"),
        ('pathlib.Path(__file__).parent.joinpath("f.json")', f"{HOLE_DIR}/f.json"),
    ],
)
def test_patterns(expression: str, pattern: str) -> None:
    assert body_of(f"import os, pathlib\nfrom pathlib import Path\nvalue({expression})").patterns == {pattern}


@pytest.mark.parametrize("expression", ["x + y", 'f"{x}"', '"%s" % x', '__name__.rpartition(".")[0] + x', '"-" + x'])
def test_what_tells_nothing_is_no_pattern(expression: str) -> None:
    assert body_of(f"value({expression})").patterns == set()


def test_a_name_that_is_bound_once_folds() -> None:
    facts = facts_of(
        """
        import importlib
        ONCE = "pkg.once"
        TWICE = "pkg.one"
        TWICE = "pkg.two"
        def f():
            global SET
            SET = "pkg.three"
        SET = "pkg.four"
        def g(p="x"):
            local = ONCE + ".deep"
            again = "a"
            again += "b"
            importlib.import_module(local)
            importlib.import_module(TWICE)
            importlib.import_module(SET)
            importlib.import_module(again)
            importlib.import_module(p)
        """
    )
    (scope,) = [scope for scope in facts.scopes if scope.qualname == "g"]
    assert [call.arguments for call in scope.calls] == [("pkg.once.deep",), (HOLE,), (HOLE,), (HOLE,), (HOLE,)]


def test_a_callee_is_known_under_another_name() -> None:
    scope = body_of(
        """
        import subprocess as sp
        from importlib import import_module as load
        starter = sp.Popen
        sp.run("one")
        load("two")
        starter("three")
        """
    )
    assert [(call.callee, call.arguments) for call in scope.calls] == [
        ("run", ("one",)),
        ("import_module", ("two",)),
        ("Popen", ("three",)),
    ]


@pytest.mark.parametrize(
    "source",
    ["asyncio.run(x)", "re.compile(x)", "json.load(x)", "torch.compile(x)", "x.append(y)", "console.version()"],
)
def test_common_words_are_no_callees_on_other_objects(source: str) -> None:
    assert body_of(source).calls == ()


@pytest.mark.parametrize(
    ("source", "callee"),
    [
        ("importlib.metadata.version('x')", "version"),
        ("from importlib import metadata as m\nm.version('x')", "version"),
        ("sys.path.append('x')", "path.append"),
        ("sys.path.insert(0, 'x')", "path.insert"),
        ("ctypes.cdll.LoadLibrary('x')", "LoadLibrary"),
        ("torch.ops.load_library('x')", "load_library"),
        ("torch.utils.cpp_extension.load('x')", "cpp_extension.load"),
        ("entry.load()", "load"),
        ("entry_points(group='x')", "entry_points"),
        ("found.select(group='x')", "select"),
        ("importlib.resources.files('x')", "files"),
        ("os.system('x')", "system"),
        ("exec(x)", "exec"),
        ("os.listdir('x')", "listdir"),
    ],
)
def test_callees(source: str, callee: str) -> None:
    assert [call.callee for call in body_of(source).calls] == [callee]


def test_arguments_of_calls() -> None:
    scope = body_of(
        """
        import subprocess, sys
        subprocess.run([sys.executable, "-m", "pkg.tool", f"--x={y}"], cwd="/srv")
        subprocess.Popen(args=("make", "all"))
        subprocess.call(["base"] + more)
        subprocess.check_call("first", *rest)
        Path("/etc/conf").read_text()
        """
    )
    run, popen, call, check, path, read = scope.calls
    assert (run.arguments, run.keywords) == ((HOLE,), (("cwd", "/srv"),))
    assert run.sequence == (HOLE, "-m", "pkg.tool", f"--x={HOLE}")
    assert popen.sequence == ("make", "all")
    assert call.sequence == ("base", HOLE)
    assert check.arguments == ("first", HOLE)
    assert {(each.callee, each.arguments) for each in (path, read)} == {
        ("Path", ("/etc/conf",)),
        ("read_text", ("/etc/conf",)),
    }


def test_code_in_strings_is_read() -> None:
    scope = body_of('exec("import by_exec")\nPopen([python, "-c", "from by_dash_c import x"])\nexec("not ( code")')
    assert [(each.module, each.names, each.conditional) for each in scope.imports] == [
        ("by_exec", (), True),
        ("by_dash_c", ("x",), True),
    ]


def test_what_evaluated_code_imports_by_call_is_read() -> None:
    scope = body_of("eval(\"__import__('by_eval').V\")\nexec(\"import importlib as i; i.import_module('by_module')\")")
    assert {each.module for each in scope.imports} == {"by_eval", "importlib", "by_module"}


def test_an_attribute_pattern_is_a_call() -> None:
    (call,) = body_of('getattr(self, "visit_" + name)').calls
    assert (call.callee, call.arguments) == ("getattr", (HOLE, f"visit_{HOLE}"))


# The module as a whole --------------------------------------------------------------------------------------------


def test_binds_exports_aliases_and_versions() -> None:
    facts = facts_of(
        """
        import numpy as np
        from .core import thing, other as renamed
        __all__ = ["thing"] + ["more"]
        __all__ += ["last"]
        __version__ = version = "1.2"
        version_tuple = (1, 2, "dev")
        git_version = None
        alias = np.linalg.solve
        """
    )
    assert facts.binds == {
        "np", "thing", "renamed", "__all__", "__version__", "version", "version_tuple", "git_version", "alias",
    }  # fmt: skip
    assert facts.exports == ("thing", "more", "last")
    assert facts.aliases == (("alias", "numpy.linalg.solve"), ("np", "numpy"), ("renamed", ".core.other"))
    assert [(name, text) for name, text, _ in facts.versions] == [
        ("__version__", "1.2"),
        ("version", "1.2"),
        ("version_tuple", "(1, 2, 'dev')"),
    ]


def test_tables_of_lazy_names() -> None:
    table = '_structure = {"models.bert": ["Model", "Config"], "name": ".mod:attr", "pair": (".other", "attr")}\n'
    late = '_structure["late"] = ["Late"]\n'
    expected = {
        ("Model", "models.bert"), ("Config", "models.bert"), ("name", ".mod:attr"), ("pair", ".other"), ("Late", "late"),
    }  # fmt: skip
    for user in (
        "def __getattr__(name): pass",
        "_LazyModule(__name__, _structure)",
        "lazy.attach(__name__, _structure)",
    ):
        assert expected <= set(facts_of(table + late + user).lazy)
    assert facts_of(table + late).lazy == ()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("'doc'\nimport a\nfrom b import c\nX = 1\nY = ('a', X)\ndef f(a=1): return g(a)", True),
        ("class C:\n x = 1\n def f(self): pass", True),
        ("X = f()", False),
        ("class C(Base): pass", False),
        ("@deco\ndef f(): pass", False),
        ("X.y = 1", False),
        ("from a import *", False),
        ("for x in y: pass", False),
        ("if x:\n import a", False),
    ],
)
def test_a_body_that_only_binds(source: str, expected: bool) -> None:
    assert facts_of(source).binds_only is expected


def test_decorators() -> None:
    scope = scope_of("import functools as ft\n@ft.cache\n@register('x')\n@plain\ndef f(): pass", "f")
    assert scope.decorators == ("functools.cache", "?", "plain")
    assert scope.line == 2


# All minors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recorded", sorted(FIXTURES.glob("contract.*.pyc")), ids=lambda path: path.name)
def test_every_python_gives_the_facts_of_the_source(recorded: Path) -> None:
    expected = python.facts((FIXTURES / "contract.py").read_bytes())
    assert isinstance(expected, ModuleFacts)
    found = bytecode.facts(recorded.read_bytes())
    assert found == expected


def test_type_parameters_belong_to_their_scope() -> None:
    older, newer = [bytecode.facts(path.read_bytes()) for path in sorted(FIXTURES.glob("generics.*.pyc"))]
    assert isinstance(older, ModuleFacts)
    assert older == newer
    assert [scope.qualname for scope in older.scopes[1:]] == [
        "generic", "generic.<locals>.inner", "plain", "Generic.method", "comprehensions",
    ]  # fmt: skip
    assert {"bound", "first", "second", "result", "bases", "default"} <= older.scopes[0].names
    assert not older.scopes[0].names & {"T", "Ts", "P", "U", "V"}
    source = python.facts((FIXTURES / "generics.py").read_bytes())
    assert isinstance(source, Unreadable) or source == older


# Numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("x = a.b >= (2, 1)", {(2, 1)}),
        ("x = (2, 1) <= a.b < (3,)", {(2, 1), (3,)}),
        ("x = v.major > 1 and v.minor >= 6", {(1,), (6,)}),
        ("x = [int(p) for p in v.split('.')] >= [2, 1, 0]", {(2, 1, 0)}),
        ("x = float(v[:3]) >= 1.6", {(1, 6)}),
        ("x = v >= -1 or v == 60 * 60 or v < 2 ** 200 or v < 1e30", {(3600,)}),
        ("x = v[-1] != b'\\n'[0]", {(10,)}),
        ("x = v[:2] in ((2, 1), (2, 2))", {(2, 1), (2, 2)}),
        ("x = v.major not in [1, 2]", {(1,), (2,)}),
        ("x = v.major in {1, 2, 3}", {(1,), (2,), (3,)}),
        ("MIN = (2, 4)\nx = v < MIN", {(2, 4)}),
        ("MIN = 3\nx = v < MIN", {(3,)}),
        ("MIN = 3\nMIN = 4\nx = v < MIN", set()),
        ("MIN = 1.5\nx = (v, 1) < (MIN, 2)", set()),
        ("x = v is 3", set()),
        ("x = v == True or v == 'a' or v == None", set()),
        ("x = f((2, 1)) + 3", set()),
        ("x = v == (1, 2, 3, 4, 5, 6, 7)", set()),
        (
            "match v:\n    case (a, b, c):\n        pass\n    case 7:\n        pass\n    case {'k': 1}:\n        pass",
            {(7,), (1,)},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_numbers_are_what_something_is_compared_with(source: str, numbers: set[tuple[int, ...]]) -> None:
    assert body_of(source + "\n").numbers == numbers


def test_numbers_are_in_the_scope_that_compares() -> None:
    source = "def f():\n    low = (1, 2)\n    return v >= low\ndef g():\n    return v\n"
    assert scope_of(source, "f").numbers == {(1, 2)}
    assert scope_of(source, "g").numbers == frozenset()


@pytest.mark.parametrize(
    ("source", "sequence", "arguments"),
    [
        ("sys.path[:0] = ['/a', x]", ("/a", HOLE), (HOLE,)),
        ("sys.path = ['/a'] + sys.path", ("/a", HOLE), (HOLE,)),
        ("sys.path += ['/a']", (HOLE, "/a"), (HOLE,)),
        ("sys.path[0] = '/a'", (), ("/a",)),
        ("path = sys.path\npath[1:] = x", (), (HOLE,)),
        ("from sys import path\npath[1:1] = ['/a']", ("/a",), (HOLE,)),
    ],
)
def test_what_is_assigned_to_the_search_path(
    source: str, sequence: tuple[str, ...], arguments: tuple[str, ...]
) -> None:
    (call,) = body_of("import sys\n" + source + "\n").calls
    assert (call.callee, call.sequence, call.arguments) == ("path.assign", sequence, arguments)


def test_what_is_assigned_to_another_path_is_no_call() -> None:
    source = "import os, sys\nself.path = ['/a']\nos.path = x\nsys.flags = y\nmodule.__path__[0] = z\nx.path[0] = 1\n"
    assert body_of(source).calls == ()


# What is looked through, and what is handed on ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b\nvars(a.b)", {"a.b"}),
        ("from a import b as c\nc.__dict__", {"a.b"}),
        ("from . import b\ndir(b)", {".b"}),
        ("import inspect, a\ninspect.getmembers(a)", {"a"}),
        ("import a\ngetattr(a, x)", {"a"}),
        ("import a\ngetattr(a, f'{x}')", {"a"}),
        ("import a\ngetattr(a, 'b')\ngetattr(a, f'b_{x}')\nhasattr(a, x)\nsetattr(a, x, 1)", set()),
        ("import sys\nvars(sys.modules[__name__])", {HOLE_NAME}),
        ("import sys\nvars(sys.modules['a.b'])", {"a.b"}),
        ("import sys\nvars(sys.modules[x])", {"?"}),
        ("import importlib\nvars(importlib.import_module('a.b'))", {"a.b"}),
        ("import importlib\nvars(importlib.import_module('.b', __package__))", {".b"}),
        ("import importlib\nvars(importlib.import_module('.b', x))", {"?"}),
        ("globals()", {HOLE_NAME}),
        ("locals()", {HOLE_NAME}),
        ("f().__dict__", {"?"}),
        ("import operator\noperator.attrgetter(x)(y)\noperator.attrgetter('a')(y)", {"?"}),
        ("x.vars(y)\nx.__dict__ = y", set()),
    ],
)
def test_what_is_looked_through(source: str, expected: set[str]) -> None:
    assert set(body_of(source).reflects) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("getattr(self, x)", {"?self"}),
        ("type(self).__dict__", {"?cls"}),
        ("self.__class__.__dict__", {"?cls"}),
        ("getattr(self.m, x)", {"?"}),
        ("locals()", set()),
        ("vars(x)", {"?"}),
    ],
)
def test_what_a_method_looks_through(body: str, expected: set[str]) -> None:
    assert scope_of(f"class C:\n    def f(self, x):\n        {body}", "C.f").reflects == tuple(expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b\nf(a.b)", {"a.b"}),
        ("from a import b\nx.f(1, *y, k=b)", {"a.b"}),
        ("from . import b\nf([b, 1])\nf(**{'x': b})", {".b"}),
        ("import a\nTABLE = {'x': a}", {"a"}),
        ("import a\nx.y = a", {"a"}),
        ("import a\nx['y'] = a", {"a"}),
        ("import a\nfor m in (a, 1):\n    pass", {"a"}),
        ("import a\n[m for m in (a, 1)]", {"a"}),
        ("import a\nisinstance(x, a)\nb = 1\nf(b)\nf(a.c)\na.f(1)", set()),
    ],
)
def test_what_is_handed_on(source: str, expected: set[str]) -> None:
    assert set(body_of(source).handed) == expected


def test_what_a_function_returns_is_handed_on() -> None:
    assert scope_of("import a\ndef f():\n    return a", "f").handed == ("a",)


def test_what_classes_are_made_of() -> None:
    source = "import a\nfrom .b import C\nclass D(a.X, C, metaclass=a.M):\n    class E(C): pass\nclass F(f()): pass"
    assert facts_of(source).bases == (("D", ".b.C"), ("D", "a.M"), ("D", "a.X"), ("E", ".b.C"))
