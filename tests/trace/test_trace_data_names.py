"""Modules whose names stand only in data files that reached code can read."""

from __future__ import annotations

import gzip
import json
import pickle
import pickletools
import sqlite3
import sys
import types
from collections.abc import Mapping
from pathlib import Path

import pytest

from imgdiff.model import Distribution, ElfFacts
from tests.support.command import Shell, layout
from tests.trace.world import SITE, Facts, World, site

S = SITE.decode()
LOADER = """
import importlib
def load(name):
    return importlib.import_module(name)
"""
PACKAGE: dict[str, bytes | str] = {
    "app.py": "from pkg.loader import load\nload(open('x').read())\n",
    "pkg/__init__.py": "",
    "pkg/loader.py": LOADER,
    "pkg/plugins/__init__.py": "",
    "pkg/plugins/alpha.py": "class Alpha:\n    pass\n",
    "pkg/plugins/beta.py": "",
}
FORMATS: list[tuple[str, str]] = [
    ("plugins.json", '{"x": "NAME"}'),
    ("plugins.jsonl", '{"x": "NAME"}\n{"x": 1}\n'),
    ("plugins.ini", "[plugins]\nx = NAME\n"),
    ("plugins.cfg", "[plugins]\nx: NAME\n"),
    ("plugins.conf", "x NAME;\n"),
    ("plugins.toml", 'x = "NAME"\n'),
    ("plugins.yaml", "x:\n  - NAME\n"),
    ("plugins.yml", "x: {class: NAME}\n"),
    ("plugins.txt", "# first\nNAME\n"),
    ("plugins.csv", "kind,module\nx,NAME\n"),
    ("plugins.tsv", "kind\tmodule\nx\tNAME\n"),
    ("plugins.xml", '<plugins><plugin module="NAME"/></plugins>'),
    ("plugins.properties", "x=NAME\n"),
    (".env", "BACKEND=NAME\n"),
    ("NAMES", "NAME\n"),
    ("plugins.list", "NAME\n"),
    ("deep/er/plugins.json", '["NAME"]'),
]


def packaged(extra: Mapping[str, bytes | str], **changes: str) -> dict[str, bytes | str]:
    return site({**PACKAGE, **{f"pkg/{name}": data for name, data in extra.items()}, **changes})


@pytest.mark.parametrize(("file", "template"), FORMATS, ids=[name for name, _ in FORMATS])
@pytest.mark.parametrize(
    "name",
    ["pkg.plugins.alpha", "pkg.plugins.alpha:Alpha", "pkg.plugins.alpha.Alpha", "plugins.alpha", ".alpha", "alpha"],
)
def test_a_module_named_in_a_packaged_file_is_deferred(file: str, template: str, name: str) -> None:
    world = World(packaged({file: template.replace("NAME", name)}))
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"
    assert world.level(f"{S}/pkg/plugins/beta.py") == "unreached"


def test_the_chain_names_the_data_file() -> None:
    world = World(packaged({"plugins.json": '{"x": "pkg.plugins.alpha"}'}))
    evidence = world.trace.roles["main"].evidence(f"{S}/pkg/plugins/alpha.py".encode())
    assert [(hop.module, hop.path.decode(), hop.line, hop.function, hop.edge) for hop in evidence.chain][1:] == [
        ("pkg.loader", f"{S}/pkg/loader.py", 4, "load", "import"),
        (None, f"{S}/pkg/plugins.json", None, None, "data"),
        ("pkg.plugins.alpha", f"{S}/pkg/plugins/alpha.py", None, None, "string"),
    ]
    assert set(world.trace.roles["main"].modules) >= {"pkg.plugins.alpha"}
    assert not any("json" in name for name in world.trace.roles["main"].modules)


def test_what_a_named_module_imports_is_reached_too() -> None:
    world = World(
        packaged(
            {"plugins.json": '"alpha"', "plugins/alpha.py": "from . import gamma\n", "plugins/gamma.py": ""},
        )
    )
    assert world.level(f"{S}/pkg/plugins/gamma.py") == "deferred"


def test_names_lead_on_from_file_to_file() -> None:
    """What a data file names has data of its own, and the order in which they are found does not matter."""
    files = {
        "aa/__init__.py": "",
        "aa/one.py": "",
        "aa/data.json": '"pkg.plugins.beta"',
        "zz/__init__.py": "",
        "zz/data.json": '"aa.one"',
    }
    world = World(packaged({"plugins.json": '"zz"'}, **files))
    assert [world.level(f"{S}/{name}") for name in ("zz/__init__.py", "aa/one.py", "pkg/plugins/beta.py")] == [
        "deferred"
    ] * 3


def test_a_package_that_imports_no_computed_name_stays_as_it_is() -> None:
    world = World(packaged({"plugins.json": '"pkg.plugins.alpha"', "loader.py": "def load(name):\n    return name\n"}))
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "unreached"


def test_data_of_a_package_that_is_not_reached_names_nothing() -> None:
    files = {"other/__init__.py": "", "other/data.json": '["other.mod", "pkg.plugins.alpha"]', "other/mod.py": ""}
    world = World(packaged({}, **files))
    assert world.level(f"{S}/other/mod.py") == "unreached"
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "unreached"


def test_last_parts_count_within_the_package_of_the_reader() -> None:
    files = {"other/__init__.py": "", "other/alpha.py": ""}
    world = World(packaged({"plugins.json": '"alpha"'}, **files))
    assert world.level(f"{S}/other/alpha.py") == "unreached"


def test_data_of_the_same_distribution_counts_wherever_it_lies() -> None:
    files = {**packaged({}), "usr/share/pkg/plugins.json": '"alpha"', "usr/share/other.json": '"beta"'}
    owned = {"pkg": [SITE + b"/pkg/", b"usr/share/pkg/"]}
    world = World(files, owned=owned)
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"
    assert world.level(f"{S}/pkg/plugins/beta.py") == "unreached"


@pytest.mark.parametrize(
    "loader",
    [
        "open('/etc/pkg/plugins.json')",
        "open('pkg/plugins.json')",
        "open(os.path.join(root, 'plugins.json'))",
        "open(f'{root}/plugins.json')",
        "os.listdir('/etc/pkg')",
        "glob.glob('/etc/pkg/*.json')",
        "glob.glob(root + '/plug*.json')",
    ],
)
def test_data_that_reached_code_names_counts(loader: str) -> None:
    source = f"import glob, os\nroot = os.environ['R']\n{LOADER}x = {loader}\n"
    world = World({**packaged({"loader.py": source}), "etc/pkg/plugins.json": '"alpha"'})
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"
    hops = world.chain(f"{S}/pkg/plugins/alpha.py")
    assert hops[-2] == (None, None, None, "named")


def test_data_that_nothing_names_does_not_count() -> None:
    world = World({**packaged({}), "etc/pkg/plugins.json": '["alpha", "pkg.plugins.alpha"]'})
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "unreached"


@pytest.mark.parametrize(
    ("argv", "env"),
    [(("--config", "/etc/pkg/plugins.json"), ()), ((), ("CONFIG=/etc/pkg/plugins.json",)), (("-c=plugins.json",), ())],
)
def test_data_that_the_command_line_or_env_names_counts(argv: tuple[str, ...], env: tuple[str, ...]) -> None:
    files = {**packaged({}), "etc/pkg/plugins.json": '"pkg.plugins.alpha"'}
    world = World(files, argv=("python3.12", "-m", "app", *argv), env=env)
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"


SCRIPT = "import importlib, json\nimportlib.import_module(json.load(open('x'))['x'])\n"


@pytest.mark.parametrize("data", ["srv/app/plugins.json", "srv/app/conf/plugins.json", "work/plugins.json"])
@pytest.mark.parametrize("name", ["alpha", "plug.one", "plug.one:run"])
def test_data_beside_a_script_or_in_the_working_directory_counts(data: str, name: str) -> None:
    files = {
        "srv/app/main.py": SCRIPT,
        "srv/app/alpha.py": "",
        "srv/app/beta.py": "",
        "srv/app/plug/__init__.py": "",
        "srv/app/plug/one.py": "",
        data: json.dumps({"x": name}),
    }
    world = World(files, argv=("python3.12", "/srv/app/main.py"), cwd="/work")
    path = "alpha.py" if name == "alpha" else "plug/one.py"
    assert world.level(f"srv/app/{path}") == "deferred"
    assert world.level("srv/app/beta.py") == "unreached"


def test_a_list_of_requirements_names_no_module_by_a_single_word() -> None:
    files = {"srv/app/main.py": SCRIPT, "srv/app/requirements.txt": "lib\n", **site({"lib/__init__.py": ""})}
    files["srv/app/own.py"] = ""
    files["srv/app/pyproject.toml"] = "[tool.app]\nbackend = 'own'\ndependencies = ['lib']\n"
    owned = {"lib": [SITE + b"/lib/"]}
    world = World(files, argv=("python3.12", "/srv/app/main.py"), cwd="/srv/app", owned=owned)
    assert world.level(f"{S}/lib/__init__.py") == "unreached"
    assert world.level("srv/app/own.py") == "deferred"


def test_package_and_module_may_stand_apart() -> None:
    """``{"package": "pkg.plugins", "module": "alpha"}``, read by a script of another package."""
    files = {
        "srv/app/main.py": SCRIPT,
        "srv/app/x.json": '{"package": "pkg.plugins", "module": "alpha"}',
        **packaged({}),
    }
    world = World(files, argv=("python3.12", "/srv/app/main.py"), cwd="/srv/app")
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"
    assert world.level(f"{S}/pkg/plugins/beta.py") == "unreached"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("x.json", '"pkg\\u002eplugins\\u002ealpha"'),
        ("x.yaml", 'x: "pkg\\x2eplugins\\x2ealpha"'),
        ("x.xml", "<x>pkg&#46;plugins&#x2e;alpha</x>"),
        ("x.yaml", "x: !!python/object:pkg.plugins.alpha.Alpha {}\n"),
        ("x.yaml", "x: !!python/name:pkg.plugins.alpha.Alpha\n"),
        ("x.json", '{"_target_": "pkg.plugins.alpha.Alpha"}'),
        ("x.ini", "[handler_x]\nclass=pkg.plugins.alpha.Alpha\nargs=()\n"),
        ("x.ini", "[handler_x]\nclass:pkg.plugins.alpha.Alpha\n"),
        ("x.json", "\ufeff" + '"pkg.plugins.alpha"'),
    ],
)
def test_ways_to_write_a_name(file: str, text: str) -> None:
    world = World(packaged({file: text}))
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"
    assert world.level(f"{S}/pkg/plugins/beta.py") == "unreached"


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8-sig"])
def test_encodings(encoding: str) -> None:
    world = World(packaged({"x.txt": "é = pkg.plugins.alpha\n".encode(encoding)}))
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"


def test_the_name_of_an_attribute_counts_as_referred() -> None:
    files = {"plugins/alpha.py": "def go():\n    import late\n", "x.json": '"pkg.plugins.alpha:go"'}
    assert World(packaged(files, **{"late.py": ""})).level(f"{S}/late.py") == "deferred"


def pickled(module: str, name: str, protocol: int, monkeypatch: pytest.MonkeyPatch) -> bytes:
    made = type(name, (), {"__module__": module, "__qualname__": name})
    holder = types.ModuleType(module)
    setattr(holder, name, made)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], types.ModuleType(module.partition(".")[0]))
    monkeypatch.setitem(sys.modules, module, holder)
    return pickle.dumps({"x": made(), "words": ["y"]}, protocol)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("length", [3, 60])
def test_a_pickle_names_its_classes(
    protocol: int, optimized: bool, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpickling imports them, whatever the package does."""
    top = "p" * length
    files: dict[str, bytes | str] = {
        "app.py": f"import pickle\nimport {top}\npickle.load(open('x'))\n",
        f"{top}/__init__.py": "",
        f"{top}/shapes.py": "",
        f"{top}/unused.py": "",
    }
    data = pickled(f"{top}.shapes", "Circle", protocol, monkeypatch)
    files[f"{top}/model.pkl"] = pickletools.optimize(data) if optimized else data
    world = World({**site(files), "usr/lib/python3.12/pickle.py": "def load(f):\n    __import__(f.read())\n"})
    assert world.level(f"{S}/{top}/shapes.py") == "deferred"
    assert world.level(f"{S}/{top}/unused.py") == "unreached"


def test_a_database_names_modules(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.db") as database:
        database.execute("create table plugin (name text)")
        database.execute("insert into plugin values ('pkg.plugins.alpha')")
    database.close()
    world = World(packaged({"x.db": (tmp_path / "x.db").read_bytes()}))
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"


def test_logging_configured_from_a_file_imports_what_it_names() -> None:
    """``logging.config`` imports by itself; the package has no import by computed name."""
    files = {
        "app.py": "import logging.config\nimport pkg\nlogging.config.fileConfig('logging.ini')\n",
        "pkg/__init__.py": "",
        "pkg/handlers.py": "",
        "pkg/logging.ini": "[handler_x]\nclass=pkg.handlers.X\n",
    }
    standard = {
        "usr/lib/python3.12/logging/__init__.py": "",
        "usr/lib/python3.12/logging/config.py": "def fileConfig(n):\n    return __import__(n)\n",
    }
    assert World({**site(files), **standard}).level(f"{S}/pkg/handlers.py") == "deferred"


def test_a_library_that_imports_for_its_caller() -> None:
    """The caller hands over what its own data names; the import stands in another package."""
    files = {
        "app.py": "import lib\nimport pkg\nlib.make(pkg.config())\n",
        "lib.py": LOADER.replace("load(", "make("),
        "pkg/__init__.py": "def config():\n    return open('conf.yaml')\n",
        "pkg/models.py": "",
        "pkg/unused.py": "",
        "pkg/conf.yaml": "_target_: pkg.models.Net\n",
    }
    world = World(site(files))
    assert world.level(f"{S}/pkg/models.py") == "deferred"
    assert world.level(f"{S}/pkg/unused.py") == "unreached"


@pytest.mark.parametrize("link", [("srv/app/x.json", "/opt/conf/x.json"), ("srv/app/conf", "/opt/conf")])
def test_data_behind_a_link_counts(link: tuple[str, str]) -> None:
    files = {"srv/app/main.py": SCRIPT, "srv/app/alpha.py": "", "srv/app/beta.py": "", "opt/conf/x.json": '"alpha"'}
    world = World(files, argv=("python3.12", "/srv/app/main.py"), cwd="/work", links=dict([link]))
    assert world.level("srv/app/alpha.py") == "deferred"
    assert world.level("srv/app/beta.py") == "unreached"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ('"/opt/plugins/alpha.py"', "deferred"),
        ('"\\/opt\\/plugins\\/alpha.py"', "deferred"),
        ("x=plugins/alpha.py\n", "unknown"),
    ],
)
def test_code_that_data_names_by_path(text: str, level: str) -> None:
    loader = "from importlib.util import spec_from_file_location\ndef load(p):\n    spec_from_file_location('x', p)\n"
    files = {**packaged({"x.conf": text, "loader.py": loader}), "opt/plugins/alpha.py": "", "opt/plugins/beta.py": ""}
    world = World(files, owned={"pkg": [SITE + b"/pkg/"]})
    assert world.level("opt/plugins/alpha.py") == level
    assert world.level("opt/plugins/beta.py") == "unreached"


def test_a_library_that_data_names_by_path_is_unknown() -> None:
    files = {
        **packaged({"x.toml": 'lib = "/opt/x/libalpha.so.1"'}),
        "opt/x/libalpha.so.1": "",
        "opt/x/libbeta.so.1": "",
    }
    world = World(
        files,
        owned={"pkg": [SITE + b"/pkg/"]},
        elves={f"opt/x/lib{n}.so.1": ElfFacts(62, 64) for n in ("alpha", "beta")},
    )
    assert world.level("opt/x/libalpha.so.1") == "unknown"
    assert world.level("opt/x/libbeta.so.1") == "unreached"


@pytest.mark.parametrize(("file", "level"), [("big.json", "unknown"), ("words.txt", "unreached")])
def test_data_too_big_to_be_kept_leaves_a_question(file: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where its name says that it is data, and only for the package that imports by computed name."""
    kept = Facts.text
    monkeypatch.setattr(Facts, "text", lambda self, path: None if path.endswith(file.encode()) else kept(self, path))
    other = {"other/__init__.py": "", "other/mod.py": "", f"other/{file}": "x"}
    owned = {name: [f"{S}/{name}/".encode()] for name in ("pkg", "other")}
    world = World(packaged({file: "x", "loader.py": "import other\n" + LOADER}, **other), owned=owned)
    assert world.level(f"{S}/pkg/plugins/alpha.py") == level
    assert world.level(f"{S}/other/mod.py") == "unreached"


def test_data_too_big_to_be_kept_beside_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Facts.text
    monkeypatch.setattr(Facts, "text", lambda self, path: None if path.endswith(b"big.json") else kept(self, path))
    files = {"srv/app/main.py": SCRIPT, "srv/app/alpha.py": "", "srv/app/big.json": "x", **packaged({})}
    world = World(files, argv=("python3.12", "/srv/app/main.py"), cwd="/srv/app", owned={"pkg": [SITE + b"/pkg/"]})
    assert world.level("srv/app/alpha.py") == "unknown"
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "unreached"


# Over the command line ----------------------------------------------------------------------------------------------

ENTRY = b"import importlib, json\nimportlib.import_module(json.load(open('x'))['x'])\n"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"srv/app/plugins.json": b'{"x": "app.unused"}'}, 3),
        ({"srv/app/plugins.json": b'{"x": "app.other"}'}, 0),
        ({"srv/app/NAMES": b"unused\n"}, 3),
        ({"srv/app/plugins.pkl": pickle.dumps(["app.unused"])}, 3),
        ({"srv/app/plugins.yaml": b"#" * 1_100_000}, 3),  # not kept
    ],
)
def test_a_change_of_what_data_names_is_not_killed(data: dict[str, bytes], code: int, tmp_path: Path) -> None:
    files: dict[str, bytes | None] = {**data, "srv/app/__main__.py": ENTRY}
    a = layout(tmp_path / "a", files)
    b = layout(tmp_path / "b", {**files, "srv/app/unused.py": b"X = 2\n"})
    ran = Shell(tmp_path).fork(a, b)
    assert ran.code == code, ran.out


# The command line and ENV -------------------------------------------------------------------------------------------

GIVEN = {
    "srv/app/main.py": "import importlib, sys, os\nimportlib.import_module(sys.argv[1] + os.environ['X'])\n",
    "srv/app/alpha.py": "",
    "srv/app/beta.py": "",
    "srv/app/pkg/__init__.py": "",
    "srv/app/pkg/one.py": "",
}


@pytest.mark.parametrize(
    ("argv", "env", "path"),
    [
        (("alpha",), (), "alpha.py"),
        (("--backend", "alpha"), (), "alpha.py"),
        (("--backend=pkg.one:run",), (), "pkg/one.py"),
        (("pkg.one.Class",), (), "pkg/one.py"),
        ((), ("BACKEND=alpha",), "alpha.py"),
        ((), ("BACKENDS=gamma,alpha",), "alpha.py"),
        ((), ("BACKEND=pkg.one",), "pkg/one.py"),
        (("@/etc/app.args",), (), "pkg/one.py"),
    ],
)
def test_what_the_command_line_or_env_names_is_deferred(argv: tuple[str, ...], env: tuple[str, ...], path: str) -> None:
    files = {**GIVEN, "etc/app.args": "pkg.one"}
    world = World(files, argv=("python3.12", "/srv/app/main.py", *argv), env=env, cwd="/")
    assert world.level(f"srv/app/{path}") == "deferred"
    assert world.level("srv/app/beta.py") == "unreached"


def test_where_nothing_imports_by_computed_name_a_word_names_nothing() -> None:
    files = {**GIVEN, "srv/app/main.py": "import sys\n"}
    world = World(files, argv=("python3.12", "/srv/app/main.py", "alpha"), env=("BACKEND=alpha",), cwd="/")
    assert world.level("srv/app/alpha.py") == "unreached"


def test_the_chain_says_what_was_given() -> None:
    world = World(GIVEN, argv=("python3.12", "/srv/app/main.py"), env=("BACKEND=alpha",), cwd="/")
    assert world.chain("srv/app/alpha.py") == [
        ("main", 2, "<module>, given ENV BACKEND", "root"),
        ("alpha", None, None, "string"),
    ]


def test_what_code_puts_behind_a_name_that_it_is_given() -> None:
    """``celery -A proj`` imports ``proj`` and ``proj.celery``."""
    main = "import importlib, sys\ndef find(x):\n    importlib.import_module(x)\nfind(f'{sys.argv[1]}.tasks')\n"
    files = {"srv/main.py": main, "srv/proj/__init__.py": "", "srv/proj/tasks.py": "", "srv/proj/other.py": ""}
    world = World(files, argv=("python3.12", "/srv/main.py", "-A", "proj"), cwd="/srv")
    assert world.level("srv/proj/tasks.py") == "deferred"
    assert world.level("srv/proj/other.py") == "unreached"


# A file name alone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "naming", "level"),
    [
        # Another package's, of which nothing is reached: its directory is not known.
        (f"{S}/far/lib/README.md", "'README.md'", "unreached"),
        (f"{S}/far/lib/README.md", "join(d, 'README.md')", "unreached"),
        (f"{S}/far/lib/README.md", "f'{d}/README.md'", "unreached"),
        # It is reached, or a directory is named.
        (f"{S}/far/lib/README.md", "'README.md'; import far", "deferred"),
        (f"{S}/far/lib/README.md", "'lib/README.md'", "deferred"),
        (f"{S}/far/lib/README.md", "join(d, 'lib/README.md')", "deferred"),
        # In no installed package.
        (f"{S}/README.md", "'README.md'", "deferred"),
        (f"{S}/loose/README.md", "'README.md'", "deferred"),
        ("srv/data/README.md", "'README.md'", "deferred"),
    ],
)
def test_what_a_file_name_alone_names(path: str, naming: str, level: str) -> None:
    source = f"from os.path import join\nfrom pkg.loader import load\ndef read(d):\n    return load({naming.split(';')[0]})\n"
    source += "read(x)\n" + naming.partition("; ")[2]
    files = packaged({}, **{"app.py": source, "far/__init__.py": "", "far/beta.py": ""})
    found = World({**files, path: "see pkg.plugins.alpha\npkg.plugins.alpha\n"})
    assert found.level(f"{S}/pkg/plugins/alpha.py") == level


# Entry points -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "data", "env", "level"),
    [
        ("for e in entry_points():\n    e.load()\n", "", (), "deferred"),
        ("for d in distributions():\n    for e in d.entry_points:\n        e.load()\n", "", (), "deferred"),
        ("for e in entry_points(group=open('x').read()):\n    e.load()\n", '{"g": "odd-group.x"}', (), "deferred"),
        ("for e in entry_points(group=environ['G']):\n    e.load()\n", "", ("G=odd-group.x",), "deferred"),
        ("for e in entry_points(group=environ['G']):\n    e.load()\n", "", ("G=other",), "unreached"),
        ("for e in entry_points(group='other'):\n    e.load()\n", '{"g": "odd-group.x"}', (), "unreached"),
        ("for e in entry_points().select(group='other'):\n    e.load()\n", "", (), "unreached"),
        ("print(len(entry_points()))\n", "", (), "unreached"),
    ],
)
def test_groups_of_entry_points(source: str, data: str, env: tuple[str, ...], level: str) -> None:
    head = "from importlib.metadata import distributions, entry_points\nfrom os import environ\nimport pkg\n"
    if "distributions()" not in source:
        head = head.replace("distributions, ", "")
    plug = Distribution("plug", "1", SITE, SITE + b"/plug-1.dist-info", 0, (), (("odd-group.x", "a", "plug.x:run"),))
    files = site(
        {"app.py": head + source, "pkg/__init__.py": "", "pkg/x.json": data, "plug/__init__.py": "", "plug/x.py": ""}
    )
    assert World(files, env=env, distributions=[plug]).level(f"{S}/plug/x.py") == level


# More forms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("x.json.gz", gzip.compress(b'"pkg.plugins.alpha"')),
        ("x.md", b"plugin: pkg.plugins.alpha\n"),
        ("x.j2", b"pkg.plugins.alpha\n"),
        ("conf/alpha.json", b"{}"),
        ("conf/pkg.plugins.alpha", b""),
    ],
)
def test_more_forms_of_data(file: str, data: bytes) -> None:
    world = World(packaged({file: data}))
    assert world.level(f"{S}/pkg/plugins/alpha.py") == "deferred"
    assert world.level(f"{S}/pkg/plugins/beta.py") == "unreached"


def test_a_pickle_inside_of_an_array_names_its_classes() -> None:
    array = b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}\n" + pickle.dumps("x")[:-1] + b"\x8c\x09pkg.inner\x8c\x01C\x93."
    files: dict[str, bytes | str] = {"app.py": "import pickle\nimport pkg\n", "pkg/__init__.py": "", "pkg/inner.py": ""}
    files["pkg/x.npy"] = array
    world = World({**site(files), "usr/lib/python3.12/pickle.py": "def load(f):\n    __import__(f.read())\n"})
    assert world.level(f"{S}/pkg/inner.py") == "deferred"
