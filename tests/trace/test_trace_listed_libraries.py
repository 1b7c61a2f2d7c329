"""Libraries that code finds in a directory which many files share."""

from __future__ import annotations

import pytest

from tests.trace.world import World, site

LIBRARY = "usr/lib64/libq.so.1"
OTHERS = {"usr/lib64/libq.so.1": "x", "usr/lib64/deep/libd.so": "x", "usr/lib64/q.txt": "x", "usr/lib/libl.so": "x"}


def world(code: str, **more: str) -> World:
    return World({**site({"app.py": code, **{f"{name}.py": text for name, text in more.items()}}), **OTHERS})


@pytest.mark.parametrize(
    "code",
    [
        "import os, ctypes\nD = '/usr/lib64'\nfor n in os.listdir(D):\n    ctypes.CDLL(os.path.join(D, n))\n",
        "import ctypes\nfrom pathlib import Path\nfor p in Path('/usr/lib64').iterdir():\n    ctypes.CDLL(str(p))\n",
        "import ctypes, glob\nfor p in glob.glob('/usr/lib64/lib*.so.1'):\n    ctypes.CDLL(p)\n",
        "import ctypes\nD = '/usr/lib64/'\ndef load(n):\n    return ctypes.CDLL(D + n)\nload('lib' + 'q' + '.so.1')\n",
        "import os, ctypes\nlist(map(ctypes.CDLL, os.listdir('/usr/lib64')))\n",
        "import os, ctypes\nfor n in os.listdir('/usr/lib64'):\n    ctypes.cdll[n]\n",
        "import os, ctypes\nfor d, _, names in os.walk('/usr'):\n    for n in names:\n        ctypes.CDLL(d + '/' + n)\n",
        "import ctypes\nfrom pathlib import Path\nfor p in Path('/usr').rglob('*.so*'):\n    ctypes.CDLL(str(p))\n",
        "import ctypes, glob\nfor p in glob.glob('/usr/**/lib*.so.1', recursive=True):\n    ctypes.CDLL(p)\n",
        "import ctypes\ndef load(n):\n    return ctypes.CDLL(f'/usr/lib64/{n}')\nload(input())\n",
    ],
    ids=["listdir", "iterdir", "glob", "joined", "map", "item", "walk", "rglob", "recursive", "format"],
)
def test_what_code_finds_in_a_common_directory_and_opens_is_reached(code: str) -> None:
    assert world(code).level(LIBRARY) in ("deferred", "unknown")


def test_a_directory_is_not_searched_below_where_nobody_walks() -> None:
    found = world("import os, ctypes\nfor n in os.listdir('/usr/lib64'):\n    ctypes.CDLL('/usr/lib64/' + n)\n")
    assert found.level("usr/lib64/deep/libd.so") == "unknown"  # as all below a reached library's directory is
    assert found.level("usr/lib/libl.so") == "unreached"
    assert ("app", None, None, "root") in found.chain(LIBRARY)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nprint(os.listdir('/usr/lib64'))\n",  # nothing is opened
        "import ctypes\nctypes.CDLL('libz.so.1')\nHEADERS = '/usr/include'\n",
        "import ctypes\ndef unused():\n    ctypes.CDLL('libz.so.1')\nLIBRARIES = '/usr/lib64'\n",  # never called
    ],
    ids=["lists", "opens", "unused"],
)
def test_a_directory_alone_names_nothing_below_it(code: str) -> None:
    assert world(code).level(LIBRARY) not in ("eager", "deferred")
