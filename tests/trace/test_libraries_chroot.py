"""Small root file systems of compiled libraries: the copy that the real loader takes is among those that win, and each
that wins is taken in some state of the loader's cache or for some CPU."""

from __future__ import annotations

import functools
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from imgdiff.trace.lookup import look_up
from tests.kinds.elf_inputs import tool
from tests.trace.library_image import Machine
from tests.trace.test_libraries import RPATH, RUNPATH, loader
from tests.trace.test_lookup_libraries import tracer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to change the root")

NAME = "libx.so.1"
MULTIARCH = "lib/x86_64-linux-gnu"
PROBE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
  void *(*open_)(const char *, int) = dlopen;
  if (argc > 2) {
    void *asking = dlopen(argv[2], RTLD_NOW);
    if (!asking || !(*(void **)&open_ = dlsym(asking, "ask"))) return 3;
  }
  void *handle = open_(argv[1], RTLD_NOW);
  struct link_map *map;
  if (!handle) { printf("error %s", dlerror()); return 0; }
  dlinfo(handle, RTLD_DI_LINKMAP, &map);
  printf("got %s", map->l_name);
}
"""
ASK = """
extern void *dlopen(const char *, int) __attribute__((weak));
void *ask(const char *name, int flags) { return dlopen(name, flags); }
"""
DIRECTORIES = ("opt/a", "opt/b", "opt/c", "app/sub", "usr/lib", "usr/" + MULTIARCH, "usr/local/lib", "opt/haswell",
               "opt/x86_64", "opt/a/" + MULTIARCH)  # fmt: skip
LISTS = ("/opt/a", "/opt/b", "/opt/c", "/opt//a/", "/opt/a/../b", "", ".", "sub", "/none", "/opt/$PLATFORM", "/opt/a/$LIB",
         "/opt/a/${LIB}", "/opt/link", "$LIBX", "/usr/local/lib", "..")  # fmt: skip
CPUS = ("glibc-hwcaps/x86-64-v2", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v4")
# What takes the features away that one of these directories needs (GLIBC_TUNABLES)
MASKS = ("", "-AVX512F", "-AVX2", "-SSE4_2")


class Case(NamedTuple):
    """What is asked in a tree: the program's needs and search path are in its file."""

    asking: str | None
    environment: dict[str, str]
    directory: str


class Workshop:
    """Compiles each kind of file once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (directory / "probe.c").write_text(PROBE)
        (directory / "ask.c").write_text(ASK)
        self._made: dict[tuple[str, ...], Path] = {}

    def _gcc(self, *argv: str) -> Path:
        if argv not in self._made:
            target = self._directory / f"file{len(self._made)}"
            command = [tool("gcc"), "-o", str(target), *argv]
            subprocess.run(command, check=True, capture_output=True, cwd=self._directory)
            self._made[argv] = target
        return self._made[argv]

    def library(self, soname: str | None, *options: str, needed: tuple[str, ...] = ()) -> Path:
        named = [f"-Wl,-soname,{soname}"] if soname else []
        needs = [str(self.library(each)) for each in needed]
        flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"]
        return self._gcc(*flags, "ask.c", *named, *needs, *options)

    def program(self, *options: str, needed: tuple[str, ...] = ()) -> Path:
        needs = [str(self.library(each)) for each in needed]
        return self._gcc("probe.c", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined", *needs, *options)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    loader()
    if shutil.which("ldconfig") is None:
        pytest.skip("ldconfig is missing")
    return Workshop(tmp_path_factory.mktemp("made"))


def content(chance: random.Random, workshop: Workshop) -> Path | bytes | str:
    """A library, or what can stand in its place."""
    kind = chance.random()
    if kind < 0.6:
        return workshop.library(NAME, f"-Wl,--build-id=0x{chance.randint(16, 20):x}")
    if kind < 0.65:
        return workshop.library("libother.so.9")
    if kind < 0.7:
        return workshop.library(None)
    if kind < 0.78:
        return workshop.library(NAME, "-m32")
    if kind < 0.82:
        return b"INPUT ( libx.so.1.2 )\n"
    if kind < 0.85:
        data = workshop.library(NAME).read_bytes()
        return data[:18] + b"\xb7\0" + data[20:]  # for AArch64
    return chance.choice(("libx.so.1.2", "/opt/b/libx.so.1.2", "/none", "../b/libx.so.1"))


def put(place: Path, what: Path | bytes | str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if isinstance(what, Path):
        shutil.copy(what, place)  # not linked: the loader tells files apart by their inode
    elif isinstance(what, bytes):
        place.write_bytes(what)
    else:
        place.symlink_to(what)


def search_path(chance: random.Random, options: tuple[str, ...] = ("", RPATH, RUNPATH)) -> tuple[str, ...]:
    option = chance.choice(options)
    return (option + ":".join(chance.choices(LISTS, k=chance.randint(1, 3))),) if option else ()


def make(root: Path, chance: random.Random, workshop: Workshop) -> Case:
    """Make a tree of one kind or another."""
    for each in ("usr/" + MULTIARCH, "usr/lib64", "usr/bin", "opt/a", "etc/ld.so.conf.d", "app"):
        (root / each).mkdir(parents=True)
    for each in ("lib", "lib64", "bin"):
        (root / each).symlink_to(f"usr/{each}")
    for each in ("libc.so.6", "ld-linux-x86-64.so.2"):
        shutil.copy(f"/{MULTIARCH}/{each}", root / MULTIARCH / each)
    put(root / "lib64/ld-linux-x86-64.so.2", f"/{MULTIARCH}/ld-linux-x86-64.so.2")
    put(root / "opt/link", "b")
    made = []
    for each in chance.sample(DIRECTORIES, chance.randint(2, 7)):
        made.append(root / each / NAME)
        if chance.random() < 0.2:
            made.append(root / each / f"{NAME}.2")
        if chance.random() < 0.2:
            made += [root / each / cpu / NAME for cpu in chance.sample(CPUS, 2)]
    for place in made:
        put(place, content(chance, workshop))
    if chance.random() < 0.6:
        lines = ("/opt/a", "/opt/b", "include ld.so.conf.d/*.conf", "# /opt/c", "/opt/c # x", "/opt/link", " /opt//a ")
        put(root / "etc/ld.so.conf", "\n".join(chance.sample(lines, 2)).encode() + b"\n")
        for each in chance.sample(("10-b.conf", "9-a.conf", "A.conf"), 2):
            put(root / "etc/ld.so.conf.d" / each, chance.choice((b"/opt/a\n", b"/opt/b\n", b"/usr/local/lib\n")))
    if chance.random() < 0.6:
        ldconfig(root)
        for place in chance.sample(made, chance.randint(0, 2)):  # and the cache is stale
            place.unlink(missing_ok=True)
    needed = chance.choice(((), (NAME,), ("libmiddle.so",)))
    put(root / "usr/bin/main", workshop.program(*search_path(chance), needed=needed))
    middle = workshop.library("libmiddle.so", *search_path(chance), needed=chance.choice(((), (NAME,))))
    put(root / "usr/lib/libmiddle.so", middle)
    environment = {}
    if chance.random() < 0.4:
        separator = chance.choice((":", ";"))
        environment["LD_LIBRARY_PATH"] = separator.join(chance.choices(LISTS, k=chance.randint(1, 3)))
    if chance.random() < 0.2:
        environment["LD_PRELOAD"] = chance.choice((NAME, f"/opt/a/{NAME}", f"/opt/b/{NAME}:/opt/a/{NAME}", f"./{NAME}"))
    return Case(chance.choice((None, None, "/usr/lib/libmiddle.so")), environment, chance.choice(("", "app", "opt/a")))


def ldconfig(root: Path) -> None:
    subprocess.run([tool("ldconfig"), "-r", str(root)], capture_output=True, check=False)


def inside(root: Path, directory: str) -> None:
    os.chroot(root)
    os.chdir(f"/{directory}")


def taken(root: Path, case: Case) -> Iterator[str]:
    """Yield the file that the loader takes, or ends at with an error, on each kind of CPU; canonical."""
    for mask in MASKS:
        more = {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={mask}"} if mask else {}
        done = subprocess.run(
            ["/usr/bin/main", NAME, *([case.asking] if case.asking else [])],
            env={**case.environment, **more},
            preexec_fn=functools.partial(inside, root, case.directory),  # no threads run here
            capture_output=True,
            text=True,
            check=False,
        )
        found = re.match(r"got (.*)|error (.*): (?:file too short|invalid ELF header)", done.stdout)
        if found is not None:
            yield real(root, found[1] or found[2], case.directory)


def real(root: Path, path: str, directory: str) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            inside(root, directory)
            os.write(writer, os.fsencode(os.path.realpath(path)))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.parametrize("seed", range(90))
def test_the_copy_that_the_loader_takes_wins(tmp_path: Path, workshop: Workshop, seed: int) -> None:
    root = tmp_path / "root"
    case = make(root, random.Random(seed), workshop)  # the same cases every time
    machine = Machine([f"/{each.name}" for each in root.iterdir()], str(root))
    asked = tracer(machine, ("/usr/bin/main",), case.environment, f"/{case.directory}")
    (answer,) = look_up(asked, NAME, ["library"], case.asking)
    mine = {f"/{os.fsdecode(each.file)}": each.note for each in answer.winners if each.file is not None}
    remade = tmp_path / "remade"
    shutil.copytree(root, remade, symlinks=True)
    ldconfig(remade)
    true = {*taken(root, case), *taken(remade, case)}
    assert true <= set(mine), (case, true, mine)
    # On a CPU that this machine can't play, more can win: where $PLATFORM, or a directory of that name, is in the path.
    elsewhere = "PLATFORM" in str(answer) or re.search("certain CPUs: (haswell|x86_64)", str(mine))
    if true and not elsewhere:  # else the program does not start
        assert not [each for each, note in mine.items() if each not in true and _plain(note)], (case, true, mine)


def _plain(note: str | None) -> bool:
    return note is None or not re.search("certain CPUs|is the program|no ELF", note)
