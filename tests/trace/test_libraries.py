"""Which library a name loads: the loader's search order, and all that a process maps."""

from __future__ import annotations

import functools
import os
import re
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from imgdiff.model import ElfFacts, Tree, Unreadable
from imgdiff.trace.libraries.needed import Caches, Closure, LibraryResolver, Start
from tests.kinds.elf_inputs import tool
from tests.support.elf import Elf, elf_bytes
from tests.trace.library_image import LOADER, Content, LibraryImage, Machine
from tests.trace.test_ld_cache import new_cache

LIBC = {"lib64/ld-linux-x86-64.so.2": Elf(soname="ld-linux-x86-64.so.2"), "lib64/libc.so.6": Elf(soname="libc.so.6")}
PROGRAM = "usr/bin/engine"


def program(*needed: str, rpath: str | None = None, runpath: str | None = None) -> Elf:
    return Elf(needed=needed, rpath=rpath, runpath=runpath, interpreter=LOADER)


def library(soname: str, *needed: str, rpath: str | None = None, runpath: str | None = None) -> Elf:
    return Elf(soname=soname, needed=needed, rpath=rpath, runpath=runpath)


def resolver(
    files: Mapping[str, Content], environment: dict[str, str] | None = None, directory: str = ""
) -> LibraryResolver:
    image = LibraryImage({**LIBC, **files})
    return LibraryResolver(image.tree, image, environment, PROGRAM.encode(), directory.encode())


def closure(files: Mapping[str, Content], *more: str, environment: dict[str, str] | None = None) -> Closure:
    starts = [Start(path.encode()) for path in (PROGRAM, *more)]
    return resolver(files, environment).closure(starts)


def mapped(found: Closure, *, certain: bool = True) -> list[str]:
    return [item.path.decode() for item in found.loaded if item.certain == certain]


def first(
    files: Mapping[str, Content], name: str = "libx.so.1", environment: dict[str, str] | None = None
) -> str | None:
    """Return the file that the program loads for a name."""
    found = resolver(files, environment).resolve(name)
    return found.candidates[0].path.decode() if found.candidates else None


# --- the order of the search ----------------------------------------------------------------------------------------

PLACES: dict[str, Content] = {
    f"{place}/libx.so.1": library("libx.so.1")
    for place in ("opt/rpath", "opt/env", "opt/runpath", "opt/conf", "usr/lib64")
}
CONF: dict[str, Content] = {"etc/ld.so.conf": b"/opt/conf\n"}


def test_rpath_comes_before_the_environment_and_runpath_behind_it() -> None:
    environment = {"LD_LIBRARY_PATH": "/opt/env"}
    assert first({**PLACES, PROGRAM: program(rpath="/opt/rpath")}, environment=environment) == "opt/rpath/libx.so.1"
    assert first({**PLACES, PROGRAM: program(runpath="/opt/runpath")}, environment=environment) == "opt/env/libx.so.1"
    assert first({**PLACES, PROGRAM: program(runpath="/opt/runpath")}) == "opt/runpath/libx.so.1"


def test_an_rpath_beside_a_runpath_is_ignored() -> None:
    assert first({**PLACES, PROGRAM: program(rpath="/opt/rpath", runpath="/opt/nothing")}) == "usr/lib64/libx.so.1"


def test_the_cache_comes_before_the_default_directories() -> None:
    assert first({**PLACES, **CONF, PROGRAM: program()}) == "opt/conf/libx.so.1"
    assert first({**PLACES, PROGRAM: program()}) == "usr/lib64/libx.so.1"


def test_what_is_nowhere_is_unresolved_and_the_search_is_told() -> None:
    found = resolver({PROGRAM: program()}, {"LD_LIBRARY_PATH": "/opt/env:/opt/more"}).resolve("libcuda.so.1")
    assert found.candidates == ()
    assert found.searched[:2] == (b"opt/env", b"opt/more")
    assert b"usr/lib64" in found.searched


class NoDefaults(LibraryImage):
    """An image whose program was linked with ``-z nodefaultlib``."""

    def elf(self, path: bytes) -> ElfFacts | Unreadable | None:
        """Return the facts, with that flag for the program."""
        found = super().elf(path)
        if isinstance(found, ElfFacts) and path == PROGRAM.encode():
            return msgspec.structs.replace(found, nodeflib=True)
        return found


def test_nodeflib_leaves_out_the_default_directories() -> None:
    for more, expected in (({}, []), (CONF, [b"opt/conf/libx.so.1"])):
        image = NoDefaults({**LIBC, **PLACES, PROGRAM: program(), **more})
        found = LibraryResolver(image.tree, image, {}, PROGRAM.encode()).resolve("libx.so.1")
        assert [candidate.path for candidate in found.candidates] == expected


def test_tokens_stand_for_the_objects_directory_and_the_systems() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(runpath="${ORIGIN}/../share/$LIB/$PLATFORM"),
        "usr/share/lib64/haswell/libx.so.1": library("libx.so.1"),
    }
    assert first(files) == "usr/share/lib64/haswell/libx.so.1"
    files = {PROGRAM: program(runpath="$ORIGIN/../private"), "usr/private/libx.so.1": library("libx.so.1")}
    assert first(files) == "usr/private/libx.so.1"


def test_origin_is_the_directory_of_the_name_that_was_opened() -> None:
    """ld.so follows no links in it: a library found through a linked directory looks beside the link."""
    files: dict[str, Content] = {
        PROGRAM: program("liba.so.1", runpath="/opt/view"),
        "opt/real/liba.so.1": library("liba.so.1", "libx.so.1", runpath="$ORIGIN/more"),
        "opt/view/liba.so.1": "../real/liba.so.1",
        "opt/view/more/libx.so.1": library("libx.so.1"),
        "opt/real/more/libx.so.1": library("libx.so.1"),
    }
    assert "opt/view/more/libx.so.1" in mapped(closure(files))
    assert "opt/real/more/libx.so.1" not in mapped(closure(files))


def test_empty_and_relative_elements_are_the_working_directory() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(),
        "work/libx.so.1": library("libx.so.1"),
        "work/sub/liby.so.1": Elf(),
    }
    found = resolver(files, {"LD_LIBRARY_PATH": ":sub"}, "/work")
    assert [c.path for c in found.resolve("libx.so.1").candidates] == [b"work/libx.so.1"]
    assert [c.path for c in found.resolve("liby.so.1").candidates] == [b"work/sub/liby.so.1"]


def test_a_name_with_a_slash_is_a_path() -> None:
    files: dict[str, Content] = {PROGRAM: program(), "opt/x/libx.so.1": library("libx.so.1"), "opt/view": "x"}
    found = resolver(files)
    assert [c.path for c in found.resolve("/opt/view/libx.so.1").candidates] == [b"opt/x/libx.so.1"]
    assert [c.path for c in found.resolve("$ORIGIN/../../opt/x/libx.so.1").candidates] == [b"opt/x/libx.so.1"]


def test_files_of_another_machine_or_class_are_passed_over() -> None:
    other = bytearray(elf_bytes(library("libx.so.1")))
    other[18:20] = struct.pack("<H", 183)
    files: dict[str, Content] = {
        PROGRAM: program(runpath="/opt/arm:/opt/x86"),
        "opt/arm/libx.so.1": bytes(other),
        "opt/x86/libx.so.1": library("libx.so.1"),
    }
    assert first(files) == "opt/x86/libx.so.1"


def test_a_file_that_is_no_elf_file_counts_and_so_does_the_next() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(runpath="/opt/a:/opt/b"),
        "opt/a/libx.so.1": b"INPUT(libx.so.2)",
        "opt/b/libx.so.1": library("libx.so.1"),
    }
    found = resolver(files).resolve("libx.so.1")
    assert [c.path for c in found.candidates] == [b"opt/a/libx.so.1", b"opt/b/libx.so.1"]
    assert "no ELF file" in found.candidates[0].how


def test_every_variant_for_a_cpu_counts_beside_the_plain_file() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(runpath="/opt/lib"),
        "opt/lib/libx.so.1": library("libx.so.1"),
        "opt/lib/glibc-hwcaps/x86-64-v3/libx.so.1": library("libx.so.1"),
        "opt/lib/glibc-hwcaps/x86-64-v4/libx.so.1": library("libx.so.1"),
        "opt/lib/haswell/libx.so.1": library("libx.so.1"),
        "usr/lib64/libx.so.1": library("libx.so.1"),
    }
    assert {c.path.decode() for c in resolver(files).resolve("libx.so.1").candidates} == {
        "opt/lib/libx.so.1", "opt/lib/glibc-hwcaps/x86-64-v3/libx.so.1", "opt/lib/glibc-hwcaps/x86-64-v4/libx.so.1",
        "opt/lib/haswell/libx.so.1",
    }  # fmt: skip


def test_a_variant_alone_does_not_end_the_search() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(runpath="/opt/lib"),
        "opt/lib/glibc-hwcaps/x86-64-v4/libx.so.1": library("libx.so.1"),
        "usr/lib64/libx.so.1": library("libx.so.1"),
    }
    assert {c.path for c in resolver(files).resolve("libx.so.1").candidates} == {
        b"opt/lib/glibc-hwcaps/x86-64-v4/libx.so.1", b"usr/lib64/libx.so.1",
    }  # fmt: skip


@pytest.mark.parametrize("form", ["$PLATFORM", "${PLATFORM}"])
def test_what_the_cpu_decides_about_a_path_does_not_end_the_search(form: str) -> None:
    """The haswell of a CPU with AVX2 was taken for what an older one loads, too."""
    copies = {f"opt/{place}/libx.so.1": library("libx.so.1") for place in ("x86_64", "haswell", "next")}
    files: dict[str, Content] = {**copies, PROGRAM: program(rpath=f"/opt/{form}:/opt/next")}
    found = [each.path.decode() for each in resolver(files).resolve("libx.so.1").candidates]
    assert found == [f"opt/{place}/libx.so.1" for place in ("x86_64", "haswell", "next")]


def test_a_token_ends_where_its_name_does() -> None:
    files = {"usr/bin/libx.so.1": library("libx.so.1"), PROGRAM: program(rpath="$ORIGINS:$LIB64:${ORIGIN}s")}
    assert first({**files, "usr/binS/libx.so.1": library("libx.so.1")}) is None
    assert first({**files, "usr/bins/libx.so.1": library("libx.so.1")}) == "usr/bins/libx.so.1"


def test_a_file_of_a_cached_variant_that_is_gone_leads_to_the_default_directories() -> None:
    """A CPU that the entry is for gets no other entry of the cache."""
    files: dict[str, Content] = {
        "opt/conf/libx.so.1": library("libx.so.1"),
        "lib64/libx.so.1": library("libx.so.1"),
        "etc/ld.so.conf": b"/opt/conf\n",
        PROGRAM: program(),
    }
    files["etc/ld.so.cache"] = new_cache(
        [(b"libx.so.1", b"/lib64/haswell/libx.so.1", 0x0303, 4), (b"libx.so.1", b"/opt/conf/libx.so.1", 0x0303, 0)]
    )
    found = {each.path for each in resolver(files).resolve("libx.so.1").candidates}
    assert found == {b"opt/conf/libx.so.1", b"lib64/libx.so.1"}


def test_a_link_that_ldconfig_would_make_is_found_by_a_search_path() -> None:
    files: dict[str, Content] = {
        "opt/new/libx.so.1.2": library("libx.so.1"),
        "opt/old/libx.so.1": library("libx.so.1"),
        "etc/ld.so.conf": b"/opt/new\n",
        PROGRAM: program(rpath="/opt/new:/opt/old"),
    }
    found = [each.path for each in resolver(files).resolve("libx.so.1").candidates]
    assert found == [b"opt/new/libx.so.1.2", b"opt/old/libx.so.1"]
    del files["etc/ld.so.conf"]
    assert first(files) == "opt/old/libx.so.1"


def test_a_program_that_can_gain_rights_may_ignore_the_environment() -> None:
    """... by its mode or by file capabilities, where another user than root starts it (ld.so(8), secure-execution)."""
    for entry in ({"mode": 0o4755}, {"xattrs": ((b"security.capability", b"x"),)}):
        files = {**PLACES, PROGRAM: program(rpath="$ORIGIN/../../opt/rpath")}
        image = LibraryImage({**LIBC, **files})
        for environment in ({"LD_LIBRARY_PATH": "/opt/env"}, {"LD_PRELOAD": "/opt/env/libx.so.1"}):
            key = PROGRAM.encode()
            plain = LibraryResolver(image.tree, image, environment, key)
            assert [each.certain for found in plain.preloads() for each in found.candidates] in ([], [True])
            assert [each.path for each in plain.resolve("libx.so.1").candidates] == [b"opt/rpath/libx.so.1"]
            tree = Tree({**image.tree.entries, key: msgspec.structs.replace(image.tree.entries[key], **entry)})
            gaining = LibraryResolver(tree, image, environment, key)
            assert [each.certain for found in gaining.preloads() for each in found.candidates] in ([], [False])
            found = [each.path for each in gaining.resolve("libx.so.1").candidates]
            environments = [b"opt/env/libx.so.1"] if "LD_LIBRARY_PATH" in environment else []
            assert found == [b"opt/rpath/libx.so.1", *environments, b"usr/lib64/libx.so.1"]


def test_a_file_that_some_users_may_not_read_does_not_end_the_search() -> None:
    """The loader goes on where it may not open a file, and who runs the image decides."""
    image = LibraryImage({**LIBC, **PLACES, PROGRAM: program(rpath="/opt/rpath")})
    key = b"opt/rpath/libx.so.1"
    tree = Tree({**image.tree.entries, key: msgspec.structs.replace(image.tree.entries[key], mode=0o640)})
    found = LibraryResolver(tree, image, {}, PROGRAM.encode()).resolve("libx.so.1")
    assert [each.path for each in found.candidates] == [key, b"usr/lib64/libx.so.1"]


def test_the_trusted_directories_are_those_that_the_loader_names() -> None:
    debian = Elf(
        soname="ld-linux-x86-64.so.2",
        strings=("/lib/x86_64-linux-gnu/", "/usr/lib/x86_64-linux-gnu/", "/lib/", "/usr/lib/"),
    )
    files: dict[str, Content] = {**PLACES, PROGRAM: program(), "lib64/ld-linux-x86-64.so.2": debian}
    assert first(files) is None
    assert first({**files, "usr/lib/libx.so.1": library("libx.so.1")}) == "usr/lib/libx.so.1"
    own = Elf(soname="ld-linux-x86-64.so.2", strings=("/nix/store/abc-glibc/lib/",))
    nix: dict[str, Content] = {**files, "lib64/ld-linux-x86-64.so.2": own, "nix/store/abc-glibc/lib/libx.so.1": Elf()}
    assert first(nix) == "nix/store/abc-glibc/lib/libx.so.1"


# --- the stored cache and the rebuilt one ---------------------------------------------------------------------------


def cache(path: bytes) -> bytes:
    return new_cache([(b"libx.so.1", path, 0x303, 0)])


def test_where_the_caches_differ_both_files_count() -> None:
    files = {**PLACES, **CONF, PROGRAM: program(), "etc/ld.so.cache": cache(b"/usr/lib64/libx.so.1")}
    found = resolver(files).resolve("libx.so.1")
    assert [c.path for c in found.candidates] == [b"usr/lib64/libx.so.1", b"opt/conf/libx.so.1"]
    assert (found.differs, found.stored, found.rebuilt) == (True, b"usr/lib64/libx.so.1", b"opt/conf/libx.so.1")


def test_where_they_agree_there_is_one() -> None:
    files = {**PLACES, **CONF, PROGRAM: program(), "etc/ld.so.cache": cache(b"/opt/conf/libx.so.1")}
    found = resolver(files).resolve("libx.so.1")
    assert ([c.path for c in found.candidates], found.differs) == ([b"opt/conf/libx.so.1"], False)


def test_a_stored_entry_whose_file_is_gone_leads_on() -> None:
    files = {**PLACES, PROGRAM: program(), "etc/ld.so.cache": cache(b"/gone/libx.so.1")}
    found = resolver(files).resolve("libx.so.1")
    assert ([c.path for c in found.candidates], found.differs) == ([b"usr/lib64/libx.so.1"], False)


def test_a_name_before_the_cache_differs_in_nothing() -> None:
    files = {
        **PLACES,
        **CONF,
        PROGRAM: program(runpath="/opt/runpath"),
        "etc/ld.so.cache": cache(b"/usr/lib64/libx.so.1"),
    }
    assert not resolver(files).resolve("libx.so.1").differs


def test_without_a_stored_cache_ldconfig_may_run_or_not() -> None:
    found = resolver({**PLACES, **CONF, PROGRAM: program()}).resolve("libx.so.1")
    assert [c.path for c in found.candidates] == [b"opt/conf/libx.so.1", b"usr/lib64/libx.so.1"]
    assert not found.differs


def test_a_stored_cache_that_cannot_be_read_is_a_blindspot() -> None:
    found = resolver({**PLACES, **CONF, PROGRAM: program(), "etc/ld.so.cache": b"rubbish"})
    assert [(b.what, b.path) for b in found.blindspots] == [("ld.so.cache", b"etc/ld.so.cache")]
    assert found.resolve("libx.so.1").candidates[0].path == b"opt/conf/libx.so.1"
    assert resolver({**PLACES, PROGRAM: program()}).blindspots == ()


def test_ldconfig_would_turn_a_link_to_a_newer_file() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(),
        "usr/lib64/libx.so.1": "libx.so.1.1",
        "usr/lib64/libx.so.1.1": library("libx.so.1"),
        "usr/lib64/libx.so.1.2": library("libx.so.1"),
        "etc/ld.so.cache": cache(b"/usr/lib64/libx.so.1"),
    }
    found = resolver(files).resolve("libx.so.1")
    assert (found.stored, found.rebuilt) == (b"usr/lib64/libx.so.1.1", b"usr/lib64/libx.so.1.2")


# --- what a process maps --------------------------------------------------------------------------------------------


def test_the_closure_has_the_loader_and_all_that_is_needed_with_chains() -> None:
    files: dict[str, Content] = {
        PROGRAM: program("liba.so.1", "libc.so.6"),
        "usr/lib64/liba.so.1": library("liba.so.1", "libb.so.1"),
        "usr/lib64/libb.so.1": library("libb.so.1", "libc.so.6"),
    }
    found = closure(files)
    assert set(mapped(found)) == {
        PROGRAM, "lib64/ld-linux-x86-64.so.2", "usr/lib64/liba.so.1", "lib64/libc.so.6", "usr/lib64/libb.so.1",
    }  # fmt: skip
    assert [item.path.decode() for item in found.chain(b"usr/lib64/libb.so.1")] == [
        PROGRAM, "usr/lib64/liba.so.1", "usr/lib64/libb.so.1",
    ]  # fmt: skip
    assert found.chain(b"usr/lib64/libb.so.1")[-1].name == "libb.so.1"
    assert found.unresolved == ()
    assert found.answers["libc.so.6"] == (b"lib64/libc.so.6",)


def test_a_library_that_is_loaded_answers_for_its_soname() -> None:
    """A kernel without a usable RUNPATH needs the library that its framework has loaded before."""
    files: dict[str, Content] = {
        PROGRAM: program(),
        "site/torch/_C.so": Elf(needed=("libtorch.so",), runpath="$ORIGIN/lib"),
        "site/torch/lib/libtorch.so": library("libtorch.so"),
        "site/vllm/_C.abi3.so": Elf(needed=("libtorch.so",)),
    }
    found = closure(files, "site/torch/_C.so", "site/vllm/_C.abi3.so")
    assert found.unresolved == ()
    (candidate,) = found.resolutions[b"site/vllm/_C.abi3.so", "libtorch.so"].candidates
    assert (candidate.path, candidate.how) == (b"site/torch/lib/libtorch.so", "loaded already")


def test_it_answers_also_where_the_order_of_the_starts_is_another() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(),
        "site/torch/_C.so": Elf(needed=("libtorch.so",), runpath="$ORIGIN/lib"),
        "site/torch/lib/libtorch.so": library("libtorch.so"),
        "site/vllm/_C.abi3.so": Elf(needed=("libtorch.so",)),
    }
    assert closure(files, "site/vllm/_C.abi3.so", "site/torch/_C.so").unresolved == ()
    assert closure(files, "site/vllm/_C.abi3.so").unresolved == ((b"site/vllm/_C.abi3.so", "libtorch.so"),)


def test_the_file_that_another_order_would_load_is_kept_as_uncertain() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(),
        "site/a.so": Elf(needed=("libgomp.so.1",), runpath="/opt/a"),
        "site/b.so": Elf(needed=("libgomp.so.1",), runpath="/opt/b"),
        "opt/a/libgomp.so.1": library("libgomp.so.1"),
        "opt/b/libgomp.so.1": library("libgomp.so.1", "libextra.so"),
        "opt/b/libextra.so": library("libextra.so"),
        "usr/lib64/libextra.so": library("libextra.so"),
    }
    found = closure(files, "site/a.so", "site/b.so")
    assert "opt/a/libgomp.so.1" in mapped(found)
    assert mapped(found, certain=False) == ["opt/b/libgomp.so.1", "usr/lib64/libextra.so"]


def test_an_uncertain_file_that_is_needed_for_sure_later_becomes_certain_with_its_needs() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(),
        "site/a.so": Elf(needed=("libg.so.1",), runpath="/opt/a"),
        "site/b.so": Elf(needed=("libg.so.1",), runpath="/opt/b"),
        "site/c.so": Elf(needed=("/opt/b/libg.so.1",)),
        "opt/a/libg.so.1": library("libg.so.1"),
        "opt/b/libg.so.1": library("libg.so.1", "libextra.so"),
        "usr/lib64/libextra.so": library("libextra.so"),
    }
    found = closure(files, "site/a.so", "site/b.so", "site/c.so")
    assert mapped(found, certain=False) == []
    assert "usr/lib64/libextra.so" in mapped(found)


def test_rpath_of_those_that_load_counts_and_runpath_does_not() -> None:
    files: dict[str, Content] = {
        PROGRAM: program("liba.so.1", rpath="/opt/lib"),
        "opt/lib/liba.so.1": library("liba.so.1", "libx.so.1"),
        "opt/lib/libx.so.1": library("libx.so.1"),
    }
    assert closure(files).unresolved == ()
    files[PROGRAM] = program("liba.so.1", runpath="/opt/lib")
    assert closure(files).unresolved == ((b"opt/lib/liba.so.1", "libx.so.1"),)
    files[PROGRAM] = program("liba.so.1", rpath="/opt/lib")
    files["opt/lib/liba.so.1"] = library("liba.so.1", "libx.so.1", runpath="/nowhere")
    assert closure(files).unresolved == ((b"opt/lib/liba.so.1", "libx.so.1"),)


def test_preloads_come_from_the_environment_and_the_file() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(),
        "usr/lib64/libtcmalloc.so.4": library("libtcmalloc.so.4"),
        "opt/libiomp5.so": library("libiomp5.so"),
        "etc/ld.so.preload": b"# always\n/opt/libiomp5.so  # openmp\n",
    }
    found = resolver(files, {"LD_PRELOAD": "libtcmalloc.so.4:/missing.so", "LD_AUDIT": "/opt/libiomp5.so"}).preloads()
    assert [(r.name, [c.path for c in r.candidates]) for r in found] == [
        ("/opt/libiomp5.so", [b"opt/libiomp5.so"]),
        ("libtcmalloc.so.4", [b"usr/lib64/libtcmalloc.so.4"]),
        ("/missing.so", []),
        ("/opt/libiomp5.so", [b"opt/libiomp5.so"]),
    ]


def test_what_a_library_opens_is_looked_for_with_its_own_paths() -> None:
    files: dict[str, Content] = {
        PROGRAM: program(),
        "opt/a/liba.so": library("liba.so", runpath="$ORIGIN/plugins"),
        "opt/a/plugins/libplugin.so": library("libplugin.so"),
        "opt/r/libr.so": library("libr.so", rpath="/opt/a/plugins"),
    }
    asking = resolver(files)
    assert [c.path for c in asking.resolve("libplugin.so", b"opt/a/liba.so").candidates] == [
        b"opt/a/plugins/libplugin.so"
    ]
    assert asking.resolve("libplugin.so").candidates == ()
    bare = {**files, "opt/c/libc1.so": library("libc1.so")}
    assert resolver(bare).resolve("libplugin.so", b"opt/c/libc1.so").candidates == ()
    assert resolver(bare).resolve("libplugin.so", b"opt/c/libc1.so", [b"opt/r/libr.so"]).candidates != ()


def test_loops_and_files_that_cannot_be_read_end_well() -> None:
    files: dict[str, Content] = {
        PROGRAM: program("liba.so.1", "libbad.so.1"),
        "usr/lib64/liba.so.1": library("liba.so.1", "libb.so.1"),
        "usr/lib64/libb.so.1": library("libb.so.1", "liba.so.1"),
        "usr/lib64/libbad.so.1": b"\x7fELF cut short",
    }
    found = closure(files, "not/there.so", "usr")
    assert [path for path, _ in found.unreadable] == [b"usr/lib64/libbad.so.1"]
    assert found.unresolved == ()


def test_library_directories_are_where_any_name_is_looked_for() -> None:
    files: dict[str, Content] = {
        **PLACES,
        **CONF,
        PROGRAM: program(),
        "etc/ld.so.cache": cache(b"/opt/rpath/libx.so.1"),
    }
    found = resolver(files, {"LD_LIBRARY_PATH": "/opt/env:/not/there"}).library_directories
    assert {b"opt/env", b"opt/conf", b"opt/rpath", b"usr/lib64", b"lib64"} <= set(found)
    assert b"not/there" not in found


# --- musl -----------------------------------------------------------------------------------------------------------

MUSL: dict[str, Content] = {
    "lib/ld-musl-x86_64.so.1": Elf(),
    "lib/libc.musl-x86_64.so.1": "ld-musl-x86_64.so.1",
    "usr/lib/libx.so.1": library("libx.so.1"),
    "usr/local/lib/libx.so.1": library("libx.so.1"),
    "opt/r/libx.so.1": library("libx.so.1"),
    "opt/env/libx.so.1": library("libx.so.1"),
}


def musl(
    files: Mapping[str, Content], name: str, environment: dict[str, str] | None = None, **paths: str
) -> list[bytes]:
    main = Elf(interpreter="/lib/ld-musl-x86_64.so.1", rpath=paths.get("rpath"), runpath=paths.get("runpath"))
    image = LibraryImage({**MUSL, **files, PROGRAM: main})
    found = LibraryResolver(image.tree, image, environment, PROGRAM.encode()).resolve(name)
    return [candidate.path for candidate in found.candidates]


def test_musl_has_its_own_order_and_path_file() -> None:
    assert musl({}, "libx.so.1") == [b"usr/local/lib/libx.so.1"]
    assert musl({"etc/ld-musl-x86_64.path": b"/usr/lib\n/usr/local/lib\n"}, "libx.so.1") == [b"usr/lib/libx.so.1"]
    assert musl({}, "libx.so.1", {"LD_LIBRARY_PATH": "/opt/env"}, rpath="/opt/r") == [b"opt/env/libx.so.1"]
    assert musl({}, "libx.so.1", rpath="/opt/r") == [b"opt/r/libx.so.1"]
    assert musl({}, "libx.so.1", runpath="/opt/r") == [b"opt/r/libx.so.1"]
    assert musl({"etc/ld.so.conf": b"/opt/env\n", "etc/ld.so.cache": cache(b"/opt/env/libx.so.1")}, "libx.so.1") == [
        b"usr/local/lib/libx.so.1"
    ]


def test_musl_knows_no_tokens_and_no_empty_parts_in_the_environment() -> None:
    at_origin = {"usr/bin/libx.so.1": library("libx.so.1"), "libx.so.1": library("libx.so.1")}
    assert musl(at_origin, "libx.so.1", {"LD_LIBRARY_PATH": "$ORIGIN::"}) == [b"usr/local/lib/libx.so.1"]
    assert musl(at_origin, "libx.so.1", rpath="$ORIGIN") == [b"usr/bin/libx.so.1"]
    assert musl(at_origin, "libx.so.1", rpath="$ORIGIN:/opt/$LIB") == [b"usr/local/lib/libx.so.1"]  # given up whole


def test_musl_maps_what_it_finds_whatever_machine_it_is_for() -> None:
    other = {"opt/env/libx.so.1": Elf(soname="libx.so.1", machine=3)}
    assert musl(other, "libx.so.1", {"LD_LIBRARY_PATH": "/opt/env"}) == [b"opt/env/libx.so.1"]


def test_musl_looks_for_what_is_opened_with_the_path_of_the_program() -> None:
    main = Elf(interpreter="/lib/ld-musl-x86_64.so.1", rpath="/opt/r")
    files: dict[str, Content] = {
        PROGRAM: main,
        "srv/libask.so": library("libask.so", "libneeded.so", rpath="/opt/env"),
        "opt/env/libneeded.so": library("libneeded.so"),
    }
    image = LibraryImage({**MUSL, **files})
    asked = LibraryResolver(image.tree, image, {}, PROGRAM.encode())
    assert [each.path for each in asked.resolve("libx.so.1", b"srv/libask.so").candidates] == [b"opt/r/libx.so.1"]
    assert [each.path for each in asked.resolve("libneeded.so", b"srv/libask.so").candidates] == [
        b"opt/env/libneeded.so"
    ]


def test_musl_knows_what_it_has_loaded_by_no_soname() -> None:
    main = Elf(interpreter="/lib/ld-musl-x86_64.so.1", needed=("libx.so.1",))
    image = LibraryImage({**MUSL, PROGRAM: main})
    asked = LibraryResolver(image.tree, image, {"LD_PRELOAD": "/opt/env/libx.so.1"}, PROGRAM.encode())
    (preload,) = asked.preloads()
    starts = [Start(PROGRAM.encode()), Start(preload.candidates[0].path, "preload")]
    assert [item.path for item in asked.closure(starts).loaded if item.name == "libx.so.1"] == [
        b"usr/local/lib/libx.so.1"
    ]


def test_musl_answers_for_its_own_names() -> None:
    for name in ("libc.musl-x86_64.so.1", "libm.so.6", "libpthread.so.0", "libc.so"):
        assert musl({}, name) == [b"lib/ld-musl-x86_64.so.1"]
    assert musl({}, "libcrypt.so.1") == []


# --- against the loader itself --------------------------------------------------------------------------------------


def loader() -> str:
    if not Path(LOADER).exists() or not Path("/lib/x86_64-linux-gnu").is_dir():
        pytest.skip("this machine has no glibc for x86-64 in Debian's places")
    return LOADER


def traced(path: Path, environment: dict[str, str]) -> tuple[set[str], set[str]]:
    """Ask ld.so what it maps for a file, and what it does not find."""
    variables = {**environment, "LD_TRACE_LOADED_OBJECTS": "1"}
    done = subprocess.run([loader(), str(path)], capture_output=True, text=True, env=variables, check=False, cwd="/")
    found, missing = set(), set()
    for line in done.stdout.splitlines():
        match = re.match(r"\s*(\S.*?) => (.*?)(?: \(0x[0-9a-f]+\))?$", line)
        direct = re.match(r"\s*(/\S+) \(0x", line)
        if match and "not found" in match[2]:
            missing.add(match[1])
        elif match or direct:
            found.add(os.path.realpath(match[2] if match else direct[1] if direct else ""))
    return found - {os.path.realpath(LOADER)}, missing


PLACES_OF_LIBRARIES = ("/lib", "/lib64", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/etc/ld.so.conf",
                       "/etc/ld.so.conf.d", "/etc/ld.so.cache", "/etc/alternatives")  # fmt: skip


@functools.cache
def system() -> Machine:
    return Machine([*PLACES_OF_LIBRARIES, "/usr/bin"])


@functools.cache
def system_caches() -> Caches:
    return Caches(system().tree, system())


def resolved(
    machine: Machine, path: Path, environment: dict[str, str], caches: Caches | None
) -> tuple[set[str], set[str]]:
    key = os.fsencode(path).strip(b"/")
    found = LibraryResolver(machine.tree, machine, environment, key, caches=caches).closure([Start(key)])
    files = {"/" + os.fsdecode(item.path) for item in found.loaded if item.certain and item.parent is not None}
    return files - {os.path.realpath(LOADER)}, {name for _, name in found.unresolved}


def test_real_programs_and_libraries_resolve_as_ld_so_says() -> None:
    loader()
    checked = 0
    places = [path for place in ("/usr/bin", "/usr/lib/x86_64-linux-gnu") for path in sorted(Path(place).iterdir())]
    elves = [path for path in places if path.is_file() and path.stat().st_size < 1_000_000 and _is_x86_64(path)]
    for path in elves[:: max(1, len(elves) // 40)]:
        if _needs(path):
            expected = traced(path, {})
            if all(os.fsencode(file).strip(b"/") in system().tree for file in (str(path.resolve()), *expected[0])):
                assert resolved(system(), path, {}, system_caches()) == expected, path
                checked += 1
    assert checked


def _is_x86_64(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return False
    return head[:5] == b"\x7fELF\x02" and head[18:20] == b"\x3e\0"


def _needs(path: Path) -> bool:
    facts = system().elf(os.fsencode(path.resolve()).strip(b"/"))
    return isinstance(facts, ElfFacts) and bool(facts.needed)


def compiled(directory: Path, name: str, needed: list[Path], *options: str) -> Path:
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    source = directory / "empty.c"
    source.write_text("int nothing(void) { return 0; }\n" if ".so" in name else "int main(void) { return 0; }\n")
    kind = ["-shared", "-fPIC", f"-Wl,-soname,{Path(name).name}"] if ".so" in name else []
    command = [tool("gcc"), *kind, "-Wl,--no-as-needed", "-o", str(target), str(source), *map(str, needed)]
    subprocess.run([*command, "-Wl,--allow-shlib-undefined", *options], check=True, capture_output=True)
    return target


RPATH = "-Wl,--disable-new-dtags,-rpath,"
RUNPATH = "-Wl,--enable-new-dtags,-rpath,"


def test_the_origin_of_a_program_is_where_its_file_lies(tmp_path: Path) -> None:
    """... also where a link starts it, unlike that of a library: the kernel tells the loader of the file."""
    loader()
    for place in ("real/lib", "view/lib"):
        compiled(tmp_path, f"{place}/libend.so", [])
    end = tmp_path / "real/lib/libend.so"
    compiled(tmp_path, "real/bin/main", [end], RPATH + "$ORIGIN/../lib")
    (tmp_path / "view/bin").mkdir()
    program = tmp_path / "view/bin/main"
    program.symlink_to("../../real/bin/main")
    done = subprocess.run(
        [str(program)], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, check=True
    )
    assert f"{tmp_path}/real/bin/../lib/libend.so" in done.stdout
    machine = Machine([*PLACES_OF_LIBRARIES, str(tmp_path)])
    machine.share(system())
    assert str(end) in resolved(machine, program, {}, system_caches())[0]


@pytest.mark.parametrize(
    ("main", "library", "environment"),
    [
        ("", "", ""),
        (RPATH + "$ORIGIN/one", "", ""),
        (RPATH + "$ORIGIN/one", "", "two"),
        (RUNPATH + "$ORIGIN/one", "", ""),
        (RUNPATH + "$ORIGIN/one", "", "two"),
        (RUNPATH + "$ORIGIN/one", RPATH + "$ORIGIN/../two", ""),
        (RPATH + "$ORIGIN/one", RUNPATH + "$ORIGIN/../two", ""),
        (RPATH + "$ORIGIN/one", RPATH + "$ORIGIN/../two", "one:two"),
        (RPATH + "$ORIGIN/three:$ORIGIN/one", "", "two"),
        (RUNPATH + "$ORIGIN/view", RUNPATH + "$ORIGIN/../two", ""),
    ],
)
def test_search_paths_work_as_in_ld_so(tmp_path: Path, main: str, library: str, environment: str) -> None:
    loader()
    one, two = (compiled(tmp_path, f"{place}/libend.so", []) for place in ("one", "two"))
    middle = compiled(tmp_path, "one/libmiddle.so", [one], *([library] if library else []))
    program = compiled(tmp_path, "main", [middle], *([main] if main else []))
    (tmp_path / "view").symlink_to("one")
    (tmp_path / "three").mkdir()
    (tmp_path / "three/libend.so").write_bytes(two.read_bytes()[:18] + struct.pack("<H", 183) + two.read_bytes()[20:])
    paths = ":".join(str(tmp_path / part) for part in environment.split(":"))
    variables = {"LD_LIBRARY_PATH": paths} if environment else {}
    machine = Machine([*PLACES_OF_LIBRARIES, str(tmp_path)])
    machine.share(system())
    assert resolved(machine, program, variables, system_caches()) == traced(program, variables)
