"""The command line as a user has it: a process in a directory of its own, with its own cache and temporary files."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from imgdiff import cli
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Compression, Member, tar_bytes, write_layout

CODE = "import sys; from imgdiff.__main__ import main; sys.argv[0] = 'imgdiff'; main()"

# A program that Python can be, with a module path: what the tests look at is beside it.
PYTHON = {
    "usr/bin/python3.11": elf_bytes(Elf(interpreter="/lib64/ld-linux-x86-64.so.2", needed=["libc.so.6"])),
    "lib64/ld-linux-x86-64.so.2": elf_bytes(Elf(soname="ld-linux-x86-64.so.2", text=b"\xc3")),
    "usr/lib/python3.11/os.py": b"import sys\n",
    "usr/lib/python3.11/site.py": b"import os\n",
    "usr/lib/python3.11/encodings/__init__.py": b"",
    "usr/lib/python3.11/json/__init__.py": b"def load(file):\n    return file.read()\n",
    "srv/app/__init__.py": b"",
    "srv/app/__main__.py": b"from app.engine import answer\n\nprint(answer('x'))\n",
    "srv/app/engine.py": (
        b"# scores\nBIAS = 3\nSETTINGS = '/etc/app/settings.json'\n\n\ndef answer(text):\n    return len(text) + BIAS\n"
    ),
    "srv/app/unused.py": b"X = 1\n",
    "etc/app/settings.json": b'{"scale": 2}\n',
    "var/log/build.log": b"monday\n",
}


def layout(
    directory: Path,
    changes: Mapping[str, bytes | None] | None = None,
    members: tuple[Member, ...] = (),
    env: Mapping[str, str] | None = None,
    entrypoint: tuple[str, ...] = ("python3.11", "-m", "app"),
    compression: Compression = "gzip",
) -> Path:
    """Write an OCI layout with the small Python image: ``changes`` by path (None leaves a file away)."""
    files = {path: data for path, data in {**PYTHON, **(changes or {})}.items() if data is not None}
    layer = tar_bytes(
        [*(Member(path, data, mode=0o755 if "bin/" in path else None) for path, data in files.items()), *members]
    )
    config = {
        "Env": ["PATH=/usr/bin", *(f"{name}={value}" for name, value in (env or {}).items())],
        "Entrypoint": list(entrypoint),
        "WorkingDir": "/srv",
    }
    write_layout(directory, [layer], config, compression)
    return directory


@dataclass(frozen=True)
class Ran:
    """How a run ended."""

    code: int
    out: str
    err: str


class Shell:
    """A directory to run imgdiff in. Caches, temporary files and outputs stay below it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.temporary = directory / "temporary"
        self.cache = directory / "cache"
        self.temporary.mkdir()
        self.cache.mkdir()

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
        root = str(Path(__file__).resolve().parents[2])
        own = {"TMPDIR": str(self.temporary), "XDG_CACHE_HOME": str(self.cache), "PYTHONPATH": root}
        return {**kept, **own, **more}

    def start(self, *arguments: str | Path, **options: object) -> subprocess.Popen[bytes]:
        """Start imgdiff; ``options`` are Popen's, with ``env`` for more variables."""
        env = options.pop("env", {})
        assert isinstance(env, dict)
        given: dict[str, object] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-c", CODE, *(str(argument) for argument in arguments)]
        return subprocess.Popen(command, cwd=self.directory, env=self.environment(**env), **{**given, **options})  # type: ignore[call-overload, no-any-return]  # options are the caller's

    def run(self, *arguments: str | Path, **env: str) -> Ran:
        """Run imgdiff to its end. Never lets a traceback pass."""
        process = self.start(*arguments, env=env)
        out, err = process.communicate(timeout=300)
        ran = Ran(process.returncode, out.decode(), err.decode())
        assert "Traceback" not in ran.err, ran.err
        return ran

    def fork(self, *arguments: str | Path) -> Ran:
        """The same in a fork of this process, which has imgdiff imported: quicker, for what depends on no start."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                self._become(out, err, ["imgdiff", *(str(argument) for argument in arguments)])
            _, status = os.waitpid(child, 0)
            texts = []
            for stream in (out, err):
                stream.seek(0)
                texts.append(stream.read().decode())
        ran = Ran(os.waitstatus_to_exitcode(status), *texts)
        assert "Traceback" not in ran.err, ran.err
        return ran

    def _become(self, out: IO[bytes], err: IO[bytes], argv: list[str]) -> NoReturn:
        code: object = 70
        try:
            os.chdir(self.directory)
            os.environ.update(self.environment())
            tempfile.tempdir = None  # asks for TMPDIR again
            for number, stream in ((1, out), (2, err)):
                os.dup2(stream.fileno(), number)
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "wb", closefd=False), encoding="utf-8", write_through=True)
            sys.stderr = io.TextIOWrapper(io.FileIO(2, "wb", closefd=False), encoding="utf-8", write_through=True)
            sys.argv = argv
            cli.main()
        except SystemExit as exit_:
            code = exit_.code
        except BaseException:  # noqa: BLE001  nothing may return into the parent's code
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(code if isinstance(code, int) else 70)

    def left(self) -> list[str]:
        """Return what lies in the directories for temporary files and caches."""
        return sorted(
            str(path.relative_to(self.directory)) for top in (self.temporary, self.cache) for path in top.rglob("*")
        )
