"""``/etc/ld.so.cache``: what glibc's loader finds in the stored one, and in one that ldconfig would make anew.

Container runtimes run ldconfig when a container starts, so both can be what runs (ldconfig(8), ld.so(8)). The rebuilt
cache follows ldconfig of glibc 2.36: the directories of ld.so.conf in order, then the trusted ones; in a directory
one file for each SONAME, a file before a link, the higher version first; the cache names it by its SONAME, as ldconfig
makes that link. Libraries for certain CPUs (``glibc-hwcaps``, older ``haswell`` and the like) are kept beside the plain
one, since the host's CPU chooses.
"""

from __future__ import annotations

import fnmatch
import re
import struct
from collections.abc import Collection, Iterable, Iterator

import msgspec

from imgdiff.kinds.ld_cache import CacheFormatError, read
from imgdiff.model import ElfFacts, FactSource, Tree, Unreadable

CACHE_PATH = b"etc/ld.so.cache"
CONF_PATH = b"etc/ld.so.conf"
MAX_INCLUDES = 64  # files that one ld.so.conf may pull in, its nesting included
MAX_DIRECTORIES = 10_000

_OLD_MAGIC = b"ld.so-1.7.0"
_OLD_ENTRY = struct.Struct("<III")
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_ANY_ABI = 0xFF00
_ELF_LIBC6 = 3
# (e_machine, bits) -> the cache's ABI flags (sysdeps/generic/ldconfig.h)
_ABI: dict[tuple[int, int], frozenset[int]] = {
    (62, 64): frozenset({0x0300}),
    (3, 32): frozenset({0}),
    (183, 64): frozenset({0x0A00}),
    (40, 32): frozenset({0, 0x0900, 0x0B00}),
    (21, 64): frozenset({0x0500}),
    (22, 64): frozenset({0x0400}),
    (243, 64): frozenset({0x0F00, 0x1000}),
    (258, 64): frozenset({0x1100, 0x1200}),
}
# Platform directories that ldconfig and ld.so looked into before glibc 2.37 (sysdeps/x86_64/dl-hwcap.h and others)
LEGACY_HWCAPS = frozenset(
    b"tls haswell xeon_phi avx512_1 x86_64 i386 i486 i586 i686 sse2 nosegneg power5 power5+ power6 power6x power7 "
    b"power8 power9 z900 z990 z9-109 z10 z196 zEC12 z13 z14 z15 z16 v7l v8l neon vfp atomics".split()
)
HWCAPS_DIRECTORY = b"glibc-hwcaps"
_DIGITS = re.compile(rb"(\d+)")


class CachedLibrary(msgspec.Struct, frozen=True):
    """One entry: ``path`` has no leading slash. ``abi`` is None where the file itself must tell. ``variant`` names the
    CPU that it is for, empty for the plain one. ``target`` is the file that ldconfig would make ``path`` a link to."""

    soname: bytes
    path: bytes
    abi: int | None = None
    variant: bytes = b""
    target: bytes | None = None


class Cache:
    """Entries by SONAME, in the order in which the loader meets them."""

    def __init__(self, entries: Iterable[CachedLibrary]) -> None:
        self._by_name: dict[bytes, list[CachedLibrary]] = {}
        for entry in entries:
            self._by_name.setdefault(entry.soname, []).append(entry)

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def __iter__(self) -> Iterator[CachedLibrary]:
        for found in self._by_name.values():
            yield from found

    def lookup(self, name: bytes, machine: int, bits: int) -> tuple[CachedLibrary, ...]:
        """Return what a process of this machine can take for a name: the variants for CPUs, then the first plain
        entry (dl-cache.c)."""
        abis = _ABI.get((machine, bits))
        fitting = [e for e in self._by_name.get(name, ()) if e.abi is None or abis is None or e.abi in abis]
        plain = [entry for entry in fitting if not entry.variant][:1]
        return (*(entry for entry in fitting if entry.variant), *plain)

    def entries(self, name: bytes) -> tuple[CachedLibrary, ...]:
        """Return all entries of a name, in order, for every machine."""
        return tuple(self._by_name.get(name, ()))

    def names(self) -> Collection[bytes]:
        """Return the names that have an entry."""
        return self._by_name.keys()


def parse(data: bytes) -> Cache:
    """Read a stored cache, in the format of glibc 2.1 or in libc5's and glibc 2.0's (dl-cache.h).

    Raises CacheFormatError for anything else, with the reason as its text.
    """
    if data.startswith(_OLD_MAGIC) and _NEW_MAGIC not in data:
        return Cache(_old_entries(data))
    entries = []
    for entry in read(data):
        if entry.flags & 0xFF not in {1, _ELF_LIBC6}:
            continue
        variant = entry.subdirectory or (b"hwcap %#x" % entry.hwcap if entry.hwcap else b"")
        entries.append(CachedLibrary(entry.soname, entry.path.strip(b"/"), entry.flags & _ANY_ABI, variant))
    return Cache(entries)


def _old_entries(data: bytes) -> Iterator[CachedLibrary]:
    if len(data) < 16:
        raise CacheFormatError("it is truncated")
    (count,) = struct.unpack_from("<I", data, 12)
    start = 16 + count * _OLD_ENTRY.size
    if start > len(data):
        raise CacheFormatError(f"it claims {count} entries")
    for flags, key, value in _OLD_ENTRY.iter_unpack(data[16:start]):
        soname, path = (
            data[start + at :].partition(b"\0")[0] if start + at < len(data) else b"" for at in (key, value)
        )
        if not soname or not path:
            raise CacheFormatError("a string lies outside of it")
        yield CachedLibrary(soname, path.strip(b"/"), flags & _ANY_ABI)


def same_resolution(a: bytes | None, b: bytes | None, names: Iterable[str]) -> bool:
    """Tell whether two stored caches (None: no such file) give every name the same files in the same order, for every
    machine. False where one of them can't be read."""
    return not differing_names(a, b, names)


def differing_names(a: bytes | None, b: bytes | None, names: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return those of the names (None: all that either cache has) that two stored caches resolve differently, sorted.

    All of the names, where a cache can't be read: nothing is known of them then.
    """
    try:
        caches = [parse(data) if data is not None else Cache(()) for data in (a, b)]
    except CacheFormatError:
        return tuple(sorted(set(names or ("?",))))
    if names is None:
        wanted = set(caches[0].names()) | set(caches[1].names())
    else:
        wanted = {name.encode("utf-8", "surrogateescape") for name in names}
    tables = [{name: _reduced(cache, name) for name in wanted} for cache in caches]
    found = [name for name in wanted if tables[0][name] != tables[1][name]]
    return tuple(name.decode("utf-8", "surrogateescape") for name in sorted(found))


def _reduced(cache: Cache, name: bytes) -> list[tuple[bytes, int | None, bytes]]:
    """Return the entries of one name that a loader can take: the first plain one of each ABI, and all variants."""
    seen: set[int | None] = set()
    found = []
    for entry in cache._by_name.get(name, ()):  # noqa: SLF001  # the same module's
        if not entry.variant:
            if entry.abi in seen:
                continue
            seen.add(entry.abi)
        found.append((entry.path, entry.abi, entry.variant))
    return found


def configured_directories(tree: Tree, facts: FactSource) -> tuple[bytes, ...]:
    """Return the directories of ``/etc/ld.so.conf`` and what it includes, in order, without the leading slash."""
    return tuple(configured(tree, facts))


def configured(tree: Tree, facts: FactSource) -> dict[bytes, tuple[bytes, int]]:
    """Return the directories of ``/etc/ld.so.conf`` and what it includes, in order (that of the included files'
    names), each with the file and the line that first names it."""
    found: dict[bytes, tuple[bytes, int]] = {}
    _read_conf(tree, facts, CONF_PATH, found, [MAX_INCLUDES])
    return found


def _read_conf(
    tree: Tree, facts: FactSource, path: bytes, found: dict[bytes, tuple[bytes, int]], budget: list[int]
) -> None:
    if budget[0] <= 0:
        return
    budget[0] -= 1
    text = facts.text(path)
    for number, line in enumerate((text or b"").split(b"\n"), 1):
        words = line.partition(b"#")[0].split()
        if not words or len(found) >= MAX_DIRECTORIES:
            continue
        if words[0] == b"include":
            for pattern in words[1:]:
                for included in _glob(tree, pattern, path.rpartition(b"/")[0]):
                    _read_conf(tree, facts, included, found, budget)
        elif words[0] != b"hwcap":
            directory = line.partition(b"#")[0].strip().partition(b"=")[0].rstrip()
            if directory.startswith(b"/"):
                found.setdefault(directory.strip(b"/"), (path, number))


def _glob(tree: Tree, pattern: bytes, base: bytes) -> list[bytes]:
    """Return what a shell pattern matches, in the order of glob(3) under the C locale; hidden files only by name."""
    parts = (pattern if pattern.startswith(b"/") else base + b"/" + pattern).strip(b"/").split(b"/")
    paths = [b""]
    for part in parts:
        following = []
        for path in paths:
            if not any(c in part for c in b"*?["):
                following.append(join(path, part))
                continue
            directory = tree.resolve(path)
            for name in tree.children(directory) if directory is not None else ():
                if name.startswith(b".") and not part.startswith(b"."):
                    continue
                if fnmatch.fnmatchcase(name.decode("latin-1"), part.decode("latin-1")):
                    following.append(join(path, name))
        paths = following
    return [path for path in paths if tree.lookup(path) is not None]


def rebuild(tree: Tree, facts: FactSource, trusted: Iterable[bytes]) -> Cache:
    """Return the cache that ldconfig would write: the directories of ld.so.conf, then those of ``trusted``."""
    entries: list[CachedLibrary] = []
    seen: set[bytes] = set()
    for directory in (*configured_directories(tree, facts), *trusted):
        canonical = tree.resolve(directory)
        if canonical is None or canonical in seen or not tree.is_dir(canonical):
            continue  # ldconfig too takes each directory once, by device and inode
        seen.add(canonical)
        entries += _directory(tree, facts, directory, canonical, b"")
        entries += _variants(tree, facts, directory, canonical)
    return Cache(entries)


def _variants(tree: Tree, facts: FactSource, directory: bytes, canonical: bytes) -> Iterator[CachedLibrary]:
    for name, place in cpu_directories(tree, canonical):
        yield from _directory(tree, facts, directory + b"/" + name, place, name)


def cpu_directories(tree: Tree, canonical: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (relative path, canonical path) of the directories for certain CPUs below a library directory."""
    for name in tree.children(tree.resolve(HWCAPS_DIRECTORY, canonical) or b"\0"):
        relative = HWCAPS_DIRECTORY + b"/" + name
        place = tree.resolve(relative, canonical)
        if place is not None and tree.is_dir(place):
            yield relative, place
    queue = [b""]
    for above in queue:  # they nest, four deep in practice: tls/haswell/avx512_1/x86_64
        if above.count(b"/") > 3:
            continue
        for name in tree.children(tree.resolve(above, canonical) or b"\0"):
            if name not in LEGACY_HWCAPS or name in above.split(b"/"):
                continue
            relative = join(above, name)
            place = tree.resolve(relative, canonical)
            if place is not None and tree.is_dir(place):
                queue.append(relative)
                yield relative, place


class _Choice(msgspec.Struct):
    name: bytes
    is_link: bool
    abi: int | None


def _directory(
    tree: Tree, facts: FactSource, shown: bytes, canonical: bytes, variant: bytes
) -> Iterator[CachedLibrary]:
    """Yield the entries of one directory; of several files with one SONAME the one that ldconfig takes."""
    chosen: dict[bytes, _Choice] = {}
    for name in tree.children(canonical):
        if not is_library_name(name):
            continue
        path = tree.resolve(join(canonical, name))
        entry = tree.get(path) if path is not None else None
        if path is None or entry is None or entry.type != "file":
            continue
        found = facts.elf(path)
        if found is None:
            continue
        is_link = tree.entries[join(canonical, name)].type == "symlink"
        soname, is_link = _soname(name, found, is_link)
        candidate = _Choice(name, is_link, _abi(found))
        known = chosen.get(soname)
        if (
            known is not None and known.abi != candidate.abi
        ):  # ldconfig writes that of the first in the directory's order
            known.abi = candidate.abi = None
        if known is None or (known.is_link, version_key(name)) > (is_link, version_key(known.name)):
            chosen[soname] = candidate
    for soname, choice in chosen.items():
        inside = choice.name if variant.startswith(HWCAPS_DIRECTORY) else soname
        standing = tree.get(join(canonical, soname))
        # ldconfig makes the link, unless a file stands there
        linked = inside == soname != choice.name and not (standing is not None and standing.type == "file")
        target = join(canonical, choice.name) if linked and not choice.is_link else None
        yield CachedLibrary(soname, shown + b"/" + inside, choice.abi, variant, target)


def join(directory: bytes, name: bytes) -> bytes:
    """Return the path of a name in a directory (no leading slash)."""
    return directory + b"/" + name if directory else name


def is_library_name(name: bytes) -> bool:
    """Tell whether ldconfig looks at a file of this name."""
    return name.startswith((b"lib", b"ld-")) and b".so" in name and not name.endswith((b"-gdb.py", b".dpkg-new"))


def _soname(name: bytes, found: ElfFacts | Unreadable, is_link: bool) -> tuple[bytes, bool]:
    """Return the name under which ldconfig files it, and whether it counts as a link."""
    stated = found.soname if isinstance(found, ElfFacts) else None
    soname = stated.encode("utf-8", "surrogateescape") if stated else name
    if is_link and name != soname and not (name.endswith(b".so") and soname.startswith(name)):
        is_link = False
    return (name if is_link else soname), is_link


def _abi(found: ElfFacts | Unreadable) -> int | None:
    if isinstance(found, Unreadable):
        return None
    abis = _ABI.get((found.machine, found.bits))
    return next(iter(abis)) if abis is not None and len(abis) == 1 else None


def version_key(name: bytes) -> list[tuple[int, int | bytes]]:
    """Return a key that sorts names as ldconfig does: stretches of digits by their value, a digit after any other
    character (_dl_cache_libcmp)."""
    key: list[tuple[int, int | bytes]] = []
    for part in _DIGITS.split(name):
        if part.isdigit():
            key.append((1, int(part[:4000])))
        else:
            key += [(0, bytes((c,))) for c in part]
    return key
