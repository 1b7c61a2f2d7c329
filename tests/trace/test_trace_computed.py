"""Import names that code puts together from other text."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.trace.world import SITE, World, site

S = SITE.decode()
IMPORT = "from importlib import import_module\n"


def package(
    loader: str, modules: Mapping[str, str] | None = None, main: str = "import pkg.loader\npkg.loader.go()\n"
) -> World:
    """An image whose entry calls ``pkg.loader.go``, with further ``modules`` of ``pkg``."""
    files: dict[str, bytes | str] = {"app.py": main, "pkg/__init__.py": "", "pkg/loader.py": loader}
    files.update({f"pkg/{name}.py": text for name, text in (modules or {}).items()})
    files.setdefault("pkg/hidden_module.py", "from pkg import deeper_one\n")
    files.setdefault("pkg/deeper_one.py", "")
    files.setdefault("pkg/nothing_of_it.py", "")
    return World(site(files))


def hidden(world: World) -> tuple[str, str, str]:
    """The levels of the module that is imported, of what it imports, and of one that nothing names."""
    return (
        world.level(f"{S}/pkg/hidden_module.py"),
        world.level(f"{S}/pkg/deeper_one.py"),
        world.level(f"{S}/pkg/nothing_of_it.py"),
    )


FOUND = ("deferred", "deferred", "unreached")
ALL = ("deferred", "deferred", "deferred")


@pytest.mark.parametrize(
    ("constant", "expression"),
    [
        ("PKG.HIDDEN_MODULE", "NAME.lower()"),
        ("Pkg.Hidden_Module", "NAME.casefold()"),
        ("pKG.hIDDEN_mODULE", "NAME.swapcase()"),
        ("pkg.hidden-module", 'NAME.replace("-", "_")'),
        ("pkg/hidden_module", 'NAME.replace("/", ".")'),
        ("pkg hidden_module", '".".join(NAME.split())'),
        ("HiddenModule", 'x + "." + re.sub("(?<!^)(?=[A-Z])", "_", NAME).lower()'),
    ],
)
def test_a_text_that_differs_in_case_and_separators_names_a_module(constant: str, expression: str) -> None:
    loader = IMPORT + f"import re\nNAME = {constant!r}\ndef go(x=None):\n    return import_module({expression})\n"
    assert hidden(package(loader)) == FOUND


def test_such_a_text_may_stand_in_another_module_of_the_package() -> None:
    loader = IMPORT + "import pkg.table\ndef go(x=None):\n    return import_module(norm(pkg.table.NAME))\n"
    assert hidden(package(loader, {"table": 'NAME = "Hidden-Module"\n'})) == FOUND


@pytest.mark.parametrize(
    ("constant", "expression"),
    [
        ("pkg.hidden_module_abc", "NAME[:-4]"),
        ("abc:pkg.hidden_module", "NAME[4:]"),
        ("X.hidden_module", 'NAME.replace("X", "pkg")'),
        (" pkg.hidden_module\n", "NAME.strip()"),
        ("pkg.hidden_module!!", 'NAME.rstrip("!")'),
        ("pkg.hidden_module.py", 'NAME.removesuffix(".py")'),
        ("modpkghidden_module", 'x + NAME.removeprefix("modpkg")'),
        ("some,hidden_module;none", 'x + NAME.split(",")[1][:-5]'),
    ],
)
def test_a_text_that_holds_a_name_names_the_module_where_it_is_imported(constant: str, expression: str) -> None:
    loader = IMPORT + f"NAME = {constant!r}\ndef go(x=None):\n    return import_module({expression})\n"
    assert hidden(package(loader)) == FOUND


@pytest.mark.parametrize("constant", ["eludom_neddih.gkp", "ELUDOM_NEDDIH"])
def test_a_name_that_is_read_backwards(constant: str) -> None:
    loader = IMPORT + f"NAME = {constant!r}\ndef go(x=None):\n    return import_module(x + NAME[::-1])\n"
    assert hidden(package(loader)) == FOUND


@pytest.mark.parametrize(
    ("constant", "expression", "path"),
    [
        ("quiet", "NAME.title()", "Quiet.py"),
        ("loud.voice", "NAME.upper()", "LOUD/VOICE.py"),
        ("my-far-one", 'NAME.replace("-", "_")', "my_far_one.py"),
    ],
)
def test_a_name_of_another_top_level_module(constant: str, expression: str, path: str) -> None:
    files: dict[str, bytes | str] = {"app.py": "import pkg\npkg.go()\n", path: "", "apart.py": ""}
    files["pkg.py"] = IMPORT + f"NAME = {constant!r}\ndef go(x=None):\n    return import_module({expression})\n"
    world = World(site(files))
    assert world.level(f"{S}/{path}") == "deferred"
    assert world.level(f"{S}/apart.py") == "unreached"


def test_a_list_of_parts_that_may_have_grown() -> None:
    loader = IMPORT + 'PARTS = ["pkg", "hidden_module"]\ndef go():\n    return import_module(".".join(PARTS))\n'
    assert hidden(package(loader)) == FOUND


def test_a_name_of_two_texts() -> None:
    loader = IMPORT + 'def go(x=None):\n    a, b = "hidden_", "module"\n    return import_module(x + a + b)\n'
    assert hidden(package(loader)) == FOUND


def test_a_pattern_that_fixes_a_part_of_the_name() -> None:
    loader = IMPORT + 'def go(x=None):\n    return import_module(x + "hidden_" + x)\n'
    assert hidden(package(loader)) == FOUND


@pytest.mark.parametrize("expression", ["C.__name__.lower()", "C.__qualname__.casefold()"])
def test_the_name_of_a_class_names_a_module_where_code_makes_text_of_it(expression: str) -> None:
    load = f"def load(C, x):\n    n = {expression}\n    return import_module(n)\n"
    loader = IMPORT + load + "def go(x=None):\n    return load(Hidden_Module, x)\n"
    assert hidden(package(loader))[0] == "deferred"


def test_the_name_of_a_class_names_no_module_where_no_code_makes_text_of_it() -> None:
    loader = IMPORT + "def go(x=None):\n    print(HiddenModule)\n    return import_module(x)\n"
    assert hidden(package(loader)) == ("unreached", "unreached", "unreached")


def test_a_text_in_other_case_names_nothing_where_no_name_is_computed() -> None:
    loader = 'NAME = "PKG.HIDDEN_MODULE"\ndef go(x=None):\n    return NAME.lower()\n'
    assert hidden(package(loader)) == ("unreached", "unreached", "unreached")


@pytest.mark.parametrize(
    "body",
    [
        "for f in os.listdir(os.path.dirname(__file__)):\n        import_module(f[:-3], x)",
        'for f in glob.glob(os.path.join(os.path.dirname(__file__), "*.py")):\n        import_module(f[:-3], x)',
        "for f in Path(__file__).parent.iterdir():\n        import_module(f.stem, x)",
        "for f in os.scandir(__path__[0]):\n        import_module(f.name[:-3], x)",
    ],
)
def test_code_that_lists_its_own_directory_imports_what_lies_there(body: str) -> None:
    loader = IMPORT + f"import glob, os\nfrom pathlib import Path\ndef go(x=None):\n    {body}\n"
    assert hidden(package(loader)) == ALL


def test_a_walk_goes_below_and_a_listing_only_where_a_directory_is_named() -> None:
    modules = {"one/__init__": "", "one/inner": "", "two/__init__": "", "two/inner": ""}
    loader = IMPORT + "import os\ndef go(x=None):\n    for f in {}:\n        import_module(f[:-3], x)\n"
    listing = package(loader.format('os.listdir(os.path.join(os.path.dirname(__file__), "one"))'), modules)
    assert listing.level(f"{S}/pkg/one/inner.py") == "deferred"
    assert listing.level(f"{S}/pkg/two/inner.py") == "unreached"
    walk = package(loader.format("os.walk(os.path.dirname(__file__))"), modules)
    assert walk.level(f"{S}/pkg/two/inner.py") == "deferred"


def test_a_directory_that_a_caller_hands_over_is_the_callers() -> None:
    helper = (
        IMPORT
        + "import os\ndef load_all(d, package):\n    for f in os.listdir(d):\n        import_module(f, package)\n"
    )
    modules = {
        "one/inner": "",
        "one/__init__": "import os\nfrom pkg.helper import load_all\nload_all(os.path.dirname(__file__), x)\n",
    }
    world = package("import pkg.one\ndef go(): pass\n", {"helper": helper, **modules})
    assert world.level(f"{S}/pkg/one/inner.py") == "deferred"
    assert hidden(world) == ("unreached", "unreached", "unreached")


@pytest.mark.parametrize(
    "expression",
    [
        "base64.b64decode(NAME).decode()",
        'codecs.decode(NAME, "rot13")',
        "bytes.fromhex(NAME).decode()",
        '"".join(chr(each) for each in NAME)',
        'b"pkg.hidden_module".decode()',
        "bytes(NAME).decode()",
        '"".join(reversed(NAME))',
        "NAME.translate(TABLE)",
        "zlib.decompress(NAME).decode()",
    ],
)
def test_what_decodes_a_name_can_import_whatever_lies_in_its_package(expression: str) -> None:
    loader = IMPORT + f"import base64, codecs, zlib\ndef go(x=None):\n    return import_module({expression})\n"
    world = package(loader, {"far/__init__": "", "far/away": ""})
    assert hidden(world) == ALL
    assert world.level(f"{S}/pkg/far/away.py") == "unreached"


def test_decoding_elsewhere_widens_nothing() -> None:
    loader = (
        "import base64\ndef go(x=None):\n    return import_module(x)\ndef other():\n    return base64.b64decode(x)\n"
    )
    assert hidden(package(loader, main="import pkg.loader\npkg.loader.go()\npkg.loader.other()\n")) == (
        "unreached",
        "unreached",
        "unreached",
    )


@pytest.mark.parametrize("module", ["server", "pkg.server"])
@pytest.mark.parametrize("attribute", ["app", "a.b", "create_app()", "create_app('x')", "create_app(a=1)"])
def test_an_object_in_a_module_names_it_in_code_as_on_the_command_line(module: str, attribute: str) -> None:
    """``uvicorn.run("main:app")``; a call makes it, where servers let a factory be named."""
    load = "import importlib\ndef run(text):\n    importlib.import_module(text.partition(':')[0])\n"
    path = module.replace(".", "/") + ".py"
    modules = {"srv/__init__.py": "", "srv/load.py": load, "pkg/__init__.py": "", path: ""}
    said = site({**modules, "app.py": f'from srv.load import run\nrun("{module}:{attribute}")\n'})
    assert World(said).level(f"{SITE.decode()}/{path}") == "deferred"
    main = "import sys\nfrom srv.load import run\nrun(sys.argv[1])\n"
    told = World(site({**modules, "srv/__main__.py": main}), argv=("python3.12", "-m", "srv", f"{module}:{attribute}"))
    assert told.level(f"{SITE.decode()}/{path}") == "deferred"


def test_words_around_a_colon_name_no_module() -> None:
    """Where nothing follows it, or a space does, it is a sentence."""
    load = "import importlib\ndef run(text):\n    importlib.import_module(text.partition(':')[0])\n"
    code = "from load import run\nprint('server: up', 'server:')\nrun(input())\n"
    assert World(site({"load.py": load, "app.py": code, "server.py": ""})).level(f"{SITE.decode()}/server.py") in (
        "unreached",
        "unknown",
    )
