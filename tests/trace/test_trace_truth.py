"""The trace against CPython itself: what a program really executed must be eager or deferred."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from imgdiff.engines import load_profiles
from imgdiff.model import Attribution, Claim, Environment, ImageConfig, Owner
from imgdiff.trace import trace
from tests.trace.world import Facts, from_directory

PROGRAM = """
import asyncio, json, logging.config, concurrent.futures, multiprocessing, pickle, email.message, http.client
logging.config.dictConfig({"version": 1, "handlers": {"h": {"class": "logging.handlers.MemoryHandler", "capacity": 1}}})
class C:
    pass
asyncio.run(asyncio.sleep(0))
"".encode("idna"), "x".encode("utf-16")
concurrent.futures.ThreadPoolExecutor
"""
DUMP = """
import os, sys
for module in list(sys.modules.values()):
    file = getattr(module, "__file__", None)
    if file:
        print(os.path.realpath(file))
"""


@pytest.fixture(scope="module")
def stdlib() -> Path:
    return Path(os.path.realpath(sysconfig.get_path("stdlib")))


def test_everything_that_ran_is_reached(tmp_path: Path, stdlib: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    (tmp_path / "dump.py").write_text(PROGRAM + DUMP)
    # -I -S: neither this machine's environment nor its site directories take part.
    run = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "dump.py")], capture_output=True, text=True, check=True
    )
    packages = [
        each for each in stdlib.iterdir() if each.name not in ("site-packages", "dist-packages", "test", "idlelib")
    ]
    root = Path("/")
    tree, contents = from_directory(root, [*packages, script, Path(os.path.realpath(sys.executable))])

    def inside(path: Path) -> bytes:
        return os.fsencode(path.relative_to(root))

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    prefix = inside(Path(sys.base_prefix))
    executable = inside(Path(os.path.realpath(sys.executable)))
    owner = Owner("stdlib", "python", version, inside(stdlib))
    claims: dict[bytes, tuple[Claim, ...]] = {
        path: (Claim(0, "stdlib", path),) for path, entry in tree.entries.items() if entry.type != "dir"
    }
    environment = Environment(prefix, prefix, executable, version, inside(stdlib), ())
    attribution = Attribution((owner,), claims, (), (environment,))
    config = ImageConfig(cmd=("/" + os.fsdecode(executable), "-I", "-S", str(script)), working_dir="/")
    found = trace(tree, attribution, Facts(tree, contents, {}), config, load_profiles()[-1], None, "a")
    role = found.roles["main"]
    executed = {inside(Path(line)) for line in run.stdout.splitlines() if line.endswith((".py", ".so"))}
    executed = {path for path in executed if path in tree.entries}
    assert len(executed) > 80
    missed = {
        path: role.evidence(path).level for path in executed if role.evidence(path).level not in ("eager", "deferred")
    }
    assert not missed
    assert sum(role.evidence(path).level == "eager" for path in executed) > len(executed) * 0.8
