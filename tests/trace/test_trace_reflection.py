"""Functions that no text names: modules and classes that code looks through."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.trace.world import SITE, World, site

S = SITE.decode()
DO = "def do_x():\n    import pkg.hidden\n"
METHOD = "    def do_x(self):\n        import pkg.hidden\n"


def world(main: str, **modules: str) -> World:
    """An image whose entry is ``main``; ``modules`` of ``pkg``, of which one has a function that imports pkg.hidden."""
    files: Mapping[str, bytes | str] = {
        "app.py": main,
        "pkg/__init__.py": "",
        "pkg/hidden.py": "",
        **{f"pkg/{name}.py": text for name, text in modules.items()},
    }
    return World(site(files))


def hidden(main: str, **modules: str) -> str:
    """The level of what a function imports that nothing refers to by name."""
    return world(main, **modules).level(f"{S}/pkg/hidden.py")


@pytest.mark.parametrize(
    "main",
    [
        "import sys, pkg.reg\ngetattr(pkg.reg, sys.argv[1])()\n",
        "import sys\nfrom pkg import reg as r\ngetattr(r, sys.argv[1])()\n",
        "import pkg.reg\nfor name, f in vars(pkg.reg).items():\n    f()\n",
        "import pkg.reg\nfor name, f in pkg.reg.__dict__.items():\n    f()\n",
        "import inspect\nfrom pkg import reg\nfor name, f in inspect.getmembers(reg, inspect.isfunction):\n    f()\n",
        "import pkg.reg as r\nfor name in dir(r):\n    f = getattr(r, name)\n",
        "import sys, pkg.reg\nvars(sys.modules['pkg.reg'])[sys.argv[1]]()\n",
        "import sys, importlib\nm = importlib.import_module('pkg.reg')\ngetattr(m, sys.argv[1])()\n",
        "import sys\ndef go(name):\n    from pkg import reg\n    return getattr(reg, name)()\ngo(sys.argv[1])\n",
        "import sys\nif sys.argv:\n    import pkg.reg as m\nelse:\n    import pkg.other as m\ngetattr(m, sys.argv[1])()\n",
    ],
)
def test_the_functions_of_a_module_that_code_looks_through_are_reached(main: str) -> None:
    assert hidden(main, reg=DO, other="") == "deferred"


@pytest.mark.parametrize(
    "reg",
    [
        f"{DO}def run(name):\n    globals()[name]()\n",
        f"import sys\n{DO}def run(name):\n    getattr(sys.modules[__name__], name)()\n",
        f"import sys\n{DO}def run(name):\n    vars(sys.modules[__name__])[name]()\n",
        f"import importlib\n{DO}def run(name):\n    vars(importlib.import_module('pkg.reg'))[name]()\n",
        f"{DO}TABLE = locals()\ndef run(name):\n    TABLE[name]()\n",
        "from pkg.more import *\ndef run(name):\n    globals()[name]()\n",
        "from .more import *\ndef run(name):\n    globals()[name]()\n",
    ],
)
def test_a_module_that_looks_through_itself(reg: str) -> None:
    assert hidden("import sys, pkg.reg\npkg.reg.run(sys.argv[1])\n", reg=reg, more=DO) == "deferred"


@pytest.mark.parametrize(
    ("main", "reg"),
    [
        ("from pkg.reg import C\nfor name, f in vars(C).items():\n    f(1)\n", f"class C:\n{METHOD}"),
        ("import sys, pkg.reg\ngetattr(pkg.reg.C, sys.argv[1])()\n", f"class C:\n{METHOD}"),
        ("import sys, pkg.api\ngetattr(pkg.api.C, sys.argv[1])()\n", f"class C:\n{METHOD}"),
        (
            "import pkg.reg\npkg.reg.C().run('x')\n",
            f"class C:\n    def run(self, name):\n        getattr(self, name)()\n{METHOD}",
        ),
        (
            "import pkg.reg\npkg.reg.C().run('x')\n",
            f"class C:\n    def run(self, name):\n        type(self).__dict__[name](self)\n{METHOD}",
        ),
        (
            "import pkg.reg\npkg.reg.C().run('x')\n",
            f"class C:\n    def run(self, name):\n        vars(self.__class__)[name](self)\n{METHOD}",
        ),
        ("import pkg.reg\npkg.reg.C().run('x')\n", f"from pkg.base import B\nclass C(B):\n{METHOD}"),
        (
            "import pkg.reg\npkg.reg.D().run('x')\n",
            f"class B:\n{METHOD}class D(B):\n    def run(self, name):\n        getattr(self, name)()\n",
        ),
    ],
)
def test_the_functions_of_a_class_that_code_looks_through_are_reached(main: str, reg: str) -> None:
    base = "class B:\n    def run(self, name):\n        getattr(self, name)()\n"
    assert hidden(main, reg=reg, base=base, api="from .reg import C\n") == "deferred"


@pytest.mark.parametrize(
    "main",
    [
        "import pkg.reg, pkg.load\npkg.load.go(pkg.reg)\n",
        "import pkg.reg, pkg.load\npkg.load.go(m=pkg.reg)\n",
        "import pkg.reg, pkg.load\nclass C:\n    def __init__(self):\n        self.m = pkg.reg\npkg.load.go(C().m)\n",
        "import pkg.load\nfrom pkg import reg\nTABLE = {'r': reg}\npkg.load.go(TABLE['r'])\n",
        "import pkg.load\nfrom pkg import reg\nTABLE = {}\nTABLE['r'] = reg\npkg.load.go(TABLE['r'])\n",
        "import pkg.load\nfrom pkg import reg\ndef give():\n    return reg\npkg.load.go(give())\n",
        "import pkg.load\nfrom pkg import reg\nfor each in (reg,):\n    pkg.load.go(each)\n",
        "import operator, sys\nfrom pkg import reg\noperator.attrgetter(sys.argv[1])(reg)()\n",
    ],
)
def test_a_module_that_is_handed_on_counts_where_any_code_looks_through_what_it_is_given(main: str) -> None:
    load = "def go(m):\n    for name in dir(m):\n        getattr(m, name)()\n"
    assert hidden(main, reg=DO, load=load) == "deferred"


def test_lazy_attributes_of_a_module_that_code_looks_through() -> None:
    reg = "_TABLE = {'thing': 'pkg.hidden'}\ndef __getattr__(name):\n    return importlib.import_module(_TABLE[name])\n"
    main = "import sys, pkg.reg\ngetattr(pkg.reg, sys.argv[1])\n"
    assert hidden(main, reg=reg) == "deferred"


@pytest.mark.parametrize(
    ("main", "modules"),
    [
        # another module is looked through
        (
            "import sys, pkg.reg, pkg.other\ngetattr(pkg.other, sys.argv[1])()\n",
            {"reg": DO, "other": "def f(): pass\n"},
        ),
        ("import sys, pkg.reg\nprint(vars(sys))\n", {"reg": DO}),
        # the name is fixed
        ("import pkg.reg\ngetattr(pkg.reg, 'other', None)\n", {"reg": DO}),
        # an object's own dict holds no functions of its class
        (
            "import pkg.reg\npkg.reg.C().show()\n",
            {"reg": f"class C:\n    def show(self):\n        self.__dict__\n{METHOD}"},
        ),
        # the module is handed on, and nothing looks through what it is given
        ("import pkg.reg, pkg.load\npkg.load.go(pkg.reg)\n", {"reg": DO, "load": "def go(m):\n    m.other()\n"}),
        # a function of another class of the module
        (
            "import sys\nfrom pkg.reg import C\ngetattr(C, sys.argv[1])\n",
            {"reg": f"class C:\n    pass\nclass D:\n{METHOD}"},
        ),
    ],
)
def test_what_no_code_looks_through_stays_dormant(main: str, modules: Mapping[str, str]) -> None:
    assert hidden(main, **modules) == "dormant"


def test_only_functions_of_that_module_are_reached_and_no_others_of_their_names() -> None:
    main = "import sys, pkg.reg, pkg.other\ngetattr(pkg.reg, sys.argv[1])()\n"
    assert hidden(main, reg="def do_x():\n    pass\n", other=DO) == "dormant"


def test_names_and_classes_that_go_in_circles_end() -> None:
    main = (
        "import sys, pkg.reg as x\nimport x as y\nimport y as x\nfrom pkg.a import C\n"
        "getattr(x, sys.argv[1])\ngetattr(C, sys.argv[2])\n"
    )
    modules = {
        "reg": DO,
        "a": "from .b import *\nclass D(C): pass\n",
        "b": f"from .a import *\nclass C(D):\n{METHOD}",
    }
    assert hidden(main, **modules) == "deferred"
