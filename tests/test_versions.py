"""A changed version is metadata unless something that is reached decides by it."""

from __future__ import annotations

import pytest

from imgdiff.engines import load_profiles
from imgdiff.kinds.python.version_use import takes
from imgdiff.model import Change, Delta, FileEntry, Owner
from imgdiff.versions import weigh_versions
from tests.trace.world import World

SITE = "usr/lib/python3.12/site-packages"


def weighed(gate: str, a: str, b: str, name: str = "__version__") -> Delta:
    world = World({f"{SITE}/app.py": gate, f"{SITE}/dep.py": f"{name} = {b!r}\n"})
    path = f"{SITE}/dep.py".encode()
    entry = FileEntry(path, "file", 0o644, 0, 0, 0, 1, b"\x00" * 32)
    owner = (Owner("unowned", "unowned:/usr", None, b""),)
    detail = {"kind": "python", "versions": [{"name": name, "a": a, "b": b}]}
    change = Change(path, path, "modified", entry, entry, owner, owner, Delta("metadata", "A version.", detail))
    side = (world.attribution, world.facts, world.trace)
    (result,) = weigh_versions((change,), (side, side), load_profiles()[-1])
    assert result.delta is not None
    return result.delta


@pytest.mark.parametrize(
    "gate",
    [
        "import dep\nFAST = dep.__version__ >= '2.0.0'\n",
        "import dep\nFAST = dep.__version__.split('.')[0] == '2'\n",
        "import dep\nFAST = int(dep.__version__.split('.')[0]) >= 2\n",
        "import dep\nfrom packaging.version import parse\nFAST = parse(dep.__version__).major >= 2\n",
        "import dep\nfrom packaging.version import parse\nFAST = parse(dep.__version__).release >= (2, 0)\n",
        "import dep\ndef fast():\n    return dep.__version__.partition('.')[0] > '1'\nfast()\n",
        "import dep\nFAST = dep.__version__ >= (2, 1)\n",
        "import dep\nMIN = (2, 0)\ndef fast():\n    return dep.__version__ >= MIN\nfast()\n",
        "import dep\nFAST = tuple(map(int, dep.__version__.split('.')[:2])) >= (2, 0)\n",
        "import dep\nFAST = int(dep.__version__[0]) >= 2\n",
        "import dep\nFAST = float(dep.__version__[:3]) >= 2.0\n",
        "import dep\nFAST = dep.__version__.startswith('2')\n",
        "import dep\nOLD = '1.' in dep.__version__\n",
        "import dep, re\nM = re.match(r'(\\d+)[.](\\d+)', dep.__version__)\nFAST = int(M[1]) > 1\n",
        "import dep\ndef one():\n    return dep.__version__\ndef two():\n    return dep.__version__[0] > '1'\none(), two()\n",
    ],
)
def test_a_gate_in_reached_code_leaves_it_open(gate: str) -> None:
    delta = weighed(gate, "1.9.0", "2.1.0")
    assert delta.settle is not None
    assert "app.py" in delta.reason


@pytest.mark.parametrize("name", ["version", "__version_tuple__", "git_version"])
def test_a_version_under_another_name_has_gates_too(name: str) -> None:
    assert weighed(f"from dep import {name}\nFAST = {name} > '2.0.0'\n", "1.9.0", "2.1.0", name).settle is not None


@pytest.mark.parametrize(
    ("gate", "a", "b"),
    [
        ("import dep\nprint(dep.__version__)\n", "1.9.0", "2.1.0"),  # it only says it
        ("import dep\nFAST = dep.__version__ >= '3.0.0'\n", "1.9.0", "2.1.0"),  # both are below
        ("import dep\nFAST = int(dep.__version__.split('.')[0]) >= 2\n", "2.1.0.dev1", "2.1.0.dev2"),  # equal numbers
        ("import dep\nFAST = dep.__version__ >= (2, 2)\n", "1.9.0", "2.1.0"),
        ("import dep\nfrom p import parse\nFAST = parse(dep.__version__).minor\n", "2.1.0", "2.1.1"),
        ("import dep\nFAST = dep.__version__ >= (1, 8)\n", "1.9.0", "2.1.0"),
        ("import dep\nFAST = int(dep.__version__[0]) >= 3\n", "1.9.0", "2.10.0"),
        ("import dep, sys\nprint(dep.__version__)\nif sys.argv == 2:\n    pass\n", "2.1.0", "2.1.1"),
        ("import dep\nFAST = dep.__version__.startswith('2')\n", "2.1.0", "2.1.1"),
        ("import dep\nV = dep.__version__\ndef f():\n    return V\n", "1.9.0", "2.1.0"),
    ],
)
def test_what_decides_nothing_leaves_it_metadata(gate: str, a: str, b: str) -> None:
    delta = weighed(gate, a, b)
    assert (delta.effect, delta.settle) == ("metadata", None)


@pytest.mark.parametrize(
    ("a", "b", "effect"),
    [
        ("1.0+cpu", "1.0+xpu", "code"),
        ("1.0", "1.0+cpu", "code"),
        ("1.0+g1a2b3c4", "1.0+g5d6e7f8", "metadata"),
        ("1.0+g1a2b3c4.d20260101", "1.0+g1a2b3c4.d20260102", "metadata"),
        ("1.0+cpu.g1a2b3c4", "1.0+cpu.g5d6e7f8", "metadata"),
    ],
)
def test_a_label_is_code_unless_it_is_a_commit_or_a_date(a: str, b: str, effect: str) -> None:
    assert weighed("import dep\n", a, b).effect == effect


def weighed_in(modules: dict[str, str], a: str, b: str) -> Delta:
    """What becomes of a changed ``dep.__version__`` where these modules are reached."""
    world = World(
        {f"{SITE}/{path}": source for path, source in modules.items()} | {f"{SITE}/dep.py": f"__version__ = {b!r}\n"}
    )
    path = f"{SITE}/dep.py".encode()
    entry = FileEntry(path, "file", 0o644, 0, 0, 0, 1, b"\x00" * 32)
    owner = (Owner("unowned", "unowned:/usr", None, b""),)
    detail = {"kind": "python", "versions": [{"name": "__version__", "a": a, "b": b}]}
    change = Change(path, path, "modified", entry, entry, owner, owner, Delta("metadata", "A version.", detail))
    side = (world.attribution, world.facts, world.trace)
    (result,) = weigh_versions((change,), (side, side), load_profiles()[-1])
    assert result.delta is not None
    return result.delta


@pytest.mark.parametrize(
    ("compat", "user"),
    [
        (
            "import dep\nfrom p import parse\nDEP = parse(dep.__version__)\n",
            "from compat import DEP, parse\nX = DEP >= parse('2.0')\n",
        ),
        (
            "import dep\nfrom p import parse\nDEP = parse(dep.__version__)\n",
            "from compat import DEP\nX = DEP.release >= (2, 0)\n",
        ),
        (
            "import dep\nfrom p import parse\nDEP = parse(dep.__version__)\n",
            "import compat\nX = compat.DEP.major > 1\n",
        ),
        (
            "import dep\ndef dep_version():\n    return dep.__version__\n",
            "from compat import dep_version\nX = dep_version() > '2.0'\n",
        ),
        (
            "import dep\ndef at_least(text):\n    return dep.__version__ >= text\n",
            "from compat import at_least\ndef f():\n    return at_least('2.0')\nf()\n",
        ),
        (
            "from importlib.metadata import version\ndef at_least(name, text):\n    return version(name) >= text\n",
            "from compat import at_least\nX = at_least('dep', '2.0')\n",
        ),
    ],
)
def test_a_version_that_another_module_hands_on_has_gates_there(compat: str, user: str) -> None:
    delta = weighed_in({"app.py": user, "compat.py": compat}, "1.9.0", "2.1.0")
    assert delta.settle is not None
    assert "app.py" in delta.reason
    idle = {"app.py": user.replace("2.0", "3.0"), "compat.py": compat}
    if ".release" not in user:
        assert weighed_in(idle, "2.2.0", "2.2.1").settle is None


def test_a_number_for_another_distribution_decides_nothing() -> None:
    compat = "from importlib.metadata import version\ndef at_least(name, text):\n    return version(name) >= text\n"
    user = "from compat import at_least\nX = at_least('other', '2.0')\n"
    assert weighed_in({"app.py": user, "compat.py": compat}, "1.9.0", "2.1.0").settle is None


@pytest.mark.parametrize(
    ("a", "b", "settled"),
    [("2.1.0.dev1", "2.1.0", False), ("2.1.0rc1", "2.1.0", False), ("2.1.0.dev1", "2.1.0.dev2", False)],
)
def test_what_no_release_number_says_can_be_asked_for(a: str, b: str, settled: bool) -> None:
    gate = "import dep\nfrom p import parse\nSLOW = parse(dep.__version__).is_devrelease\n"
    assert (weighed(gate, a, b).settle is None) is settled
    assert weighed(gate, "2.1.0", "2.1.1").settle is None


LOGS = [
    (
        "import logging\nlog = logging.getLogger('x')\ndef f(n):\n    from dep import __version__ as V\n"
        "    log.info('dep %s', V)\n    return n > 1\nf(0)\n"
    ),
    (
        "from importlib.metadata import version\ndef f(p, n):\n"
        "    p.add_argument('-v', action='version', version=version('dep'))\n    return n > 1\nf(0, 0)\n"
    ),
    "import dep, other\ndef f():\n    return dep.run(), other.__version__.split('.')[0] == '1'\nf()\n",
    "import dep, sys\ndef f():\n    return dep.run(), sys.version_info.major > 1\nf()\n",
]


@pytest.mark.parametrize("source", LOGS)
def test_what_is_only_logged_or_another_modules_decides_nothing(source: str) -> None:
    delta = weighed(source, "1.9.0", "2.1.0")
    assert (delta.effect, delta.settle) == ("metadata", None)


@pytest.mark.parametrize(
    "gate",
    [
        "v = dep.__version__\n    return v.split('.')[0] == str(n)",
        "v = w = dep.__version__\n    return w.split('.')",
        "(v, w) = dep.__version__, 1\n    return v.split('.')",
        "v = f'{dep.__version__}'\n    return v.split('.')",
        "v = {'v': dep.__version__}\n    return v['v'].split('.')",
        "v = [dep.__version__]\n    return v[0].split('.')",
        "return any(v.split('.') for v in [dep.__version__])",
        "return (lambda other: other.__version__.split('.'))(dep)",
        "def g():\n        return v\n    v = dep.__version__\n    return g().split('.')",
        "if (v := dep.__version__).split('.'):\n        return n > 1",
        "return use(dep.__version__).split('.')",
        "return getattr(dep, '__version__').split('.')",
        "return getattr(dep, '__version__'[:n]).split('.'), dep.__version__",
        "return vars(dep)['__version__'].split('.')",
        "import dep as other\n    return other.__version__.split('.')",
        "other = dep\n    return other.__version__.split('.')",
        "for other in [dep]:\n        return other.__version__.split('.')",
        "from dep import sub as other\n    return other.__version__.split('.')",
        "from dep import __version__\n    return __version__.split('.')",
        "from dep import __version__ as V\n    print(V)\n    return V.split('.')",
        "global V\n    V = dep.__version__\n    return n.split('.')",
        "match dep.__version__.split('.'):\n        case ['1', *_]:\n            return n",
        "print(dep.__version__)\n    return re.match(r'(\\d+)', dep.__version__)",
        "print(dep.__version__)\n    return n[0].split('/')",
        "with n:\n        print(f'dep {dep.__version__}')\n    return n.getvalue().split('.')",
        "log.info(dep.__version__)\n    return dep.version('major').split('.')",
        "log.info(dep.__version__)\n    return n.files('major').split('.')",
        "from other import version\n    log.info(dep.__version__)\n    return version('major').split('.')",
        "log.info(dep.__version__)\n    return need('dep[x]>=1').split('.')",
        "log.info(dep.__version__)\n    return need(' dep').split('.')",
        "log.info(dep.__version__)\n    match dep:\n        case type(__version__=v):\n            return v.split('.')",
        "print(dep.__version__, file=n)\n    return n.getvalue().split('.')",
        "print = use\n    print(dep.__version__)\n    return n.split('.')",
        "n.info(dep.__version__)\n    return n.split('.')",
        "n.add_argument('-v', action='store', default=dep.__version__)\n    return n.v.split('.')",
        "n.add_argument('-v', action=n, version=dep.__version__)\n    return n.v.split('.')",
        "from importlib.metadata import version as v\n    return v('dep').split('.')",
        "from importlib.metadata import version\n    v = version\n    return v('d' + 'ep').split('.'), dep.__version__",
        "from importlib import metadata\n    return metadata.distribution('dep').version.split('.')",
        "print(dep.__version__)\n    return dep.sub.__version__.split('.')",
        "print(dep.__version__)\n    return dep.VERSION.split('.')",
        "try:\n        other = dep\n    except E:\n        import other\n    return other.__version__.split('.')",
    ],
)
def test_a_version_that_goes_round_a_corner_is_taken(gate: str) -> None:
    source = f"import logging, re, dep, other\nlog = logging.getLogger('x')\ndef f(n):\n    {gate}\nf(0)\n"
    assert weighed(source, "1.9.0", "2.1.0").settle is not None


def test_what_another_package_hands_on_can_be_this_version() -> None:
    user = "import dep, other\ndef f():\n    return dep.run(), other.__version__.split('.')[0] == '1'\nf()\n"
    handing = {"app.py": user, "other.py": "from dep import __version__\n"}
    assert weighed_in(handing, "1.9.0", "2.1.0").settle is not None
    assert weighed_in(handing | {"other.py": "__version__ = '1.0'\n"}, "1.9.0", "2.1.0").settle is None


def test_the_reason_says_what_it_saw() -> None:
    source = "import dep\ndef f(n):\n    v = dep.__version__\n    return n > 1, v.split('.')[0] == 'x'\nf(0)\n"
    assert "/app.py:4 (v.split('.'))" in weighed(source, "1.9.0", "2.1.0").reason


def test_what_only_sounds_like_the_version_comes_last() -> None:
    source = b"import dep\ndef f(n):\n    n.append(other_version())\n    return dep.__version__\n"
    taken = takes(source, "f", {"dep"})
    assert taken is not None
    assert [(each.line, each.maybe) for each in taken] == [(4, False), (3, True)]


def test_a_module_called_version_is_no_version() -> None:
    source = b"import other\nfrom packaging import version\ndef f():\n    return version.parse(other.__version__).major > 1\n"
    assert takes(source, "f", {"dep"}) == ()
    assert takes(source, "f", {"other"}) != ()
    assert takes(source, "g", {"dep"}) is None
    assert takes(b"def f(:", "f", {"dep"}) is None
