"""What differs between two ELF files, and what is proved of it."""

from __future__ import annotations

import re
import struct
import subprocess
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds.elf import delta
from imgdiff.kinds.elf.differing import BLOCK, tally
from imgdiff.model import Delta
from tests.kinds.elf_inputs import SOURCE, compile_c, small, tool

HARMLESS = re.compile(r"\.(symtab|strtab|shstrtab|comment|z?debug_.*|gnu_debuglink|gnu_debugaltlink)")


def sections(found: Delta) -> dict[str, tuple[int, int] | None]:
    """Return bytes and runs by section, None where the sizes differ."""
    return {row["name"]: (row["bytes"], row["runs"]) if "bytes" in row else None for row in found.detail["sections"]}


def offset_of(data: bytes, section: str) -> int:
    found = ELFFile(BytesIO(data)).get_section_by_name(section)
    assert found is not None
    return int(found["sh_offset"])


def flip(data: bytes, section: str, place: int, count: int = 1) -> bytes:
    """Change bytes of a section."""
    at = offset_of(data, section) + place
    return data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + count]) + data[at + count :]


def test_equal_bytes_are_noise() -> None:
    assert delta(small(), small()).effect == "noise"


# --- noise, each with its proof -------------------------------------------------------------------------------------


def test_a_compilers_temporary_names_are_noise_and_named() -> None:
    found = delta(small(), small(files=("tmpxft_0000aa07_00000000-6_kernel.cudafe1.cpp",)))
    assert found.effect == "noise"
    assert sections(found) == {".strtab": (4, 1)}
    assert found.detail["temporary_names"]["tool"] == "nvcc"
    assert found.detail["temporary_names"]["a"].startswith("tmpxft_00001f2b")
    assert "nvcc" in found.reason
    assert ".strtab" in found.reason
    assert "PT_LOAD" in found.reason


def test_a_temporary_name_beside_another_name_is_not_called_one() -> None:
    a, b = (
        small(files=("tmpxft_00001f2b_00000000-6_k.cpp", "one.c")),
        small(files=("tmpxft_00001f2c_00000000-6_k.cpp", "two.c")),
    )
    assert "temporary_names" not in delta(a, b).detail


def test_compiler_comments_and_debug_data_are_noise() -> None:
    found = delta(small(comment="GCC: 13.3.0"), small(comment="GCC: 13.4.0"))
    assert (found.effect, found.detail["comment"]) == ("noise", {"a": "GCC: 13.3.0", "b": "GCC: 13.4.0"})
    for name in (".debug_info", ".zdebug_line", ".gnu_debuglink", ".gnu_debugaltlink"):
        assert delta(small(sections=((name, b"one"),)), small(sections=((name, b"two"),))).effect == "noise"


def test_a_build_id_alone_is_noise_and_no_identity() -> None:
    found = delta(small(), small(build_id=bytes(range(20, 40))))
    assert found.effect == "noise"
    assert "build-id" in found.reason
    assert found.detail["build_id"]["same"] is False
    same = delta(small(), small(files=("other.c",)))
    assert same.detail["build_id"]["same"] is True


def test_a_stripped_library_is_noise_though_its_header_differs(tmp_path: Path) -> None:
    """The three fields that say where the section headers are lie in a mapped page; no loader reads them."""
    path = compile_c(tmp_path, "lib.so", SOURCE, "-g")
    stripped, undebugged = tmp_path / "stripped.so", tmp_path / "undebugged.so"
    subprocess.run([tool("strip"), "-o", str(stripped), str(path)], check=True)
    subprocess.run([tool("strip"), "-g", "-o", str(undebugged), str(path)], check=True)
    for other in (stripped, undebugged):
        found = delta(path.read_bytes(), other.read_bytes())
        assert found.effect == "noise"
        assert "e_shoff" in found.reason
        assert delta(other.read_bytes(), path.read_bytes()).effect == "noise"


def test_any_other_field_of_the_header_is_code() -> None:
    data = small()
    fields = set(range(0x28, 0x30)) | set(range(0x3C, 0x40))
    for at in set(range(64)) - fields:
        changed = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        assert delta(data, changed).effect == "code", at


# --- code -----------------------------------------------------------------------------------------------------------


def test_a_changed_string_is_code() -> None:
    found = delta(
        small(), small(strings=("/usr/share/small/tabLe.bin", "libplugin_%s.so", "numpy", "no separator here", "a/b"))
    )
    assert found.effect == "code"
    assert sections(found) == {".rodata": (1, 1)}
    assert found.detail["layout"] == "same"


def test_changed_code_names_the_function(tmp_path: Path) -> None:
    a = compile_c(tmp_path, "a.so", SOURCE, "-O1").read_bytes()
    b = compile_c(tmp_path, "b.so", SOURCE.replace("x + 1", "x + 2"), "-O1").read_bytes()
    found = delta(a, b)
    assert found.effect == "code"
    assert ".text" in sections(found)
    assert [row["name"] for row in found.detail["symbols"]["shown"]] == ["run"]


def test_one_mapped_byte_among_noise_is_code() -> None:
    a = small()
    b = flip(small(files=("tmpxft_0000aa07_00000000-6_kernel.cudafe1.cpp",), build_id=bytes(20)), ".text", 3)
    found = delta(a, b)
    assert found.effect == "code"
    assert sections(found)[".text"] == (1, 1)


def test_the_build_ids_name_and_neighbours_are_code() -> None:
    data = small()
    for place in (0, 4, 8, 12, 15):
        assert delta(data, flip(data, ".note.gnu.build-id", place)).effect == "code"
    assert delta(data, flip(data, ".note.gnu.build-id", 16)).effect == "noise"


def test_a_note_that_is_no_small_section_of_its_own_exempts_nothing() -> None:
    """A note segment can claim any bytes as the build-id's; only a small section of that name is believed."""
    data = bytearray(small(text=struct.pack("<III", 4, 64, 3) + b"GNU\0" + bytes(64)))
    elf = ELFFile(BytesIO(bytes(data)))
    start = offset_of(bytes(data), ".text") + 32
    for number, segment in enumerate(elf.iter_segments()):
        if segment["p_type"] == "PT_NOTE":
            at = elf["e_phoff"] + number * elf["e_phentsize"]
            data[at + 8 : at + 16] = struct.pack("<Q", start)
            data[at + 32 : at + 40] = struct.pack("<Q", 80)
    a = bytes(data)
    assert delta(a, flip(a, ".text", 32 + 20)).effect == "code"


def test_sections_that_nobody_knows_and_appended_bytes_are_code() -> None:
    for a, b in (
        (small(), small(sections=((".payload", b"x"),))),
        (small(sections=((".payload", b"x"),)), small(sections=((".payload", b"y"),))),
        (small(sections=((".payload", b"x"),)), small()),
        (small(), small() + b"#!payload"),
        (small(), small() + b"\0"),
        (small() + b"one", small() + b"two"),
    ):
        assert delta(a, b).effect == "code"
    assert "(appended)" in delta(small(), small() + b"#!payload").reason


def test_a_harmless_section_that_lies_over_an_unknown_one_hides_nothing() -> None:
    a, b = (bytearray(small(sections=((".payload", text), (".debug_x", b"z" * 8)))) for text in (b"one!", b"two!"))
    for data in (a, b):
        elf = ELFFile(BytesIO(bytes(data)))
        payload = offset_of(bytes(data), ".payload")
        number = next(n for n, section in enumerate(elf.iter_sections()) if section.name == ".debug_x")
        at = elf["e_shoff"] + number * 64
        data[at + 24 : at + 40] = struct.pack("<QQ", payload - 4, 12)
    assert delta(bytes(a), bytes(b)).effect == "code"


def test_patchelf_and_objcopy_are_code_and_explained(tmp_path: Path) -> None:
    path = compile_c(tmp_path, "lib.so", SOURCE)
    moved, added = tmp_path / "moved.so", tmp_path / "added.so"
    moved.write_bytes(path.read_bytes())
    for options in (("--set-rpath", "$ORIGIN/../other"), ("--add-needed", "libother.so")):
        subprocess.run([tool("patchelf"), *options, str(moved)], check=True)
    found = delta(path.read_bytes(), moved.read_bytes())
    assert (found.effect, found.detail["runpath"]) == ("code", {"a": None, "b": "$ORIGIN/../other"})
    assert found.detail["needed"] == {"added": ["libother.so"], "removed": []}
    subprocess.run(
        [tool("objcopy"), "--add-section", f".extra={tmp_path / 'source.c'}", str(path), str(added)], check=True
    )
    found = delta(path.read_bytes(), added.read_bytes())
    assert found.effect == "code"
    assert ".extra" in found.reason


def test_another_interpreter_soname_and_library_are_told() -> None:
    found = delta(small(), small(soname="libsmall.so.2", needed=("libc.so.6",), rpath="/x", runpath=None))
    assert found.effect == "code"
    assert found.detail["soname"] == {"a": "libsmall.so.1", "b": "libsmall.so.2"}
    assert found.detail["needed"] == {"added": [], "removed": ["libdl.so.2"]}
    assert found.detail["rpath"] == {"a": None, "b": "/x"}


def test_moved_sections_are_compared_by_name_and_exports_are_counted() -> None:
    found = delta(small(), small(exports=("small_run", "small_new", "small_newer")))
    assert found.detail["layout"] == "moved"
    assert found.detail["exports"] == {"added": 2, "removed": 1, "shown": ["+small_new", "+small_newer", "-small_stop"]}
    assert {".text", ".dynsym", ".dynstr"} <= set(sections(found))
    assert ".rodata" not in sections(found)


def test_device_code_is_named(tmp_path: Path) -> None:
    source = SOURCE + 'asm(".section .nv_fatbin,\\"a\\"\\n.ascii \\"KERNEL\\"\\n.previous");\n'
    a, b = (
        compile_c(tmp_path, name, source.replace("KERNEL", word)).read_bytes()
        for name, word in (("a.so", "kern1"), ("b.so", "kern2"))
    )
    found = delta(a, b)
    assert found.effect == "code"
    assert "device code in .nv_fatbin" in found.reason


def test_what_is_no_program_or_library_is_code(tmp_path: Path) -> None:
    a = compile_c(tmp_path, "a.o", SOURCE, "-c", "-g").read_bytes()
    b = flip(a, ".comment", 1)
    assert delta(a, b).effect == "code"
    assert sections(delta(a, b)) == {".comment": (1, 1)}


def test_without_section_headers_only_what_is_mapped_is_proved() -> None:
    a = bytearray(small())
    a[0x28:0x30], a[0x3C:0x40] = bytes(8), bytes(4)
    b = bytearray(a)
    b[-1] ^= 1
    found = delta(bytes(a), bytes(b))
    assert found.effect == "code"
    assert delta(bytes(a), small()).effect == "code"


def test_truncated_files_are_code() -> None:
    data = small()
    for size in (0, 3, 30, 64, 200, len(data) - 1):
        assert delta(data, data[:size]).effect == "code"
        assert delta(data[:size], data).effect == "code"


# --- counting, against cmp -------------------------------------------------------------------------------------------


@given(st.binary(max_size=60), st.integers(0, 3), st.data())
def test_bytes_and_runs_are_those_of_a_plain_count(seed: bytes, blocks: int, data: st.DataObject) -> None:
    a = (seed or b"x") * (blocks * BLOCK // max(1, len(seed)) + 1)
    b = bytearray(a)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.one_of(st.integers(0, len(a) - 1), st.sampled_from([0, len(a) - 1, min(BLOCK, len(a)) - 1])))
        for place in range(at, min(len(b), at + data.draw(st.integers(1, 5)))):
            b[place] ^= 0x21
    differing = [n for n, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    runs = [n for n in differing if n - 1 not in set(differing)]
    found = tally(lambda o, n: a[o : o + n], lambda o, n: bytes(b[o : o + n]), 0, 0, len(a))
    assert (found.bytes, found.runs) == (len(differing), len(runs))
    assert [start for start, _ in found.spans] == runs
    assert sum(end - start for start, end in found.spans) == len(differing)


def test_counts_equal_those_of_cmp(tmp_path: Path) -> None:
    a = compile_c(tmp_path, "a.so", SOURCE)
    b = compile_c(tmp_path, "b.so", SOURCE.replace("/opt/engine", "/var/engine"))
    listed = subprocess.run([tool("cmp"), "-l", str(a), str(b)], capture_output=True, text=True, check=False)
    assert delta(a.read_bytes(), b.read_bytes()).detail["bytes"] == len(listed.stdout.splitlines())


# --- the law: noise is only where nothing mapped and nothing unknown differs ---------------------------------------


@settings(max_examples=250, deadline=None)
@given(st.data())
def test_noise_is_never_said_of_a_mapped_byte(data: st.DataObject) -> None:
    """pyelftools says which bytes may differ; every other byte that does makes it code."""
    original = small(sections=((".debug_info", b"d" * 40), (".payload", b"p" * 20)))
    changed = bytearray(original)
    places = data.draw(st.lists(st.integers(0, len(original) - 1), min_size=1, max_size=3))
    for at in places:
        changed[at] ^= data.draw(st.integers(1, 255))
    found = delta(original, bytes(changed))
    allowed = _allowed(original)
    differing = [n for n, (x, y) in enumerate(zip(original, changed, strict=True)) if x != y]
    if any(at not in allowed for at in differing):
        assert found.effect == "code"
    assert found.detail.get("bytes", 0) <= len(differing) or found.detail["layout"] == "moved"


def _allowed(data: bytes) -> set[int]:
    elf = ELFFile(BytesIO(data))
    allowed = set(range(0x28, 0x30)) | set(range(0x3C, 0x40))
    allowed |= set(range(elf["e_shoff"], elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]))
    for section in elf.iter_sections():
        span = set(range(section["sh_offset"], section["sh_offset"] + section["sh_size"]))
        if HARMLESS.fullmatch(section.name):
            allowed |= span
        if section.name == ".note.gnu.build-id":
            allowed |= set(sorted(span)[16:])
    return allowed


def test_a_file_that_is_cut_behind_what_is_mapped_is_no_noise() -> None:
    whole = small()
    end = max(segment["p_offset"] + segment["p_filesz"] for segment in ELFFile(BytesIO(whole)).iter_segments())
    for size in (end, end + 1, len(whole) - 1):
        assert delta(whole, whole[:size]).effect == "code", size
        assert delta(whole[:size], whole).effect == "code", size


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rubbish_never_raises(data: st.DataObject) -> None:
    image = bytearray(small())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.one_of(st.integers(0, 500), st.integers(0, len(image) - 9)))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1, len(image)]))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        image[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    other = bytes(image[: data.draw(st.integers(0, len(image)))]) if data.draw(st.booleans()) else bytes(image)
    for a, b in ((small(), other), (other, small()), (other, bytes(image))):
        found = delta(a, b)
        assert found.reason
        if a != b and found.effect == "noise":
            assert len(a) == len(b)
