from __future__ import annotations

import hashlib

import pytest

from imgdiff.attribution import Records, Roots, attribute, owner_roots
from tests.attribution.claims import (
    INTERPRETER,
    SITE,
    Files,
    attributed,
    claim,
    distribution,
    notes,
    record_hash,
    wheel,
    whose,
)
from tests.support.trees import Dir, Link, made


def test_record_gives_files_to_their_distribution_with_the_version_out_of_its_folder() -> None:
    found = attributed(INTERPRETER | wheel("Foo_Bar", "1.2", {"foo/__init__.py": "x", "foo/data.json": "{}"}))
    assert claim(found, f"{SITE}/foo/__init__.py", "wheel:foo-bar") == ("record", b"foo/__init__.py")
    info = f"{SITE}/Foo_Bar-1.2.dist-info"
    assert claim(found, f"{info}/METADATA", "wheel:foo-bar") == ("record", b"Foo_Bar.dist-info/METADATA")
    one = distribution(found, "foo-bar")
    assert (one.version, one.site, one.info, one.packages) == ("1.2", SITE.encode(), info.encode(), ("foo",))
    owner = found.owners[one.owner]
    assert (owner.kind, owner.version, owner.root) == ("wheel", "1.2", SITE.encode())
    assert found.integrity == ()


def test_rows_that_lead_out_of_the_site_are_followed() -> None:
    files = wheel("oneccl", "2", {"oneccl.py": ""}, site="opt/venv/lib/python3.12/site-packages")
    lib = "opt/venv/lib/libccl.so.1"
    files["opt/venv/lib/python3.12/site-packages/oneccl-2.dist-info/RECORD"] = (
        f"oneccl.py,{record_hash('')},0\n../../libccl.so.1,{record_hash('ccl')},3\n../../../bin/tool,,\n"
    )
    found = attributed(files | {lib: "ccl", "opt/venv/bin/tool": "#!"})
    assert claim(found, lib, "wheel:oneccl") == ("record", b"../../libccl.so.1")
    assert claim(found, "opt/venv/bin/tool", "wheel:oneccl") == ("record", b"../../../bin/tool")
    assert distribution(found, "oneccl").recorded[1][:2] == (lib.encode(), b"../../libccl.so.1")
    assert found.integrity == ()


def test_rows_through_a_linked_directory_claim_the_canonical_path() -> None:
    files = wheel("x", "1", {"x.py": ""}, site="v/lib/python3.12/site-packages")
    files["v/lib/python3.12/site-packages/x-1.dist-info/RECORD"] = "x.py,,\n../../../lib64/libx.so,,\n"
    found = attributed(files | {"v/lib64": Link(b"lib"), "v/lib/libx.so": "so"})
    assert claim(found, "v/lib/libx.so", "wheel:x") == ("record", b"../../../lib64/libx.so")


def test_a_link_in_place_of_a_recorded_file_is_claimed_itself_and_not_what_it_leads_to() -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": "", "libccl.so": "wheel's"})
    files[f"{SITE}/libccl.so"] = Link(b"/opt/intel/libccl.so")
    found = attributed(files | {"opt/intel/libccl.so": "another"})
    assert whose(found, f"{SITE}/libccl.so") == ["wheel:x"]
    assert whose(found, "opt/intel/libccl.so") == ["unowned:unowned:/opt"]
    assert notes(found) == [("record-mismatch", "x", f"{SITE}/libccl.so".encode())]
    assert "symlink" in found.integrity[0].message


def test_a_link_to_the_recorded_content_is_no_mismatch() -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": "same"})
    files[f"{SITE}/x.py"] = Link(b"/root/store/x.py")
    assert attributed(files | {"root/store/x.py": "same"}).integrity == ()


def test_absolute_rows_and_rows_with_commas_quotes_and_line_breaks() -> None:
    odd = 'pkg/E=1,N=2,"Intel(R)".json'
    files = INTERPRETER | wheel(
        "x", "1", {"pkg/__init__.py": "", odd: "{}", "pkg/a\nb.txt": "t"}, rows="/opt/x.conf,,\n"
    )
    found = attributed(files | {"opt/x.conf": "c"})
    assert claim(found, f"{SITE}/{odd}", "wheel:x") == ("record", odd.encode())
    assert claim(found, f"{SITE}/pkg/a\nb.txt", "wheel:x")[0] == "record"
    assert claim(found, "opt/x.conf", "wheel:x") == ("record", b"/opt/x.conf")
    assert found.integrity == ()


def test_an_unquoted_path_with_commas_is_one_path() -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": ""}, rows=f"pkg/a,b.txt,{record_hash('t')},1\n")
    assert claim(attributed(files | {f"{SITE}/pkg/a,b.txt": "t"}), f"{SITE}/pkg/a,b.txt", "wheel:x")[0] == "record"


RUBBISH = {
    "no columns": "pkg/other.py\n",
    "bad base64": "pkg/other.py,sha256=!!!!,1\n",
    "short hash": "pkg/other.py,sha256=AAAA,1\n",
    "no hash value": "pkg/other.py,sha256,1\n",
    "NUL": "pkg/\0.py,,\npkg/other.py,,\n",
    "empty path": ",,\npkg/other.py,,\n",
    "endless line": "y" * 2_000_000 + ",,\npkg/other.py,,\n",
    "endless path": "y" * 20_000 + ",,\npkg/other.py,,\n",
    "open quote": '"pkg/never closed,,\npkg/other.py,,\n',
}


@pytest.mark.parametrize("rows", RUBBISH.values(), ids=RUBBISH.keys())
def test_rubbish_in_a_record_is_said_and_the_other_rows_count(rows: str) -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": "", 'q"t.py': ""}, rows=rows)
    found = attributed(files | {f"{SITE}/pkg/other.py": "y"})
    assert claim(found, f"{SITE}/x.py", "wheel:x")[0] == "record"
    assert claim(found, f'{SITE}/q"t.py', "wheel:x")[0] == "record"
    assert claim(found, f"{SITE}/pkg/other.py", "wheel:x")[0] == "record"
    assert notes(found) == [("record-unreadable", "x", f"{SITE}/x-1.dist-info/RECORD".encode())]
    assert found.blindspots == ()


def test_names_that_are_no_utf8_are_claimed() -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": ""})
    record = f"{SITE}/x-1.dist-info/RECORD"
    files[record] = b"x.py,,\ncaf\xe9.txt,,\n"
    path = SITE.encode() + b"/caf\xe9.txt"
    assert claim(attributed(files | {path: "t"}), path, "wheel:x") == ("record", b"caf\xe9.txt")


def test_a_hash_in_hexadecimal_digits_counts() -> None:
    """As Debian's flit wrote them."""
    files = INTERPRETER | wheel("x", "1", {"x.py": "x"})
    for content, codes in (("x", []), ("y", ["record-mismatch"])):
        digits = hashlib.sha256(content.encode()).hexdigest()
        files[f"{SITE}/x-1.dist-info/RECORD"] = f"x.py,sha256={digits},1\n"
        assert [code for code, _, _ in notes(attributed(files))] == codes


def test_a_record_of_which_no_row_can_be_read_is_a_blindspot() -> None:
    files = INTERPRETER | wheel("x", "1", {"x/__init__.py": ""})
    files[f"{SITE}/x-1.dist-info/RECORD"] = b"\0\n,,\n"
    found = attributed(files)
    assert [spot.path for spot in found.blindspots] == [f"{SITE}/x-1.dist-info/RECORD".encode()]
    assert claim(found, f"{SITE}/x/__init__.py", "wheel:x") == ("enclosing", b"x/__init__.py")


def test_a_row_that_leads_above_the_root_stays_inside_it() -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": ""}, rows="../../../../../../../../etc/x.conf,,\n")
    assert whose(attributed(files | {"etc/x.conf": ""}), "etc/x.conf") == ["wheel:x"]


def test_nobody_owns_the_package_databases() -> None:
    files = INTERPRETER | wheel(
        "x", "1", {"x.py": ""}, rows="/var/lib/dpkg/status,,\n/opt/conda/conda-meta/history,,\n"
    )
    found = attributed(files | {"var/lib/dpkg/status": "", "opt/conda/conda-meta/history": ""})
    assert whose(found, "var/lib/dpkg/status") == ["unowned:unowned:/var"]
    assert whose(found, "opt/conda/conda-meta/history") == ["unowned:unowned:/opt"]


def test_two_distributions_that_list_a_file_both_own_it() -> None:
    files = INTERPRETER | wheel("triton", "3", {"triton/__init__.py": "1", "triton/c.py": "x"})
    files |= wheel("triton-xpu", "3", {"triton/__init__.py": "2", "triton/c.py": "x"})
    found = attributed(files)
    assert whose(found, f"{SITE}/triton/c.py") == ["wheel:triton", "wheel:triton-xpu"]
    assert notes(found) == [("two-distributions", "triton", f"{SITE}/triton/__init__.py".encode())]


def test_namespace_packages_are_no_conflict() -> None:
    files = INTERPRETER | wheel("nvidia-a", "1", {"nvidia/__init__.py": "", "nvidia/a/__init__.py": ""})
    files |= wheel("nvidia-b", "1", {"nvidia/__init__.py": "", "nvidia/b/__init__.py": ""})
    assert attributed(files).integrity == ()


# --------------------------------------------------------------------------------------------------------------------
# Files that RECORD does not list
# --------------------------------------------------------------------------------------------------------------------


def test_bytecode_belongs_to_the_owner_of_its_source() -> None:
    files = INTERPRETER | wheel("x", "1", {"x/__init__.py": "", "x/m.py": "", "top.py": ""})
    more: Files = {
        f"{SITE}/x/__pycache__/m.cpython-312.pyc": "1",
        f"{SITE}/x/__pycache__/m.cpython-312.opt-1.pyc": "2",
        f"{SITE}/x/m.pyc": "3",
        f"{SITE}/__pycache__/top.cpython-312.pyc": "4",
        f"{SITE}/__pycache__/nobody.cpython-312.pyc": "5",
    }
    found = attributed(files | more)
    inside = "x/__pycache__/m.cpython-312"
    assert claim(found, f"{SITE}/{inside}.pyc", "wheel:x") == ("bytecode", f"{inside}.pyc".encode())
    assert claim(found, f"{SITE}/{inside}.opt-1.pyc", "wheel:x") == ("bytecode", f"{inside}.opt-1.pyc".encode())
    assert claim(found, f"{SITE}/x/m.pyc", "wheel:x") == ("bytecode", b"x/m.pyc")
    top = f"{SITE}/__pycache__/top.cpython-312.pyc"
    assert claim(found, top, "wheel:x") == ("bytecode", b"__pycache__/top.cpython-312.pyc")
    assert whose(found, f"{SITE}/__pycache__/nobody.cpython-312.pyc") == ["unowned:unowned:/usr"]


def test_what_lies_in_a_package_belongs_to_its_distribution() -> None:
    files = INTERPRETER | wheel("x", "1", {"x/__init__.py": "", "x/sub/m.py": ""})
    more: Files = {
        f"{SITE}/x/jit/deep/k.so": "",
        f"{SITE}/x/sub/__pycache__/gone.cpython-312.pyc": "",
        f"{SITE}/x-1.dist-info/sboms/a.json": "",
        f"{SITE}/copied/__init__.py": "",
    }
    found = attributed(files | more)
    assert claim(found, f"{SITE}/x/jit/deep/k.so", "wheel:x") == ("enclosing", b"x/jit/deep/k.so")
    assert claim(found, f"{SITE}/x/sub/__pycache__/gone.cpython-312.pyc", "wheel:x")[0] == "enclosing"
    assert claim(found, f"{SITE}/x-1.dist-info/sboms/a.json", "wheel:x") == ("enclosing", b"x.dist-info/sboms/a.json")
    assert whose(found, f"{SITE}/copied/__init__.py") == ["unowned:unowned:/usr"]


def test_in_a_shared_namespace_the_nearest_distribution_has_it_else_all_that_share_it() -> None:
    files = INTERPRETER | wheel("nv-a", "1", {"nv/a/__init__.py": ""}) | wheel("nv-b", "1", {"nv/b/__init__.py": ""})
    found = attributed(files | {f"{SITE}/nv/a/x/made.bin": "", f"{SITE}/nv/new/made.bin": ""})
    assert whose(found, f"{SITE}/nv/a/x/made.bin") == ["wheel:nv-a"]
    assert whose(found, f"{SITE}/nv/new/made.bin") == ["wheel:nv-a", "wheel:nv-b"]


def test_a_dist_info_without_record_owns_its_top_level_names_beside_others() -> None:
    info = f"{SITE}/x-1.dist-info"
    files: Files = {f"{info}/METADATA": "Name: x\nVersion: 1\n", f"{info}/top_level.txt": "xpkg\n_x\n"}
    files |= {f"{SITE}/xpkg/__init__.py": "", f"{SITE}/_x.abi3.so": "", f"{SITE}/other.py": ""}
    found = attributed(INTERPRETER | files)
    assert claim(found, f"{SITE}/xpkg/__init__.py", "wheel:x") == ("enclosing", b"xpkg/__init__.py")
    assert claim(found, f"{SITE}/_x.abi3.so", "wheel:x") == ("enclosing", b"_x.abi3.so")
    assert claim(found, f"{info}/METADATA", "wheel:x") == ("enclosing", b"x.dist-info/METADATA")
    assert whose(found, f"{SITE}/other.py") == ["unowned:unowned:/usr"]
    assert distribution(found, "x").packages == ("_x", "xpkg")


def test_a_dist_info_that_says_nothing_is_guessed_by_its_name() -> None:
    files: Files = {f"{SITE}/My_Pkg-1.dist-info/METADATA": "Name: My-Pkg\n", f"{SITE}/my_pkg/__init__.py": ""}
    found = attributed(INTERPRETER | files)
    assert distribution(found, "my-pkg").packages == ("my_pkg",)
    assert whose(found, f"{SITE}/my_pkg/__init__.py") == ["wheel:my-pkg"]


def test_entry_points_are_read() -> None:
    points = "[console_scripts]\nvllm = vllm.cli:main\n; no\n# no\n[vllm.general_plugins]\nlora=a.b : c [extra]\n"
    found = attributed(INTERPRETER | wheel("x", "1", {"x.py": ""}, points=points))
    assert distribution(found, "x").entry_points == (
        ("console_scripts", "vllm", "vllm.cli:main"),
        ("vllm.general_plugins", "lora", "a.b : c [extra]"),
    )


def test_files_directly_in_the_root_and_below_top_directories_are_unowned_by_top() -> None:
    found = attributed({"start.sh": "", "opt/ucx/lib/a.so": "", b"caf\xe9/x": "", "srv": Link(b"/opt"), "d": Dir()})
    assert whose(found, "start.sh") == ["unowned:unowned:/"]
    assert whose(found, "srv") == ["unowned:unowned:/"]
    assert whose(found, "opt/ucx/lib/a.so") == ["unowned:unowned:/opt"]
    assert whose(found, b"caf\xe9/x") == ["unowned:unowned:/caf\\xe9"]
    assert b"d" not in found.claims


def test_what_two_images_share_of_their_records_is_read_once_and_said_of_both() -> None:
    files = INTERPRETER | wheel("x", "1", {"x.py": ""})
    record = f"{SITE}/x-1.dist-info/RECORD"
    files[record] = f"{files[record]!s}\n,sha256=!,3\n"
    tree, texts = made(files)
    records = Records()
    a, b = (attribute(tree, texts, side, records) for side in ("a", "b"))
    (rows,) = records.rows.values()
    assert a == attribute(tree, texts, "a")
    assert b == attribute(tree, texts, "b")
    assert list(records.rows.values()) == [rows]
    assert [note.code for note in b.integrity] == ["record-unreadable"]
    assert {note.image for note in b.integrity} == {"b"}


_LISTED = {
    "x/__init__.py": "",
    "x/a.py": "1",
    "x/b.py": "2",
    "x/sub/c.py": "3",
    "x/d.py": "4",
}


def _installed() -> Files:
    """Two wheels, x and a; x lists one path in two ways, and a script outside of the site."""
    files = INTERPRETER | {"usr/local/bin/tool": "#!"} | wheel("a", "1", {"a.py": ""}) | wheel("x", "1", _LISTED)
    record = f"{SITE}/x-1.dist-info/RECORD"
    return files | {record: f"x/sub/../d.py,,\n../../../bin/tool,,\n{files[record]!s}"}


_OTHERWISE: dict[str, Files] = {
    "a file is gone": {f"{SITE}/x/a.py": Dir()},
    "a file is a link": {f"{SITE}/x/a.py": Link(b"b.py")},
    "a file was edited": {f"{SITE}/x/a.py": "edited"},
    "a directory is a link": {f"{SITE}/x/sub": Link(b"../real"), f"{SITE}/real/c.py": "3"},
    "the scripts' directory is a link": {"usr/local/bin": Link(b"../bin"), "usr/bin/tool": "#!"},
    "another distribution lists a file": wheel("a", "1", {"a.py": "", "x/a.py": "1"}),
    "its RECORD lists less": wheel("x", "1", {"x/a.py": "1"}),
    "its RECORD is gone": {f"{SITE}/x-1.dist-info/RECORD": Dir()},
    "it is in no place of its own any more": wheel("b", "1", {"b.py": ""}),
    "a later distribution lists a file": wheel("y", "1", {"x/a.py": "1"}),
    "another version is there, too": wheel("x", "0", {"x/a.py": "1"}),
    "the environment is another": {"usr/local/lib/python3.12/os.py": Dir()},
}


def _changed(files: Files, how: str) -> Files:
    apart = tuple(
        path + "/" for path, what in _OTHERWISE[how].items() if isinstance(path, str) and isinstance(what, Link)
    )
    return {path: what for path, what in files.items() if not str(path).startswith(apart)} | _OTHERWISE[how]


@pytest.mark.parametrize("how", _OTHERWISE)
@pytest.mark.parametrize("turned", [False, True], ids=["changed second", "changed first"])
def test_an_image_with_the_records_of_another_is_told_as_if_it_were_alone(how: str, turned: bool) -> None:
    files = _installed()
    pair = [made(files), made(_changed(files, how))]
    if turned:
        pair.reverse()
    records = Records()
    known: Roots = {}
    for tree, texts in pair:
        alone = attribute(tree, texts, "a")
        shared = attribute(tree, texts, "a", records)
        assert shared == alone
        assert list(shared.claims) == list(alone.claims)
        assert owner_roots(shared, tree, known) == owner_roots(alone, tree)


def test_a_root_that_was_kept_is_not_taken_for_other_content() -> None:
    known: Roots = {}
    roots = []
    for content in ("1", "2"):
        files = INTERPRETER | wheel("x", "1", {"x.py": "1"}) | {f"{SITE}/x.py": content}  # RECORD says 1 in both
        tree, texts = made(files)
        found = attribute(tree, texts, "a")
        roots.append(owner_roots(found, tree, known)[distribution(found, "x").owner])
    assert len(set(roots)) == 2
