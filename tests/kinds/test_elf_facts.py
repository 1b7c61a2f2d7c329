"""Facts of ELF files: what the file says, what it can name, and the same in one pass as with random access."""

from __future__ import annotations

import struct
import subprocess
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSegment, DynamicTag
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from imgdiff.kinds.elf import SECOND_READ, Scanner, facts, scanner
from imgdiff.kinds.elf.strings import identifiers, last_break, runs
from imgdiff.model import ElfFacts, Unreadable
from tests.kinds.elf_inputs import SOURCE, compile_c, machine_files, scan, small, tool


def elf_facts(data: bytes) -> ElfFacts:
    found = facts(data)
    assert isinstance(found, ElfFacts)
    return found


def test_names_of_the_dynamic_section() -> None:
    found = elf_facts(small())
    assert found.soname == "libsmall.so.1"
    assert found.needed == ("libc.so.6", "libdl.so.2")
    assert (found.runpath, found.rpath, found.interpreter) == ("$ORIGIN/../lib", None, None)
    assert (found.machine, found.bits) == (62, 64)
    assert found.build_id == bytes(range(20)).hex()
    assert found.nodeflib is False


def test_rpath_and_interpreter() -> None:
    found = elf_facts(small(runpath=None, rpath="/opt/lib:$ORIGIN", interpreter="/lib64/ld-linux-x86-64.so.2"))
    assert (found.rpath, found.runpath) == ("/opt/lib:$ORIGIN", None)
    assert found.interpreter == "/lib64/ld-linux-x86-64.so.2"


def test_strings_with_a_separator_are_kept_and_names_of_libraries_needed_are_not() -> None:
    found = elf_facts(small())
    assert set(found.strings) == {"/usr/share/small/table.bin", "libplugin_%s.so", "a/b"}


def test_identifiers_are_kept_only_of_what_uses_python() -> None:
    assert "numpy" in elf_facts(small()).identifiers
    assert elf_facts(small()).python
    plain = elf_facts(small(imports=("dlopen",)))
    assert (plain.python, plain.identifiers) == (False, ())


def test_the_interpreter_itself_counts_as_python() -> None:
    assert elf_facts(small(imports=(), exports=("Py_BytesMain",))).python


def test_symbols_that_matter_are_undefined_ones() -> None:
    assert elf_facts(small()).symbols == ("PyImport_ImportModule", "dlopen")
    assert elf_facts(small(imports=("malloc",), exports=("dlopen",))).symbols == ()


def test_strings_without_a_terminator_stay_findable() -> None:
    found = elf_facts(small(strings=(b"src/main.rslibcuda.so.1/etc/engine.toml", b"\xff\xfelib/x.so\xfe")))
    assert any("libcuda.so.1" in text for text in found.strings)
    assert any("/etc/engine.toml" in text for text in found.strings)


def test_names_that_are_no_ascii_stay_whole() -> None:
    found = elf_facts(small(strings=("/usr/share/données/é.txt", "élan.cfg")))
    assert {"/usr/share/données/é.txt", "élan.cfg"} <= set(found.strings)


def test_no_elf_file_has_no_facts() -> None:
    assert facts(b"#!/bin/sh\n") is None
    assert facts(b"") is None
    assert scan(b"#!/bin/sh\n") is None
    assert Scanner(b"", 0).finish() is None


def test_a_file_that_is_cut_short_is_unreadable() -> None:
    data = small()
    for size in (4, 20, 63, 80, 200):
        assert isinstance(facts(data[:size]), Unreadable)
        assert isinstance(scan(data[:size]), Unreadable)


def test_without_section_headers_everything_that_is_mapped_counts() -> None:
    data = bytearray(small())
    data[0x28:0x30] = bytes(8)
    data[0x3C:0x40] = bytes(4)
    found = elf_facts(bytes(data))
    assert {"/usr/share/small/table.bin", "libplugin_%s.so"} <= set(found.strings)
    assert found.needed == ("libc.so.6", "libdl.so.2")
    assert "libc.so.6" not in found.strings


def test_section_headers_can_hide_no_data_as_code() -> None:
    """A section that says that it holds code counts as such only inside of a segment that is executable."""
    data = bytearray(small())
    with_flag = _set_section(data, ".rodata", flags=2 | 4)
    _set_segment_flags(with_flag, 4)
    assert "/usr/share/small/table.bin" in elf_facts(bytes(with_flag)).strings


def test_section_headers_that_lead_nowhere_hide_nothing() -> None:
    data = bytearray(small())
    data[0x28:0x30] = struct.pack("<Q", 1 << 62)
    assert "/usr/share/small/table.bin" in elf_facts(bytes(data)).strings


def _set_section(data: bytearray, name: str, flags: int) -> bytearray:
    elf = ELFFile(BytesIO(bytes(data)))
    number = next(n for n, section in enumerate(elf.iter_sections()) if section.name == name)
    at = elf["e_shoff"] + number * elf["e_shentsize"]
    data[at + 8 : at + 16] = struct.pack("<Q", flags)
    return data


def _set_segment_flags(data: bytearray, flags: int) -> None:
    elf = ELFFile(BytesIO(bytes(data)))
    for number, segment in enumerate(elf.iter_segments()):
        if segment["p_type"] == "PT_LOAD" and segment["p_flags"] & 1:
            at = elf["e_phoff"] + number * elf["e_phentsize"]
            data[at + 4 : at + 8] = struct.pack("<I", flags)


# --- against an independent reader -----------------------------------------------------------------------------------


def test_dynamic_names_equal_those_of_pyelftools() -> None:
    checked = 0
    for path in machine_files(60):
        found = facts(path.read_bytes())
        assert isinstance(found, ElfFacts), path
        with path.open("rb") as file:
            elf = ELFFile(file)
            for segment in elf.iter_segments():
                if isinstance(segment, DynamicSegment):
                    tags = list(segment.iter_tags())
                    assert found.needed == _texts(tags, "needed"), path
                    assert found.soname == next(iter(_texts(tags, "soname")), None), path
                    assert found.runpath == next(iter(_texts(tags, "runpath")), None), path
                    checked += 1
    assert checked


def _texts(tags: list[DynamicTag], name: str) -> tuple[str, ...]:
    return tuple(getattr(tag, name) for tag in tags if tag.entry.d_tag == f"DT_{name.upper()}")


def test_strings_of_a_compiled_file_are_those_that_strings_finds(tmp_path: Path) -> None:
    path = compile_c(tmp_path, "lib.so")
    listed = subprocess.run([tool("strings"), "-a", "-n", "4", str(path)], capture_output=True, text=True, check=True)
    mapped = {line for line in listed.stdout.splitlines() if "engine" in line or "plugin" in line}
    found = elf_facts(path.read_bytes())
    assert {"/opt/engine/kernels.bin", "libplugin_one.so.2", "/var/lib/engine/state.json"} <= mapped
    assert mapped <= set(found.strings)
    assert "dlopen" in found.symbols


# --- one pass gives what random access gives -------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 7, 4096, 1 << 20])
def test_one_pass_over_a_small_file_equals_random_access(chunk: int) -> None:
    assert scan(small(), chunk) == facts(small())


def test_one_pass_over_a_large_file_equals_random_access(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file that is treated as a large one gives the same facts, or asks for a second read; that is rare."""
    monkeypatch.setattr(scanner, "WHOLE", 1 << 16)
    asked, checked = 0, 0
    for number, path in enumerate(machine_files(150, smallest=70_000)):
        data = path.read_bytes()
        found = scan(data, chunk=(1 << 20, 50_000, 200_000)[number % 3])
        checked += 1
        if found == Unreadable(SECOND_READ):
            asked += 1
        else:
            assert found == facts(data), path
    assert asked <= max(1, checked // 10)


def mixed(tmp_path: Path, *options: str) -> bytes:
    """Compile a large library that has code and data in one segment, strings at the edges, and device code."""
    more = ("", "+ x / 3", "+ x % 7 * x", "- (x >> 3)", "+ x * x / 5", "^ 77 * x", "+ (x > 9 ? x : 3)")
    body = "".join(
        f'int f{n}(int x) {{ return x * {n} + cuda(x, "/opt/names/f{n}.bin") {more[n % 7]} {more[n % 5]}; }}\n'
        for n in range(1500)
    )
    device = ".quad 0x10001ba55ed50, 400000", ".rept 400000", ".byte 0x2f", ".endr"
    lines = '\\n"\n"'.join(['.section .nv_fatbin,\\"a\\"', *device, ".previous"])
    source = f'{SOURCE}int cuda(int x, const char *name) {{ return x + name[0]; }}\n{body}asm("{lines}");\n'
    return compile_c(tmp_path, "mixed.so", source, *options).read_bytes()


@pytest.mark.parametrize(
    "options", [("-Wl,-z,noseparate-code",), ("-Wl,-z,separate-code",), ("-Wl,-z,noseparate-code", "-s")]
)
def test_code_data_and_device_code_in_one_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    data = mixed(tmp_path, *options)
    monkeypatch.setattr(scanner, "WHOLE", 1 << 16)
    monkeypatch.setattr(scanner, "PIECE", 1 << 13)
    expected = elf_facts(data)
    assert "/opt/names/f1499.bin" in expected.strings
    assert not any(text.startswith("////") for text in expected.strings)
    for chunk in (1 << 20, 99_991):
        assert scan(data, chunk) in (expected, Unreadable(SECOND_READ))
    assert scan(data, 1 << 20) == expected


def test_names_that_patchelf_moved_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compile_c(tmp_path, "moved.so", SOURCE)
    subprocess.run([tool("patchelf"), "--set-rpath", "$ORIGIN/" + "x" * 300, str(path)], check=True)
    subprocess.run([tool("patchelf"), "--add-needed", "libnotthere_at_all.so.7", str(path)], check=True)
    data = path.read_bytes()
    found = elf_facts(data)
    assert "libnotthere_at_all.so.7" in found.needed
    assert found.runpath == "$ORIGIN/" + "x" * 300
    assert scan(data) == found
    monkeypatch.setattr(scanner, "WHOLE", 0)
    monkeypatch.setattr(scanner, "FIRST", 4096)
    assert scan(data, chunk=4096) in (found, Unreadable(SECOND_READ))


def test_a_static_program_and_an_object_file(tmp_path: Path) -> None:
    static = elf_facts(compile_c(tmp_path, "static", "int main(){return 0;}", "-static", shared=False).read_bytes())
    assert (static.needed, static.interpreter, static.symbols) == ((), None, ())
    assert static.strings
    made = elf_facts(compile_c(tmp_path, "object.o", SOURCE, "-c").read_bytes())
    assert "/opt/engine/kernels.bin" in made.strings


def test_a_file_that_ends_early_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "WHOLE", 0)
    monkeypatch.setattr(scanner, "FIRST", 512)
    data = small()
    scanning = Scanner(data[:64], len(data))
    scanning.feed(memoryview(data)[: len(data) // 2])
    assert isinstance(scanning.finish(), Unreadable)


# --- the search for runs ---------------------------------------------------------------------------------------------

PIECES = st.lists(
    st.sampled_from(
        [b"\0", b"\xff", b"\x80", b"/", b".", b"%", b"a", b"Zz9", b" ", b"\t", "é".encode(), "漢".encode(), b"\xe6\xbc"]
    ),
    max_size=40,
).map(b"".join)


@given(PIECES)
def test_runs_are_the_maximal_readable_stretches(data: bytes) -> None:
    """An independent search: decode greedily from every place that nothing readable precedes."""
    expected = set()
    at = 0
    while at < len(data):
        end = at
        while end < len(data):
            width = _readable(data, end)
            if not width:
                break
            end += width
        text = data[at:end]
        closed = data[end : end + 1] == b"\0"
        if len(text) >= (3 if closed else 5) and any(c in text for c in (b"/", b".", b"%")) and _near(text):
            expected.add((at, text, closed))
        at = max(end, at + 1)
    assert {(run.offset, run.text, run.closed) for run in runs(data, 0)} == expected


def _readable(data: bytes, at: int) -> int:
    if 0x20 <= data[at] < 0x7F or data[at] == 9:
        return 1
    lead = data[at]
    width = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4 if 0xF0 <= lead < 0xF5 else 0
    rest = data[at + 1 : at + width]
    return width if width and len(rest) == width - 1 and all(0x80 <= c < 0xC0 for c in rest) else 0


def _near(text: bytes) -> bool:
    """A separator counts where two printable ASCII characters stand next to it."""
    plain = [0x20 <= c < 0x7F or c == 9 for c in text]
    for at, c in enumerate(text):
        if c in b"/.%":
            before = plain[max(0, at - 2) : at]
            after = plain[at + 1 : at + 3]
            if after == [True, True] or before == [True, True] or (before[-1:] == [True] and after[:1] == [True]):
                return True
    return False


@given(PIECES, st.integers(0, 40))
def test_a_run_never_straddles_a_break(data: bytes, cut: int) -> None:
    head = data[:cut]
    at = last_break(head)
    whole = {(run.offset, run.text) for run in runs(data, 0)}
    parts = {(run.offset, run.text) for run in runs(head[:at], 0)} | {
        (run.offset, run.text) for run in runs(data[at:], at)
    }
    assert whole == parts


@given(st.lists(st.sampled_from([b"\0", b"\1", b"a", b"_", b"9", b" ", b"!", b"\x80"]), max_size=30).map(b"".join))
def test_identifiers_stand_alone_between_unprintable_bytes(data: bytes) -> None:
    found = {(run.offset, run.text) for run in identifiers(data, 0)}
    expected = set()
    for start in range(len(data)):
        end = data.find(b"\0", start)
        text = data[start:end] if end >= 0 else b""
        before = data[start - 1] if start else 0
        alone = not (0x20 <= before < 0x7F or before == 9 or before >= 0x80)
        if alone and len(text) > 1 and text.isascii() and text.decode("ascii").isidentifier():
            expected.add((start, text))
    assert found == expected


# --- rubbish ---------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_rubbish_never_raises_and_both_ways_agree(data: st.DataObject) -> None:
    image = bytearray(small())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.one_of(st.integers(0, 700), st.integers(0, len(image) - 9)))
        value = data.draw(st.sampled_from([0, 1, 0xFF, 0x7F, 1 << 31, 1 << 62, (1 << 64) - 1, len(image)]))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        image[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    assert scan(bytes(image), 1000) == facts(bytes(image))
    try:
        scanner.WHOLE, scanner.FIRST = 0, 1024
        found = scan(bytes(image), 1000)
    finally:
        scanner.WHOLE, scanner.FIRST = 8 << 20, 1 << 16
    assert found in (facts(bytes(image)), Unreadable(SECOND_READ))


@pytest.mark.parametrize(("bits", "order"), [(1, 1), (1, 2), (2, 2)])
def test_other_classes_and_byte_orders(bits: int, order: int) -> None:
    """A header and one segment, as 32 bit and as big endian: the string in it is found."""
    sign = "<>"[order - 1]
    wide = bits == 2
    text = b"/etc/other/order.conf\0"
    ehsize, phsize = (64, 56) if wide else (52, 32)
    start = ehsize + phsize
    size = start + len(text)
    ident = b"\x7fELF" + bytes((bits, order, 1)) + bytes(9)
    head = struct.pack(
        sign + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"), 3, 22, 1, 0, ehsize, 0, 0, ehsize, phsize, 1, 0, 0, 0
    )
    if wide:
        segment = struct.pack(sign + "IIQQQQQQ", 1, 4, 0, 0, 0, size, size, 4096)
    else:
        segment = struct.pack(sign + "IIIIIIII", 1, 0, 0, 0, size, size, 4, 4096)
    found = elf_facts(ident + head + segment + text)
    assert found.strings == ("/etc/other/order.conf",)
    assert (found.machine, found.bits) == (22, 32 * bits)
