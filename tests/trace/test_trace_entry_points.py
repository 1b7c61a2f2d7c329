"""Entry points that ENV alone can name: those that the image names are followed, and all where another way is open."""

import base64

import pytest

from imgdiff.model import Distribution, ElfFacts, Profile, ProfileRole, RootGroup
from tests.trace.world import SITE, World, site

S = SITE.decode()
POINTS = (("g.x", "one", "first"), ("g.x", "two", "second"))
PLUG = Distribution("plug", "1", SITE, SITE + b"/plug-1.dist-info", 0, (), POINTS)
ASKS = "from importlib.metadata import entry_points\nfrom os import environ\n"
CALL = "entry_points(group='g.x', name=n)"
ENV = "entry_points(group='g.x', name=environ['WHICH'])"


def world(source: str, env: tuple[str, ...] = (), argv: tuple[str, ...] = ("python3.12", "-m", "app")) -> World:
    tools = {"bin/sh": "\x7fELF", "usr/bin/sh": "\x7fELF", "usr/bin/env": "\x7fELF"}
    return World({**app(source), **tools}, env=env, argv=argv, distributions=[PLUG])


def app(source: str) -> dict[str, bytes | str]:
    return site({"app.py": f"{ASKS}{source}\n", "first.py": "", "second.py": ""})


def levels(found: World) -> list[str]:
    return [found.level(f"{S}/{name}.py") for name in ("first", "second")]


def function(*lines: str, arguments: str = "") -> str:
    return "\n    ".join([f"def late({arguments}):", *lines]) + "\nlate\n"


@pytest.mark.parametrize(
    "source",
    [
        "entry_points(group='g.x', name=environ.get('WHICH', 'one'))",
        "entry_points(group='g.x', name=environ.get('WHICH', default='zero,ONE').strip().lower())",
        "import os\nentry_points(group='g.x', name=os.environ.get('WHICH') or 'one')",
        "import os as o\nentry_points(group='g.x', name=o.getenv('WHICH', 'one'))",
        "from os import getenv as g\nentry_points(group='g.x', name=g('WHICH', 'one'))",
        function("n = environ.get('WHICH', 'one')", "n = n.strip()", CALL),
        function("c: str = environ.get('WHICH', 'one')", "n = c", CALL),
        function(
            "c = environ.get('WHICH', 'one')",
            "if not c: return None",
            "for n in c.split(','):",
            "    n = n.strip()",
            "    if n.lower() == 'none': return None",
            f"    next(iter({CALL})).load()",
        ),
        # Wherever it is cut.
        function("for n in environ.get('WHICH', 'xonex').split('x'):", f"    {CALL}"),
        "entry_points(group='g.x', name=environ.get('WHICH', 'a-one').removeprefix('a-'))",
        # Code can write ENV: its own, or a child's.
        f"DEFAULT = 'one'\n{ENV}",
        f"DEFAULT = 'zero;one'\n{ENV}",
        f"environ['X'] = f'one,{{environ}}'\n{ENV}",
        f"NAMES = 'zero-ONE.txt'\n{ENV}",
        f"NAMES = 'o' + 'ne'\n{ENV}",
        f"class Kind:\n    one = 1\nprint(Kind.one.name)\n{ENV}",
        # The variable may be told to people, and read elsewhere.
        function("n = environ.get('WHICH', 'one')", "print('WHICH is not set')", CALL),
        function("n = environ.get('WHICH', 'one')", "if not n: raise ValueError(f'WHICH is {n}')", CALL),
        f"print(environ.get('WHICH'), 'one')\n{ENV}",
    ],
)
def test_what_the_image_names_is_followed(source: str) -> None:
    assert levels(world(source)) == ["deferred", "unreached"]


@pytest.mark.parametrize(
    "source",
    [
        # Not from ENV, or not from ENV alone.
        function(CALL, arguments="n"),
        function("n = environ.get('WHICH', n)", CALL, arguments="n"),
        function("n = environ.get('WHICH', 'one')", "n = open('/mnt/c').read()", CALL),
        function("n = environ.get('WHICH', open('/mnt/c').read())", CALL),
        function("n = environ.get('WHICH') or open('/mnt/c').read()", CALL),
        function("n = environ['WHICH']", "n = n.get('WHICH', 'one')", CALL),
        function("for n in [environ['WHICH'], open('/mnt/c').read()]:", f"    {CALL}"),
        function("c = environ['WHICH'].split(',')", "c.append(open('/mnt/c').read())", "for n in c:", f"    {CALL}"),
        function("n = environ['WHICH']", "n += open('/mnt/c').read()", CALL),
        function("n, m = open('/mnt/c')", "n = environ['WHICH']", CALL),
        function("n = m = environ['WHICH']", "for n in open('/mnt/c'): pass", CALL),
        function("n = environ['WHICH']", "with open('/mnt/c') as n:", f"    {CALL}"),
        function("n = environ['WHICH']", "if n := open('/mnt/c').read():", f"    {CALL}"),
        function("n = environ['WHICH']", "[n := m for m in open('/mnt/c')]", CALL),
        function("n = environ['WHICH']", "from settings import n", CALL),
        function("n = environ['WHICH']", "try:", "    pass", "except OSError as n:", f"    {CALL}"),
        function("n = environ['WHICH']", "match open('/mnt/c'):", "    case [n, *_]: pass", CALL),
        function("n = environ['WHICH']", "match open('/mnt/c'):", "    case [_, *n]: pass", CALL),
        function("n = environ['WHICH']", "match late:", "    case {'a': 1, **n}: pass", CALL),
        function("n = environ['WHICH']", "def n(): pass", CALL),
        function(
            "n = environ['WHICH']", "def put():", "    nonlocal n", "    n = open('/mnt/c').read()", "put()", CALL
        ),
        function("global n", "n = environ['WHICH']", CALL),
        function(f"[{CALL} for n in open('/mnt/c')]", "n = environ['WHICH']"),
        function("n = environ['WHICH']", f"return lambda n: {CALL}"),
        function("n = environ['WHICH']", "def inner(n):", f"    return {CALL}", "return inner"),
        function("n = environ['WHICH']", "class A:", "    n = open('/mnt/c').read()", f"    x = {CALL}"),
        function("n = environ['WHICH']", "exec(open('/mnt/c').read())", CALL),
        f"n = environ['WHICH']\n{CALL}",  # any module can set it
        # Text that becomes another.
        "entry_points(group='g.x', name=environ.get('WHICH', 'eno')[::-1])",
        "entry_points(group='g.x', name=environ.get('WHICH', 'tvo').replace('v', 'w'))",
        "entry_points(group='g.x', name=environ.get('WHICH', '').join(environ))",
        "entry_points(group='g.x', name=environ['WHICH'].translate(environ))",
        "entry_points(group='g.x', name=environ['A'] + environ['B'])",
        # None asks a wrapper for all.
        "entry_points(group='g.x', name=environ.get('WHICH'))",
        "entry_points(group='g.x', name=environ.get('WHICH', None))",
        function("n = None", "n = environ.get('WHICH', 'one')", CALL),
        function("m = environ.get('WHICH')", "k = m", "m = k", "n = k", CALL),
        # Another environ.
        "from settings import environ\nentry_points(group='g.x', name=environ['WHICH'])",
        f"from settings import *\n{ENV}",
        f"from .os import environ\n{ENV}",
        f"environ = dict(open('/mnt/c'))\n{ENV}",
        "import os\nos.environ = dict(open('/mnt/c'))\nentry_points(group='g.x', name=os.environ['WHICH'])",
        "import os\nimport settings as os\nentry_points(group='g.x', name=os.environ['WHICH'])",
        function(ENV, arguments="environ"),
        "import os\nos.environ.get = input\nentry_points(group='g.x', name=os.environ.get('WHICH'))",
        # The variable is said where ENV is not read by it: what is written to it could be any text.
        f"environ['WHICH'] = 'zero;one'\n{ENV}",
        f"environ['WHICH'] = open('/mnt/c').read()\n{ENV}",
        f"environ['WHICH'] = ''.join(['o', 'n', 'e'])\n{ENV}",
        f"environ.setdefault('WHICH', input())\n{ENV}",
        f"environ.update(WHICH=input())\n{ENV}",
        f"environ.update({{'WHICH': input()}})\n{ENV}",
        f"environ |= dict(WHICH=input())\n{ENV}",
        f"import os\nos.putenv('WHICH', input())\n{ENV}",
        f"import os\nos.environb[b'WHICH'] = input()\n{ENV}",
        f"import ctypes\nctypes.CDLL(None).setenv(b'WHICH', input().encode(), 1)\n{ENV}",
        f"import subprocess\nsubprocess.run(['x'], env={{'WHICH': input()}})\n{ENV}",
        f"K = 'WHICH'\nenviron[K] = input()\n{ENV}",
        f"environ['WH' + 'ICH'] = input()\n{ENV}",
        f"environ[''.join(['WH', 'ICH'])] = input()\n{ENV}",
        f"environ['%s%s' % ('WHI', 'CH')] = input()\n{ENV}",
        f"environ['which'.upper()] = input()\n{ENV}",
        f"environ['HCIHW'[::-1]] = input()\n{ENV}",
        f"from base64 import b64decode\nenviron[b64decode('{base64.b64encode(b'WHICH').decode()}').decode()] = 1\n{ENV}",
        f'NAMES = \'{{"WHICH":"zero"}}\'\n{ENV}',
        # The variable that is asked for is computed, or can be set.
        "entry_points(group='g.x', name=environ[input()])",
        "entry_points(group='g.x', name=environ['WH' + input()])",
        "K = 'WHICH'\nK = input()\nentry_points(group='g.x', name=environ[K])",
        "for K in environ: entry_points(group='g.x', name=environ[K])",
        "from settings import K\nentry_points(group='g.x', name=environ[K])",
        # What selects is not importlib's.
        f"from settings import entry_points\n{ENV}",
        f"def entry_points(group, name): return name\n{ENV}",
        f"import importlib.metadata\nimportlib.metadata.entry_points = input\n{ENV}",
        f"from importlib.metadata import EntryPoints\nEntryPoints.select = input\n{ENV}",
        f"import importlib.metadata as m\nm.__dict__['entry_points'] = input\n{ENV}",
        "entry_points().find().select(group='g.x', name=environ['WHICH'])",
        # Another call on the line, and more that the call is given.
        f"n = input(); {ENV}; {CALL}",
        "entry_points(group='g.x', name=environ['WHICH'], **dict(environ))",
        # Another place asks for any.
        f"{ENV}\nentry_points(group='g.x')",
        f"{ENV}\nentry_points(group='g.x', name=input())",
        # All are named.
        "entry_points(group='g.x', name=environ.get('WHICH', 'one,two'))",
        f"B = 'one'\nA = 'Two'.lower()\n{ENV}",
    ],
)
def test_any_is_loaded_where_another_than_env_could_name_it(source: str) -> None:
    assert levels(world(source)) == ["deferred", "deferred"]


def test_what_env_or_the_command_line_names_is_loaded() -> None:
    assert levels(world(ENV)) == ["unreached", "unreached"]
    assert levels(world(ENV, ("WHICH=zero,one",))) == ["deferred", "unreached"]
    assert levels(world(ENV, ("WHICH=zero",))) == ["unreached", "unreached"]
    assert levels(world(ENV, ("WHICH=x.oneTWO",))) == ["deferred", "deferred"]  # code can cut it anywhere
    assert levels(world(ENV, argv=("env", "WHICH=one", "python3.12", "-m", "app"))) == ["deferred", "unreached"]


@pytest.mark.parametrize(
    "code", ["export WHICH=one", "export WHICH=$(cat /mnt/c)", "WHICH=$2; export WHICH", ". /etc/e.sh"]
)
def test_the_code_of_a_shell_can_set_it(code: str) -> None:
    files = {
        **app(ENV),
        "bin/sh": "\x7fELF",
        "etc/e.sh": "export WHICH=`cat /mnt/c`\n",
        "run.sh": f"#!/bin/sh\n{code}\nexec python3.12 -m app\n",
    }
    for argv in (("/run.sh",), ("/bin/sh", "-c", f"{code}; exec python3.12 -m app")):
        assert "deferred" in levels(World(files, argv=argv, distributions=[PLUG]))


def test_what_a_shell_reads_at_its_start_can_set_it() -> None:
    files = {**app(ENV), "bin/sh": "\x7fELF", "etc/profile.d/x.sh": "export WHICH=`cat /mnt/c`\n"}
    shell = ("/bin/sh", "-lc", "exec python3.12 -m app")
    assert levels(World(files, argv=shell, distributions=[PLUG])) == ["deferred", "deferred"]
    assert levels(World(files, distributions=[PLUG])) == ["unreached", "unreached"]


@pytest.mark.parametrize(
    ("name", "text", "second"),
    [
        ("c.json", '{"x": "one"}', "unreached"),
        (".env", "X=one\n", "unreached"),
        ("c.yaml", "x: [zero, one]\n", "unreached"),
        ("c.ini", "[a]\nn = ONE\n", "unreached"),
        # The variable: what stands behind it may be worked out.
        (".env", "WHICH=${OTHER}one\n", "deferred"),
        ("c.json", '{"env": {"WHICH": "one"}}', "deferred"),
        ("c.yaml", "env.WHICH: one\n", "deferred"),
    ],
)
def test_what_data_beside_the_program_names_is_loaded(name: str, text: str, second: str) -> None:
    files = {**app(ENV), f"{S}/{name}": text}
    found = World(files, argv=("python3.12", f"/{S}/app.py"), distributions=[PLUG])
    assert levels(found) == ["deferred", second]


def extension(*identifiers: str, strings: tuple[str, ...] = ()) -> list[str]:
    files = {**app(f"import ext\n{ENV}"), f"{S}/ext.so": "ELF"}
    facts = ElfFacts(62, 64, python=True, identifiers=identifiers, strings=strings)
    return levels(World(files, elves={f"{S}/ext.so": facts}, distributions=[PLUG]))


def test_c_code_can_set_it() -> None:
    assert extension("other", "zone", strings=("%*one %d",)) == ["unreached", "unreached"]
    assert extension("one") == ["deferred", "unreached"]
    assert extension("other", strings=("zero,one.",)) == ["deferred", "unreached"]
    assert extension("WHICH") == ["deferred", "deferred"]
    assert extension("other", strings=("WHICH=%s",)) == ["deferred", "deferred"]
    # Strings of Cython's and Rust's stand end to end.
    assert extension("other", strings=("zeroWHICHmore.",)) == ["deferred", "deferred"]
    assert extension("other", strings=("__main____name__onetable.",)) == ["deferred", "unreached"]
    assert extension("cython_runtime") == ["deferred", "deferred"]  # its strings can't be read


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("import os\nos.environ['WHICH'] = input()\n", ["deferred", "deferred"]),
        ("import app\napp.WHICH = input()\n", ["deferred", "deferred"]),
        ("import os\nos.environ = {}\n", ["deferred", "deferred"]),
        ("import os\n(os.environ), x = input(), 1\n", ["deferred", "deferred"]),
        ("import os\nfor os.environ in input(): pass\n", ["deferred", "deferred"]),
        ("from unittest import mock\nmock.patch('os.environ', {})\n", ["deferred", "deferred"]),
        ("import os\nos._Environ.get = input\n", ["deferred", "deferred"]),
        ("import os\nos.environ['X'] = b'one'.decode()\n", ["deferred", "deferred"]),
        ("import os\nos.environ['X'] = ''.join(['on', 'e1'])[:3]\n", ["unreached", "unreached"]),
        ("import os\nos.environ['X'] = ''.join(('tw', 'o', 'wo'))\n", ["unreached", "unreached"]),
        ("import os\nos.environ['X'] = ''.join(['on', 'ne'])\nPOINT = 'OneSize'\n", ["deferred", "unreached"]),
        ("class Request:\n    def __init__(self):\n        self.environ = {}\n", ["unreached", "unreached"]),
        ('"""Do os.environ = {} never."""\nPHONE = "zone, ones, done"\n', ["unreached", "unreached"]),
    ],
)
def test_another_module_can_set_it(other: str, expected: list[str]) -> None:
    files = {**app(f"import other\n{ENV}"), f"{S}/other.py": other}
    assert levels(World(files, distributions=[PLUG])) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import os; os.environ['WHICH'] = input()", ["deferred", "deferred"]),
        ("import os; os.environ['X'] = 'one'", ["deferred", "unreached"]),
        ("import os; os.environ['X'] = 'zero'", ["unreached", "unreached"]),
    ],
)
def test_a_line_that_runs_when_python_starts_can_set_it(line: str, expected: list[str]) -> None:
    files = {**app(ENV), f"{S}/x.pth": line + "\n"}
    assert levels(World(files, distributions=[PLUG])) == expected


ASK = "from settings import WHICH\nentry_points(group='g.x', name=environ.get(WHICH, 'zero'))"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("WHICH = 'PLUG_WHICH'\n", "unreached"),
        ('WHICH: str = "PLUG_WHICH"\n"""About WHICH"""\n', "unreached"),
        ("WHICH = 'PLUG_WHICH'\nWHICH = input()\n", "deferred"),
        ("WHICH = input()\n", "deferred"),
        ("WHICH = 'PLUG_WHICH'\ndef put():\n    global WHICH\n    WHICH = input()\n", "deferred"),
        ("WHICH = 'PLUG_WHICH'\nOTHER = WHICH\n", "deferred"),
        ("WHICH = 'PLUG_WHICH'\nOTHER = 'PLUG_WHICH'\n", "deferred"),
        ("WHICH = 'PLUG_WHICH'\nfrom more import *\n", "deferred"),
    ],
)
def test_the_variable_may_have_a_name_of_its_own(settings: str, expected: str) -> None:
    files = {**app(ASK), f"{S}/settings.py": settings}
    assert levels(World(files, distributions=[PLUG])) == [expected, expected]


@pytest.mark.parametrize(
    "other",
    ["import settings\nsettings.WHICH = input()\n", "print('PLUG_WHICH')\n", "from settings import WHICH\nWHICH\n"],
)
def test_who_else_has_the_name_of_the_variable_could_set_it(other: str) -> None:
    files = {**app(f"import other\n{ASK}"), f"{S}/settings.py": "WHICH = 'PLUG_WHICH'\n", f"{S}/other.py": other}
    assert levels(World(files, distributions=[PLUG])) == ["deferred", "deferred"]


HEAD = "from functools import cache\nfrom importlib.metadata import EntryPoints, entry_points as original\n"
MADE = "def made(p):\n    if isinstance(p, EntryPoints):\n        return p\n    return EntryPoints(p)\n"
CACHED = "def cached():\n    return made(original())\n"
SELECTS = "def entry_points(**params):\n    return cached().select(**params)\n"
HANDS_ON = "def entry_points(**params):\n    return original(**params)\n"


@pytest.mark.parametrize(
    ("util", "expected"),
    [
        (MADE + "@cache\n" + CACHED + SELECTS, "unreached"),
        (HANDS_ON, "unreached"),
        ("def entry_points(**params):\n    '''Docs.'''\n    return original(**params)\n", "unreached"),
        ("def entry_points(**params):\n    return mine(**params)\n", "deferred"),
        ("def entry_points(**params):\n    params['name'] = input()\n    return original(**params)\n", "deferred"),
        ("def entry_points(**params):\n    return original(**mine(params))\n", "deferred"),
        ("def entry_points(group, name):\n    return original(group=group, name=name)\n", "deferred"),
        (f"@mine\n{HANDS_ON}", "deferred"),
        (f"{HANDS_ON}entry_points = mine\n", "deferred"),
        (f"if mine:\n    def entry_points(**params): return mine(params)\n{HANDS_ON}", "deferred"),
        ("def cached():\n    return Mine()\n" + SELECTS, "deferred"),
        (MADE + "@mine\n" + CACHED + SELECTS, "deferred"),
        ("def made(p):\n    p = Mine(p)\n    return p\n" + CACHED + SELECTS, "deferred"),
        ("def made(p):\n    return Mine(p)\n" + CACHED + SELECTS, "deferred"),
        ("class EntryPoints: pass\n" + MADE + CACHED + SELECTS, "deferred"),
    ],
)
def test_a_function_that_hands_on_what_it_is_given_selects_as_importlib_does(util: str, expected: str) -> None:
    ask = "from util import entry_points\nentry_points(group='g.x', name=environ['WHICH'])"
    files = site(
        {"app.py": f"from os import environ\n{ask}\n", "first.py": "", "second.py": "", "util.py": HEAD + util}
    )
    assert levels(World(files, distributions=[PLUG])) == [expected, expected]


@pytest.mark.parametrize(
    ("boss", "expected"), [("", "unreached"), ("import os\nos.environ['WHICH'] = input()\n", "deferred")]
)
def test_a_process_has_the_env_of_the_one_that_starts_it(boss: str, expected: str) -> None:
    roles = (
        ProfileRole("parent", True, "runs"),
        ProfileRole("child", True, "runs", (RootGroup(("app",), "a root"),), spawned=False, parent="parent"),
    )
    profile = Profile("test", "app", roles)
    files = {**app(ENV), f"{S}/boss.py": boss}
    found = World(files, argv=("python3.12", "-m", "boss"), profile=profile, distributions=[PLUG])
    assert [found.level(f"{S}/{name}.py", "child") for name in ("first", "second")] == [expected, expected]


def test_code_on_the_command_line_can_set_it() -> None:
    for code, expected in (
        ("import app", "unreached"),
        ("import os; os.environ['WHICH'] = input(); import app", "deferred"),
        ("import os; os.environ = eval(input()); import app", "deferred"),
    ):
        found = World(app(ENV), argv=("python3.12", "-c", code), distributions=[PLUG])
        assert levels(found) == [expected, expected], code


def test_a_module_with_the_name_of_a_standard_one_is_looked_at_too() -> None:
    files = {
        **app(f"import stat\n{ENV}"),
        "srv/stat.py": "import os\nos.environ = eval(input())\n",
        "srv/x.py": "import app\n",
    }
    found = World(files, argv=("python3.12", "/srv/x.py"), distributions=[PLUG])
    assert levels(found) == ["deferred", "deferred"]


def test_a_program_has_the_env_of_the_one_that_starts_it() -> None:
    boss = "import os, subprocess\nos.environ['WHICH'] = input()\nsubprocess.run(['python3.12', '-m', 'app'])\n"
    files = {**app(ENV), "srv/boss.py": boss, "srv/other.py": ""}
    found = World(files, argv=("python3.12", "/srv/boss.py"), distributions=[PLUG])
    assert levels(found) == ["deferred", "deferred"]


def test_a_caveat_says_where_env_alone_gives_the_name() -> None:
    def said(source: str) -> list[str]:
        found = world(source)
        assert found.thawed.caveats == found.trace.caveats
        return [each for each in found.trace.caveats if "asks for one by a name from ENV" in each]

    (caveat,) = said("entry_points(group='g.x', name=environ.get('WHICH', 'one'))")
    assert caveat.endswith(f"/{S}/app.py:3")
    assert not said("entry_points(group='g.x', name=environ.get('WHICH', 'one,two'))")  # nothing is left out
    assert not said("entry_points(group='g.x', name='one')")
