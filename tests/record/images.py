"""Two small images with a Python that runs, one module apart, in a real engine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.services.engine import docker
from tests.support.images import Member, tar_bytes, write_layout

NAME = "imgdiff-test/recorded"
SERVICES = Path(__file__).parents[1] / "services"
ENV = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": "/srv/lib",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HF_TOKEN": "hf_abcdefghijklmnop",
}
MAIN = """\
import sys
import serve

def rarely():
    import extra
    return extra.VALUE

print("serving", serve.NAME, sys.argv[1:], flush=True)
if "--rarely" in sys.argv:
    rarely()
raise SystemExit(7)
"""
CHILDREN = """\
import multiprocessing, os, signal, subprocess, sys, time

def started(word):
    import json
    open("/etc/os-release").close()
    print(word, os.getpid(), flush=True)

if __name__ == "__main__":
    print("own", sys.modules["sitecustomize"].NAME, flush=True)
    for way in ("fork", "spawn"):
        child = multiprocessing.get_context(way).Process(target=started, args=(way,))
        child.start()
        child.join()
    pid = os.fork()
    if not pid:
        import csv
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    subprocess.run([sys.executable, "-c", "import decimal, os; os._exit(0)", "--token=abcdefghijklmnop"])
    subprocess.run(["/bin/sh", "-c", "exec /usr/bin/python3 -c 'import fractions'"])
    unseen = sys.argv[1:]
    if "isolated" in unseen:
        subprocess.run([sys.executable, "-I", "-c", "import wave"])
    if "site" in unseen:
        subprocess.run([sys.executable, "-S", "-c", "import wave"])
    if "empty" in unseen:
        subprocess.run([sys.executable, "-c", "import wave"], env={})
    sys.stdout.flush()
    os._exit(3)
"""
WAITING = """\
import sys, time
print("ready", flush=True)
time.sleep(100)
"""
FILES = {
    "srv/main.py": MAIN,
    "srv/serve.py": "NAME = 'it'\n",
    "srv/children.py": CHILDREN,
    "srv/waiting.py": WAITING,
    "srv/lib/sitecustomize.py": "import string\nNAME = 'mine'\n",
}
EXTRA = {"a": "VALUE = 1\n", "b": "VALUE = 2\n"}


def make(directory: Path) -> dict[str, Path]:
    """Write both images as archives that an engine loads, and return their paths by side."""
    root = directory / "root"
    subprocess.run(["bash", str(SERVICES / "mkroot.sh"), str(root)], check=True, capture_output=True)
    base = subprocess.run(["tar", "-C", str(root), "-c", "."], check=True, capture_output=True).stdout
    found = {}
    for side, text in EXTRA.items():
        files = {**FILES, "srv/extra.py": text}
        layer = tar_bytes([Member(path, content.encode()) for path, content in files.items()])
        config = {
            "Env": [f"{name}={value}" for name, value in ENV.items()],
            "Entrypoint": ["python3", "/srv/main.py"],
            "Cmd": ["--port", "8000"],
            "WorkingDir": "/srv",
        }
        write_layout(directory / side, [base, layer], config, "none")
        found[side] = directory / f"{side}.tar"
        target = f"docker-archive:{found[side]}:docker.io/{NAME}:{side}"
        command = ["skopeo", "--insecure-policy", "copy", "-q", f"oci:{directory / side}", target]
        subprocess.run(command, check=True, capture_output=True)
    return found


def load(host: str, archives: Mapping[str, Path]) -> None:
    """Put them into an engine."""
    for archive in archives.values():
        docker("load", "-q", "-i", str(archive), host=host)


def left(host: str) -> tuple[str, str]:
    """Return the containers and the volumes that an engine has."""
    return docker("ps", "-aq", host=host), docker("volume", "ls", "-q", host=host)
