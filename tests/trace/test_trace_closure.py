"""What reached code leads to: each rule of "Who loads it" on a few small modules."""

from __future__ import annotations

import pytest

from imgdiff.model import Distribution, ElfFacts
from tests.trace.world import SITE, World, site

S = SITE.decode()


def app(source: str, **modules: str) -> dict[str, bytes | str]:
    """An image whose entry is the module ``app``; keywords are further modules, ``__`` for a dot."""
    files: dict[str, bytes | str] = {"app.py": source}
    for name, content in modules.items():
        files[name.replace("__", "/") + ".py"] = content
    return site(files)


def test_module_level_imports_and_parents_are_eager() -> None:
    world = World(
        site(
            {"app.py": "import pkg.sub.leaf\n", "pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/leaf.py": ""}
        )
    )
    for path in ("app.py", "pkg/__init__.py", "pkg/sub/__init__.py", "pkg/sub/leaf.py"):
        assert world.level(f"{S}/{path}") == "eager"


def test_conditional_imports_are_eager() -> None:
    world = World(
        app(
            "try:\n    import one\nexcept ImportError:\n    import two\nif x:\n    import three\n",
            one="",
            two="",
            three="",
        )
    )
    assert [world.level(f"{S}/{name}.py") for name in ("one", "two", "three")] == ["eager"] * 3


def test_class_bodies_run_at_import() -> None:
    world = World(app("class C:\n    import inner\n", inner=""))
    assert world.level(f"{S}/inner.py") == "eager"


def test_type_checking_is_no_edge_and_its_else_is() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import hints\nelse:\n    import real\n"
    world = World(app(source, hints="", real="", typing="TYPE_CHECKING = False\n"))
    assert world.level(f"{S}/hints.py") == "unreached"
    assert world.level(f"{S}/real.py") == "eager"


def test_a_function_counts_once_reached_code_refers_to_its_name() -> None:
    source = "import lib\nlib.used()\n"
    lib = "def used():\n    import a\ndef unused_function():\n    import b\n"
    world = World(app(source, lib=lib, a="import a2\n", a2="", b="import b2\n", b2=""))
    assert world.level(f"{S}/a.py") == "deferred"
    assert world.level(f"{S}/a2.py") == "deferred"
    assert world.level(f"{S}/b.py") == "dormant"
    assert world.level(f"{S}/b2.py") == "dormant"


def test_reached_functions_add_names_in_turn() -> None:
    lib = "def first():\n    second()\ndef second():\n    third()\ndef third():\n    import deep\n"
    world = World(app("import lib\nlib.first()\n", lib=lib, deep=""))
    assert world.level(f"{S}/deep.py") == "deferred"


@pytest.mark.parametrize(
    "reference",
    [
        "getattr(lib, 'visit_' + kind)()",
        "getattr(lib, f'visit_{kind}')()",
        "getattr(lib, 'visit_%s' % kind)()",
        "table = {'x': 'visit_name'}",
    ],
)
def test_names_built_or_written_as_strings_refer(reference: str) -> None:
    world = World(
        app(f"import lib\nkind = open('k').read()\n{reference}\n", lib="def visit_name():\n    import late\n", late="")
    )
    assert world.level(f"{S}/late.py") == "deferred"


def test_a_short_name_pattern_refers_within_its_package() -> None:
    pkg = {
        "app.py": "import pkg\npkg.run('x')\n",
        "pkg/__init__.py": "from . import impl\ndef run(kind):\n    return getattr(impl, '_' + kind)()\n",
        "pkg/impl.py": "def _x():\n    import late\n",
        "late.py": "",
    }
    assert World(site(pkg)).level(f"{S}/late.py") == "deferred"


def test_dunder_methods_count_as_referred() -> None:
    world = World(app("import lib\n", lib="class C:\n    def __call__(self):\n        import late\n", late=""))
    assert world.level(f"{S}/late.py") == "deferred"


def test_nested_functions_follow_their_parent() -> None:
    lib = "def outer():\n    def inner():\n        import late\n    return inner\n"
    assert World(app("import lib\nlib.outer()\n", lib=lib, late="")).level(f"{S}/late.py") == "deferred"
    assert World(app("import lib\n", lib=lib, late="")).level(f"{S}/late.py") == "dormant"


@pytest.mark.parametrize(
    ("decorator", "level"),
    [
        ("registry.add", "deferred"),
        ("property", "dormant"),
        ("functools.lru_cache", "dormant"),
        ("app.get('/x')", "deferred"),
    ],
)
def test_a_registering_decorator_counts_as_a_reference(decorator: str, level: str) -> None:
    lib = f"import functools\nclass C:\n    @{decorator}\n    def handler_zz(self):\n        import late\n"
    assert World(app("import lib\n", lib=lib, late="")).level(f"{S}/late.py") == level


def test_names_in_c_code_refer() -> None:
    files = app("import ext, lib\n", lib="def called_from_c():\n    import late\n", late="")
    files[f"{S}/ext.cpython-312-x86_64-linux-gnu.so"] = "ELF"
    elves = {f"{S}/ext.cpython-312-x86_64-linux-gnu.so": ElfFacts(62, 64, python=True, identifiers=("called_from_c",))}
    world = World(files, elves=elves)
    assert world.level(f"{S}/ext.cpython-312-x86_64-linux-gnu.so") == "eager"
    assert world.level(f"{S}/late.py") == "deferred"


def test_c_code_imports_by_name_in_full_and_beside_itself() -> None:
    files = site(
        {
            "app.py": "import pkg.ext\n",
            "pkg/__init__.py": "",
            "pkg/sister.py": "",
            "other/__init__.py": "",
            "other/mod.py": "",
        }
    )
    files[f"{S}/pkg/ext.so"] = "ELF"
    elves = {f"{S}/pkg/ext.so": ElfFacts(62, 64, python=True, identifiers=("sister",), strings=("other.mod",))}
    world = World(files, elves=elves)
    assert world.level(f"{S}/pkg/sister.py") == "deferred"
    assert world.level(f"{S}/other/mod.py") == "deferred"


def test_a_cython_module_can_import_what_lies_beside_it() -> None:
    files = site({"app.py": "import loops.loop\n", "loops/__init__.py": "", "loops/_noop.py": "", "elsewhere.py": ""})
    files[f"{S}/loops/loop.so"] = "ELF"
    world = World(files, elves={f"{S}/loops/loop.so": ElfFacts(62, 64, python=True, identifiers=("__pyx_state",))})
    assert world.level(f"{S}/loops/_noop.py") == "deferred"
    assert world.level(f"{S}/elsewhere.py") == "unreached"
    assert any(f"/{S}/loops/loop.so" in caveat for caveat in world.trace.caveats)


def test_a_pattern_can_name_a_top_level_module() -> None:
    name = "_sysconfigdata__linux_x86_64-linux-gnu"
    source = "def name(p):\n    return f'_sysconfigdata_{p}'\n__import__(name('x'))\nname\n"
    assert World(site({"app.py": source, f"{name}.py": ""})).level(f"{S}/{name}.py") == "deferred"


def test_names_in_the_interpreter_refer() -> None:
    elves = {"usr/bin/python3.12": ElfFacts(62, 64, python=True, identifiers=("excepthook_zz",))}
    world = World(app("import lib\n", lib="def excepthook_zz():\n    import late\n", late=""), elves=elves)
    assert world.level(f"{S}/late.py") == "deferred"


def test_from_import_takes_submodules() -> None:
    world = World(
        site({"app.py": "from pkg import sub, attribute\n", "pkg/__init__.py": "attribute = 1\n", "pkg/sub.py": ""})
    )
    assert world.level(f"{S}/pkg/sub.py") == "eager"


def test_relative_imports() -> None:
    files = {
        "app.py": "import pkg.a.b\n",
        "pkg/__init__.py": "",
        "pkg/a/__init__.py": "",
        "pkg/a/b.py": "from ..c import x\nfrom . import d\n",
        "pkg/c.py": "x = 1\n",
        "pkg/a/d.py": "",
    }
    world = World(site(files))
    assert world.level(f"{S}/pkg/c.py") == "eager"
    assert world.level(f"{S}/pkg/a/d.py") == "eager"


def test_star_imports_load_exported_submodules() -> None:
    world = World(
        site(
            {
                "app.py": "from pkg import *\n",
                "pkg/__init__.py": "__all__ = ['sub']\n",
                "pkg/sub.py": "",
                "pkg/other.py": "",
            }
        )
    )
    assert world.level(f"{S}/pkg/sub.py") == "eager"
    assert world.level(f"{S}/pkg/other.py") == "unreached"


LAZY = """
_import_structure = {"models.albert": ["AlbertModel"], "models.bert": ["BertModel"]}
def __getattr__(name):
    import importlib
    return importlib.import_module("." + table[name], __name__)
"""


def test_a_lazy_attribute_that_is_imported_is_eager_and_one_that_is_named_is_deferred() -> None:
    pkg = {"pkg/__init__.py": LAZY, "pkg/models/__init__.py": "", "pkg/models/albert.py": "", "pkg/models/bert.py": ""}
    world = World(site({"app.py": "from pkg import AlbertModel\n", **pkg}))
    assert world.level(f"{S}/pkg/models/albert.py") == "eager"
    world = World(site({"app.py": "import pkg\npkg.BertModel\n", **pkg}))
    assert world.level(f"{S}/pkg/models/bert.py") == "deferred"


def test_absolute_dotted_strings_name_modules() -> None:
    world = World(
        app(
            "import lib\nTABLE = {'k': 'pkg.impl.Class', 'e': 'pkg.point:main'}\n",
            lib="",
            pkg____init__="",
            pkg__impl="",
            pkg__point="",
        )
    )
    assert world.level(f"{S}/pkg/impl.py") == "deferred"
    assert world.level(f"{S}/pkg/point.py") == "deferred"


@pytest.mark.parametrize(
    "call", ["importlib.import_module('late')", "__import__('late')", "importlib.util.find_spec('late')"]
)
def test_a_literal_given_to_importlib(call: str) -> None:
    assert World(app(f"import importlib\n{call}\n", late="")).level(f"{S}/late.py") == "deferred"


def test_an_fstring_prefix_reaches_what_it_can_be() -> None:
    source = "import importlib\nname = open('x').read()\nimportlib.import_module(f'pkg.models.{name}')\n"
    files = {
        "app.py": source,
        "pkg/__init__.py": "",
        "pkg/models/__init__.py": "",
        "pkg/models/mixtral.py": "",
        "pkg/other.py": "",
    }
    world = World(site(files))
    assert world.level(f"{S}/pkg/models/mixtral.py") == "deferred"
    assert world.level(f"{S}/pkg/other.py") == "unreached"


def test_a_pattern_that_starts_with_the_own_package() -> None:
    init = "import importlib\ndef __getattr__(name):\n    return importlib.import_module(f'{__name__}.{name}')\n"
    world = World(site({"app.py": "import pkg\n", "pkg/__init__.py": init, "pkg/late.py": ""}))
    assert world.level(f"{S}/pkg/late.py") == "deferred"


def test_a_relative_name_with_a_package() -> None:
    source = "import importlib\nimportlib.import_module('.impl', 'pkg.sub')\n"
    world = World(site({"app.py": source, "pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/impl.py": ""}))
    assert world.level(f"{S}/pkg/sub/impl.py") == "deferred"


REGISTRY = "import importlib\nMODELS = {'MixtralForCausalLM': ('mixtral', 'X')}\ndef load(name):\n    return importlib.import_module(PREFIX + name)\n"


def test_any_module_by_computed_name_means_every_module_that_a_string_names() -> None:
    files = {
        "app.py": "import pkg.registry\npkg.registry.load('x')\nNAME = 'single'\n",
        "pkg/__init__.py": "",
        "pkg/registry.py": REGISTRY,
        "pkg/models/__init__.py": "",
        "pkg/models/mixtral.py": "",
        "pkg/models/llama.py": "",
        "single.py": "",
    }
    world = World(site(files))
    assert world.level(f"{S}/pkg/models/mixtral.py") == "deferred"  # by its last part
    assert world.level(f"{S}/single.py") == "deferred"  # in full
    assert world.level(f"{S}/pkg/models/llama.py") == "unreached"
    assert any(f"/{S}/pkg/registry.py:4" in caveat for caveat in world.trace.caveats)


@pytest.mark.parametrize(
    "source",
    [
        "import importlib\nlist(map(importlib.import_module, ['plug']))\n",
        "from importlib import import_module\nlist(map(import_module, ['plug']))\n",
        "import functools, importlib\nload = functools.partial(importlib.import_module, 'plug')\nload()\n",
        "import importlib\ngetattr(importlib, 'import_module')('plug')\n",
        "import importlib\ngetattr(importlib, 'import_' + 'module')('plug')\n",
        "import builtins\nbuiltins.__dict__['__import__']('plug')\n",
        "from importlib import import_module\nHOOKS = {'load': import_module}\nHOOKS['load']('plug')\n",
    ],
)
def test_an_import_function_held_as_a_value_can_import_what_a_string_names(source: str) -> None:
    world = World(site({"app.py": source, "plug.py": "", "quiet.py": ""}))
    assert world.level(f"{S}/plug.py") == "deferred"
    assert world.level(f"{S}/quiet.py") == "unreached"


def test_an_import_function_that_is_only_called_imports_what_it_is_called_with() -> None:
    source = "from importlib import import_module\nNAME = 'quiet'\ndef f():\n    import_module('plug')\nf()\n"
    world = World(site({"app.py": source, "plug.py": "", "quiet.py": ""}))
    assert world.level(f"{S}/plug.py") == "deferred"
    assert world.level(f"{S}/quiet.py") == "unreached"


def test_without_a_dynamic_import_a_single_word_names_nothing() -> None:
    assert World(app("NAME = 'single'\n", single="")).level(f"{S}/single.py") == "unreached"


def test_package_walks() -> None:
    init = "import pkgutil\nfor each in pkgutil.iter_modules(__path__):\n    pass\n"
    world = World(
        site(
            {
                "app.py": "import pkg\n",
                "pkg/__init__.py": init,
                "pkg/one.py": "",
                "pkg/sub/__init__.py": "",
                "pkg/sub/two.py": "",
            }
        )
    )
    assert world.level(f"{S}/pkg/one.py") == "deferred"
    assert world.level(f"{S}/pkg/sub/two.py") == "unreached"
    world = World(
        site(
            {
                "app.py": "import pkg\n",
                "pkg/__init__.py": init.replace("iter_modules", "walk_packages"),
                "pkg/sub/__init__.py": "",
                "pkg/sub/two.py": "",
            }
        )
    )
    assert world.level(f"{S}/pkg/sub/two.py") == "deferred"


def test_entry_points_of_a_group_that_reached_code_asks_for() -> None:
    files = app(
        "from importlib.metadata import entry_points\nentry_points(group='app.plugins')\n",
        plug="def register():\n    import late\n",
        late="",
        other="",
    )
    points = (("app.plugins", "p", "plug:register"), ("other.group", "q", "other:x"))
    world = World(
        files, distributions=[Distribution("plug", "1", SITE, SITE + b"/plug-1.dist-info", 0, ("plug",), points)]
    )
    assert world.level(f"{S}/plug.py") == "deferred"
    assert world.level(f"{S}/late.py") == "deferred"
    assert world.level(f"{S}/other.py") == "unreached"


def test_vendored_copies_and_the_distutils_alias() -> None:
    files = {
        "app.py": "import tool\nimport distutils.util\n",
        "tool/__init__.py": "from tool.extern import wheel\nimport tomlish\n",
        "tool/_vendor/__init__.py": "",
        "tool/_vendor/wheel.py": "",
        "tool/_vendor/tomlish.py": "",
        "setuptools/__init__.py": "",
        "setuptools/_distutils/__init__.py": "",
        "setuptools/_distutils/util.py": "",
    }
    world = World(site(files))
    assert world.level(f"{S}/tool/_vendor/tomlish.py") == "deferred"
    assert world.level(f"{S}/setuptools/_distutils/util.py") == "deferred"


def test_code_loaded_by_a_path_that_folds() -> None:
    source = "import os\nfrom importlib.util import spec_from_file_location\nspec_from_file_location('x', os.path.join(os.path.dirname(__file__), 'data', 'plug.py'))\n"
    world = World(site({"app.py": source, "data/plug.py": "import late\n", "late.py": ""}))
    assert world.level(f"{S}/data/plug.py") == "deferred"
    assert world.level(f"{S}/late.py") == "deferred"


def test_code_loaded_by_an_unknown_path_under_a_known_name_is_that_module() -> None:
    source = "from importlib.util import spec_from_file_location\nspec_from_file_location('torch.version', open('x').read())\n"
    files = site(
        {
            "app/__init__.py": "",
            "app/__main__.py": source,
            "app/quiet.py": "",
            "torch/__init__.py": "",
            "torch/version.py": "",
        }
    )
    world = World(files, owned={"app": [f"{S}/app".encode()]})
    assert world.level(f"{S}/torch/version.py") == "deferred"
    assert world.level(f"{S}/app/quiet.py") == "unreached"


def test_code_loaded_by_any_path_makes_the_calling_distribution_unknown() -> None:
    source = "from importlib.util import spec_from_file_location\nspec_from_file_location(open('n').read(), open('x').read())\n"
    files = site({"app/__init__.py": "", "app/__main__.py": source, "app/quiet.py": "", "other/quiet.py": ""})
    world = World(files, owned={"app": [f"{S}/app".encode()], "other": [f"{S}/other".encode()]})
    assert world.level(f"{S}/app/quiet.py") == "unknown"
    assert world.level(f"{S}/other/quiet.py") == "unreached"


def test_guarded_blocks_run_only_in_the_main_module() -> None:
    guarded = "def f():\n    pass\nif __name__ == '__main__':\n    import only_main\n"
    assert World(app(guarded, only_main="")).level(f"{S}/only_main.py") == "eager"
    world = World(app("import lib\n", lib=guarded, only_main=""))
    assert world.level(f"{S}/only_main.py") in ("dormant", "unreached")


def test_a_child_started_as_a_module_belongs_to_its_parent() -> None:
    source = "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pkg.child'])\n"
    child = "if __name__ == '__main__':\n    import in_child\n"
    world = World(site({"app.py": source, "pkg/__init__.py": "", "pkg/child.py": child, "in_child.py": ""}))
    assert world.level(f"{S}/pkg/child.py") == "deferred"
    assert world.level(f"{S}/in_child.py") == "deferred"


def test_a_child_started_with_code() -> None:
    source = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import in_child'])\n"
    assert World(app(source, in_child="")).level(f"{S}/in_child.py") in ("eager", "deferred")


def test_namespace_packages_and_extension_before_source() -> None:
    files = site({"app.py": "import space.mod, both\n", "space/mod.py": "", "both.py": ""})
    files[f"{S}/both.abi3.so"] = "ELF"
    world = World(files, elves={f"{S}/both.abi3.so": ElfFacts(62, 64, python=True)})
    assert world.level(f"{S}/space/mod.py") == "eager"
    assert world.level(f"{S}/both.abi3.so") == "eager"
    assert world.level(f"{S}/both.py") == "unreached"


def test_extensions_for_another_interpreter_are_not_loaded() -> None:
    files = site({"app.py": "import ext\n"})
    files[f"{S}/ext.cpython-311-x86_64-linux-gnu.so"] = "ELF"
    world = World(files)
    assert world.level(f"{S}/ext.cpython-311-x86_64-linux-gnu.so") != "eager"


def test_an_extended_path_finds_submodules_elsewhere() -> None:
    files = site(
        {
            "app.py": "import pkg.there\n",
            "pkg/__init__.py": "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n",
        }
    )
    files["opt/more/pkg/there.py"] = ""
    world = World(files, env=["PYTHONPATH=/opt/more"])
    # The package on PYTHONPATH has no __init__: the regular one wins, and is made wider.
    assert world.level("opt/more/pkg/there.py") == "eager" or world.level("opt/more/pkg/there.py") == "deferred"


def test_chains_are_shortest_and_say_line_and_function() -> None:
    files = {
        "app.py": "import core\n",
        "core.py": "import helpers\n\n\nimport long1\nhelpers.start()\n",
        "helpers.py": "\n\ndef start():\n    import server\n",
        "server.py": "",
        "long1.py": "import helpers\n",
    }
    world = World(site(files))
    assert world.chain(f"{S}/server.py") == [
        ("app", 1, "the entry: -m app", "root"),
        ("core", 1, None, "import"),
        ("helpers", 4, "start", "import"),
        ("server", None, None, "deferred"),
    ]


def test_pyc_and_source_share_the_evidence() -> None:
    files = app("import lib\n", lib="", never="")
    files[f"{S}/__pycache__/lib.cpython-312.pyc"] = b"x"
    files[f"{S}/__pycache__/never.cpython-312.pyc"] = b"x"
    world = World(files)
    assert world.level(f"{S}/__pycache__/lib.cpython-312.pyc") == "eager"
    assert world.level(f"{S}/__pycache__/never.cpython-312.pyc") == "unreached"


def test_an_unreadable_module_blocks_the_roles_that_reach_it() -> None:
    world = World(app("import broken\n", broken="def (:\n", fine="def (:\n"))
    spots = [spot for spot in world.trace.blindspots if spot.path == f"{S}/broken.py".encode()]
    assert spots
    assert spots[0].roles == ("main",)
    assert not [spot for spot in world.trace.blindspots if spot.path == f"{S}/fine.py".encode()]


@pytest.mark.parametrize(
    "call", ["import_module(f'opt_{sys.argv[1]}')", "import_module('opt_' + sys.argv[1] + '.run')"]
)
def test_the_beginning_of_a_top_level_name_is_followed(call: str) -> None:
    world = World(app(f"import sys\nfrom importlib import import_module\n{call}\n", opt_a="", opt_b__run="", other=""))
    assert [world.level(f"{S}/{path}") for path in ("opt_a.py", "other.py")] == ["deferred", "unreached"]
    assert world.level(f"{S}/opt_b/run.py") == ("deferred" if "run" in call else "unreached")


def test_the_directory_of_all_installed_packages_is_no_name_that_a_word_gives() -> None:
    source = "import importlib\nWHERE = 'site-packages'\ndef load(name):\n    return importlib.import_module(name)\nload(x)\n"
    world = World(app(source, other=""))
    assert world.level(f"{S}/other.py") == "unreached"
    named = World(app("import importlib\nimportlib.import_module('site-packages.other')\n", other=""))
    assert named.level(f"{S}/other.py") == "deferred"


@pytest.mark.parametrize(
    ("call", "level"),
    [
        ("attach(token)", "unreached"),  # of a context, a process, a debugger
        ("attach(token, submodules)", "deferred"),  # lazy_loader's
        ("attach(token, submod_attrs=given)", "deferred"),
    ],
)
def test_only_an_attach_that_is_given_what_to_attach_imports(call: str, level: str) -> None:
    source = f"from somewhere import attach\nWORD = 'alpha'\ndef late(token, submodules, given):\n    {call}\nlate\n"
    files = site({"app.py": "import pkg\n", "pkg/__init__.py": source, "pkg/plugins/alpha.py": ""})
    assert World({**files, **site({"pkg/plugins/__init__.py": ""})}).level(f"{S}/pkg/plugins/alpha.py") == level


ASKS = "from importlib.metadata import entry_points\nfrom os import environ\n"


@pytest.mark.parametrize(
    ("source", "one", "two"),
    [
        # One by name: that one.
        ("entry_points(group='g.x', name='one')", "deferred", "unreached"),
        ("entry_points().select(group='g.x', name='one')", "deferred", "unreached"),
        # By a name that only a run can tell: any of them (but see test_trace_entry_points).
        ("for n in environ['N'].split(','): entry_points(group='g.x', name=n)", "deferred", "deferred"),
        ("import json; entry_points(group='g.x', name=json.load(open('/mnt/c'))['n'])", "deferred", "deferred"),
        ("import os; [entry_points(group='g.x', name=n) for n in os.listdir('/mnt')]", "deferred", "deferred"),
        ("entry_points(group='g.x', name=f'o{environ}')", "deferred", "unreached"),
        # Not by name: all, whoever else asks for one.
        ("entry_points(group='g.x')", "deferred", "deferred"),
        ("entry_points(group='g.x', name='one'); entry_points(group='g.x')", "deferred", "deferred"),
        # The group is computed: what strings name, but not one that stands only where one of it is asked for.
        ("entry_points(group=environ['G']); 'g.x'.upper()", "deferred", "deferred"),
        ("entry_points(group=environ['G']); entry_points(group='g.x', name='one')", "deferred", "unreached"),
        (
            "entry_points(group=environ['G']); entry_points(group='g.x', name='one'); print('g.x')",
            "deferred",
            "deferred",
        ),
        ("G = 'g.x'; entry_points(group=environ['G']); entry_points(group=G, name='one')", "deferred", "deferred"),
        ("entry_points(group=f'g.{environ}'); print('g.x')", "deferred", "deferred"),
        ("entry_points(group=f'other.{environ}'); print('g.x')", "unreached", "unreached"),
    ],
)
def test_which_entry_points_of_a_group_are_asked_for(source: str, one: str, two: str) -> None:
    points = (("g.x", "one", "first"), ("g.x", "two", "second"))
    plug = Distribution("plug", "1", SITE, SITE + b"/plug-1.dist-info", 0, (), points)
    found = World(app(ASKS + source + "\n", first="", second=""), distributions=[plug])
    assert [found.level(f"{S}/{name}.py") for name in ("first", "second")] == [one, two]
