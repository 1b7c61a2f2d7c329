"""The loader's cache: read as stored, made anew as ldconfig makes it, compared by what it resolves."""

from __future__ import annotations

import contextlib
import functools
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds.ld_cache import CacheFormatError
from imgdiff.trace.libraries import ld_cache
from imgdiff.trace.libraries.ld_cache import Cache
from tests.support.elf import Elf, elf_bytes
from tests.trace.library_image import Content, LibraryImage, Machine

X86_64 = (62, 64)
TRUSTED = (b"lib", b"usr/lib")


def library(soname: str) -> Elf:
    return Elf(soname=soname)


def rebuilt(files: dict[str, Content], trusted: tuple[bytes, ...] = TRUSTED) -> dict[str, list[str]]:
    """Return what a rebuilt cache gives, by SONAME."""
    image = LibraryImage(files)
    cache = ld_cache.rebuild(image.tree, image, trusted)
    return {name.decode(): [e.path.decode() for e in cache.lookup(name, *X86_64)] for name in cache.names()}


def new_cache(entries: list[tuple[bytes, bytes, int, int]]) -> bytes:
    """Write a cache in the format of glibc 2.1: (soname, path, flags, hwcap)."""
    start = 48 + 24 * len(entries)
    table, strings = b"", b""
    for soname, path, flags, hwcap in entries:
        key = start + len(strings)
        strings += soname + b"\0"
        table += struct.pack("<iIIIQ", flags, key, start + len(strings), 0, hwcap)
        strings += path + b"\0"
    return struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", len(entries), len(strings), 2, 0) + table + strings


def old_cache(entries: list[tuple[bytes, bytes, int]]) -> bytes:
    """Write a cache in the format of libc5 and glibc 2.0."""
    table, strings = b"", b""
    for soname, path, flags in entries:
        key = len(strings)
        strings += soname + b"\0"
        table += struct.pack("<III", flags, key, len(strings))
        strings += path + b"\0"
    return b"ld.so-1.7.0\0" + struct.pack("<I", len(entries)) + table + strings


# --- stored ---------------------------------------------------------------------------------------------------------


def test_entries_are_told_apart_by_machine() -> None:
    cache = ld_cache.parse(
        new_cache([(b"libx.so.1", b"/lib64/libx.so.1", 0x303, 0), (b"libx.so.1", b"/lib/libx.so.1", 3, 0)])
    )
    assert [e.path for e in cache.lookup(b"libx.so.1", 62, 64)] == [b"lib64/libx.so.1"]
    assert [e.path for e in cache.lookup(b"libx.so.1", 3, 32)] == [b"lib/libx.so.1"]
    assert cache.lookup(b"libx.so.1", 183, 64) == ()
    assert cache.lookup(b"liby.so.1", 62, 64) == ()


def test_the_first_plain_entry_wins_and_every_variant_counts() -> None:
    entries = [
        (b"libx.so.1", b"/opt/haswell/libx.so.1", 0x303, 4),
        (b"libx.so.1", b"/opt/libx.so.1", 0x303, 0),
        (b"libx.so.1", b"/usr/lib/libx.so.1", 0x303, 0),
    ]
    found = ld_cache.parse(new_cache(entries)).lookup(b"libx.so.1", *X86_64)
    assert [e.path for e in found] == [b"opt/haswell/libx.so.1", b"opt/libx.so.1"]
    assert found[0].variant


def test_the_old_format_alone_and_in_front_of_the_new_one() -> None:
    old = old_cache([(b"libx.so.1", b"/old/libx.so.1", 3)])
    assert [e.path for e in ld_cache.parse(old).lookup(b"libx.so.1", 3, 32)] == [b"old/libx.so.1"]
    padded = b"ld.so-1.7.0\0" + struct.pack("<I", 0)
    both = padded + new_cache([(b"libx.so.1", b"/new/libx.so.1", 0x303, 0)])
    assert [e.path for e in ld_cache.parse(both).lookup(b"libx.so.1", *X86_64)] == [b"new/libx.so.1"]


@settings(max_examples=300)
@given(st.data())
def test_rubbish_gives_an_error_of_one_kind(data: st.DataObject) -> None:
    entries = [(b"libx.so.1", b"/lib/libx.so.1", 0x303, 0), (b"liby.so.1", b"/lib/liby.so.1", 0x303, 1 << 62)]
    good = data.draw(st.sampled_from([new_cache(entries), old_cache([(b"libx.so.1", b"/lib/libx.so.1", 3)])]))
    image = bytearray(good[: data.draw(st.integers(0, len(good)))])
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, max(0, len(image) - 1)))
        image[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
    with contextlib.suppress(CacheFormatError):
        ld_cache.parse(bytes(image))


# --- compared -------------------------------------------------------------------------------------------------------


def test_caches_are_the_same_if_every_name_resolves_the_same() -> None:
    x, y = (b"libx.so.1", b"/lib/libx.so.1", 0x303, 0), (b"liby.so.1", b"/lib/liby.so.1", 0x303, 0)
    y_elsewhere = (b"liby.so.1", b"/opt/liby.so.1", 0x303, 0)
    assert ld_cache.same_resolution(new_cache([x, y]), new_cache([y, x]), ["libx.so.1", "liby.so.1"])
    assert ld_cache.same_resolution(new_cache([x, y]), new_cache([x, y_elsewhere]), ["libx.so.1"])
    assert not ld_cache.same_resolution(new_cache([x, y]), new_cache([x, y_elsewhere]), ["liby.so.1"])
    assert ld_cache.differing_names(new_cache([x, y]), new_cache([x, y_elsewhere])) == ("liby.so.1",)
    assert ld_cache.differing_names(new_cache([x]), new_cache([x, y])) == ("liby.so.1",)
    assert not ld_cache.same_resolution(None, new_cache([x]), ["libx.so.1"])


def test_an_entry_that_is_never_reached_does_not_count() -> None:
    x, behind = (b"libx.so.1", b"/lib/libx.so.1", 0x303, 0), (b"libx.so.1", b"/usr/lib/libx.so.1", 0x303, 0)
    assert ld_cache.same_resolution(new_cache([x]), new_cache([x, behind]), ["libx.so.1"])
    assert not ld_cache.same_resolution(new_cache([x]), new_cache([behind, x]), ["libx.so.1"])


def test_a_cache_that_cannot_be_read_is_the_same_as_none() -> None:
    x = new_cache([(b"libx.so.1", b"/lib/libx.so.1", 0x303, 0)])
    assert not ld_cache.same_resolution(x, x[:-5], ["libx.so.1"])
    assert not ld_cache.same_resolution(x[:-5], x[:-5], ["libx.so.1"])
    assert ld_cache.differing_names(x, b"rubbish") != ()


# --- rebuilt --------------------------------------------------------------------------------------------------------


def test_ld_so_conf_with_includes_comments_and_order() -> None:
    image = LibraryImage(
        {
            "etc/ld.so.conf": b"# all\ninclude /etc/ld.so.conf.d/*.conf\n/opt/last/lib  # here\nhwcap 1 nosegneg\n",
            "etc/ld.so.conf.d/b.conf": b"/opt/b\n/opt/b2=libc6\n",
            "etc/ld.so.conf.d/a.conf": b"/opt/a\ninclude more/*.conf\n",
            "etc/ld.so.conf.d/more/m.conf": b"/opt/m\n",
            "etc/ld.so.conf.d/.hidden.conf": b"/opt/hidden\n",
            "etc/ld.so.conf.d/a.conf.dpkg-old": b"/opt/old\n",
            "etc/ld.so.conf.d/loop.conf": b"include /etc/ld.so.conf\nrelative/dir\n",
        }
    )
    found = ld_cache.configured_directories(image.tree, image)
    assert found == (b"opt/a", b"opt/m", b"opt/b", b"opt/b2", b"opt/last/lib")


def test_an_image_without_configuration_has_the_trusted_directories() -> None:
    assert rebuilt({"usr/lib/libx.so.1": library("libx.so.1")}) == {"libx.so.1": ["usr/lib/libx.so.1"]}


def test_configured_directories_come_before_trusted_ones() -> None:
    files: dict[str, Content] = {
        "etc/ld.so.conf": b"/opt/lib\n",
        "usr/lib/libx.so.1": library("libx.so.1"),
        "opt/lib/libx.so.1": library("libx.so.1"),
    }
    assert rebuilt(files) == {"libx.so.1": ["opt/lib/libx.so.1"]}


def test_the_highest_version_of_one_soname_is_what_the_name_becomes() -> None:
    files: dict[str, Content] = {
        "lib/libx.so.1.9": library("libx.so.1"),
        "lib/libx.so.1.10": library("libx.so.1"),
        "lib/libx.so.1": "libx.so.1.9",
        "lib/libx.so": "libx.so.1",
    }
    image = LibraryImage(files)
    cache = ld_cache.rebuild(image.tree, image, TRUSTED)
    (entry,) = cache.lookup(b"libx.so.1", *X86_64)
    assert (entry.path, entry.target) == (b"lib/libx.so.1", b"lib/libx.so.1.10")
    (linked,) = cache.lookup(b"libx.so", *X86_64)
    assert (linked.path, linked.target) == (b"lib/libx.so", None)


def test_two_machines_under_one_soname_in_one_directory_both_can_be_meant() -> None:
    """ldconfig keeps one name for both, with the machine of the one that it read first."""
    image = LibraryImage(
        {
            "usr/lib64/libx.so.1": Elf(soname="libx.so.1"),
            "usr/lib64/libx.so.1.2": Elf(soname="libx.so.1", machine=183),
        }
    )
    cache = ld_cache.rebuild(image.tree, image, [b"usr/lib64"])
    assert [each.path for each in cache.lookup(b"libx.so.1", 62, 64)] == [b"usr/lib64/libx.so.1"]


def test_a_file_that_stands_under_the_soname_stays() -> None:
    files: dict[str, Content] = {"lib/libx.so.1": library("libx.so.1"), "lib/libx.so.1.5": library("libx.so.1")}
    image = LibraryImage(files)
    (entry,) = ld_cache.rebuild(image.tree, image, TRUSTED).lookup(b"libx.so.1", *X86_64)
    assert entry.target is None


def test_libraries_without_soname_scripts_and_other_names() -> None:
    files: dict[str, Content] = {
        "lib/libplain.so": Elf(),
        "lib/libscript.so": b"GROUP ( libc.so.6 )",
        "lib/module.so": library("module.so"),
        "lib/libx.so.1-gdb.py": b"",
        "lib/libdangling.so.1": "nowhere",
    }
    assert rebuilt(files) == {"libplain.so": ["lib/libplain.so"]}


def test_directories_for_certain_cpus_stand_beside() -> None:
    files: dict[str, Content] = {
        "lib/libx.so.1": library("libx.so.1"),
        "lib/glibc-hwcaps/x86-64-v3/libx.so.1.2": library("libx.so.1"),
        "lib/haswell/avx512_1/libx.so.1": library("libx.so.1"),
        "lib/other/libx.so.1": library("libx.so.1"),
    }
    assert sorted(rebuilt(files)["libx.so.1"][:-1]) == [
        "lib/glibc-hwcaps/x86-64-v3/libx.so.1.2", "lib/haswell/avx512_1/libx.so.1",
    ]  # fmt: skip
    assert rebuilt(files)["libx.so.1"][-1] == "lib/libx.so.1"


def test_one_directory_under_two_names_is_taken_once() -> None:
    files: dict[str, Content] = {"usr/lib/libx.so.1": library("libx.so.1"), "lib": "usr/lib"}
    assert rebuilt(files) == {"libx.so.1": ["lib/libx.so.1"]}


NAMES = st.text(st.sampled_from("ab.019-"), max_size=8).map(str.encode)


@given(NAMES, NAMES)
def test_versions_sort_as_in_ldconfig(a: bytes, b: bytes) -> None:
    key_a, key_b = ld_cache.version_key(a), ld_cache.version_key(b)
    assert (key_a > key_b) - (key_a < key_b) == _libcmp(a + b"\0", b + b"\0")


def _libcmp(a: bytes, b: bytes) -> int:
    """glibc's _dl_cache_libcmp, line by line."""
    i = j = 0
    while a[i]:
        if 48 <= a[i] <= 57:
            if not 48 <= b[j] <= 57:
                return 1
            one, other = 0, 0
            while 48 <= a[i] <= 57:
                one, i = one * 10 + a[i] - 48, i + 1
            while 48 <= b[j] <= 57:
                other, j = other * 10 + b[j] - 48, j + 1
            if one != other:
                return 1 if one > other else -1
        elif 48 <= b[j] <= 57:
            return -1
        elif a[i] != b[j]:
            return 1 if a[i] > b[j] else -1
        else:
            i, j = i + 1, j + 1
    return (a[i] > b[j]) - (a[i] < b[j])


# --- against ldconfig itself ----------------------------------------------------------------------------------------


def ldconfig() -> str:
    found = shutil.which("ldconfig", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if found is None:
        pytest.skip("ldconfig is not installed")
    return found


def resolved(cache: Cache) -> dict[bytes, list[bytes]]:
    return {name: [e.path for e in cache.lookup(name, *X86_64)] for name in cache.names()}


def debian_directories() -> tuple[bytes, ...]:
    if not Path("/lib/x86_64-linux-gnu").is_dir():
        pytest.skip("the directories that this machine's ldconfig trusts are not known")
    return (b"lib/x86_64-linux-gnu", b"usr/lib/x86_64-linux-gnu", b"lib", b"usr/lib")


@functools.cache
def this_machine() -> Machine:
    return Machine(
        ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.conf", "/etc/ld.so.conf.d"]
    )


def test_the_stored_cache_is_read_as_ldconfig_prints_it(tmp_path: Path) -> None:
    target = tmp_path / "cache"
    subprocess.run([ldconfig(), "-X", "-C", str(target)], check=True, capture_output=True)
    printed = subprocess.run([ldconfig(), "-p", "-C", str(target)], check=True, capture_output=True, text=True)
    lines = [line.strip() for line in printed.stdout.splitlines() if "=>" in line]
    expected = [(line.split(" (")[0], line.split(" => ")[1]) for line in lines]
    found = [(e.soname.decode(), "/" + e.path.decode()) for e in ld_cache.parse(target.read_bytes())]
    assert sorted(found) == sorted(expected)


def test_a_rebuilt_cache_of_a_made_tree_equals_ldconfigs(tmp_path: Path) -> None:
    """ldconfig -r on a small root: configured order, versions, links, two files of one SONAME, variants for CPUs."""
    trusted = debian_directories()
    made: dict[str, bytes] = {
        "opt/one/liba.so.1.2.3": elf_bytes(library("liba.so.1")),
        "opt/one/liba.so.1.10.0": elf_bytes(library("liba.so.1")),
        "opt/two/liba.so.1": elf_bytes(library("liba.so.1")),
        "opt/two/libnoname.so": elf_bytes(Elf()),
        "usr/lib/libb.so.2.0": elf_bytes(library("libb.so.2")),
        "lib/x86_64-linux-gnu/libb.so.2": elf_bytes(library("libb.so.2")),
        "lib/x86_64-linux-gnu/glibc-hwcaps/x86-64-v3/libb.so.2": elf_bytes(library("libb.so.2")),
        "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n",
        "etc/ld.so.conf.d/z.conf": b"/opt/one\n",
        "etc/ld.so.conf.d/a.conf": b"/opt/two\n/opt/missing\n",
    }
    root = tmp_path / "root"
    for path, content in made.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    (root / "opt/one/liba.so").symlink_to("liba.so.1.10.0")
    (root / "opt/one/liba-dev.so").symlink_to("liba.so.1.2.3")
    image = Machine(["/opt", "/usr", "/lib", "/etc"], str(root))
    expected = ld_cache.rebuild(image.tree, image, trusted)
    done = subprocess.run([ldconfig(), "-r", str(root)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"ldconfig -r needs rights that this user lacks: {done.stderr[:100]}")
    stored = ld_cache.parse((root / "etc/ld.so.cache").read_bytes())
    assert resolved(expected) == resolved(stored)
    after = Machine(["/opt", "/usr", "/lib", "/etc"], str(root))
    for entry in expected:
        if entry.target is not None:
            assert after.tree.resolve(entry.path) == image.tree.resolve(entry.target)


def test_this_machines_cache_rebuilt_equals_ldconfigs(tmp_path: Path) -> None:
    trusted = debian_directories()
    target = tmp_path / "cache"
    subprocess.run([ldconfig(), "-X", "-C", str(target)], check=True, capture_output=True)
    machine = this_machine()
    found = resolved(ld_cache.rebuild(machine.tree, machine, trusted))
    expected = resolved(ld_cache.parse(target.read_bytes()))
    places = (b"lib", b"usr/lib", b"usr/local/lib")
    inside = {name for name, paths in expected.items() if all(path.startswith(places) for path in paths)}
    assert {name: found.get(name) for name in inside} == {name: expected[name] for name in inside}
