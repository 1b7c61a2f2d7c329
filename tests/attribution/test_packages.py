"""System packages, conda packages and toolkits."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import zlib
from pathlib import Path

from imgdiff.attribution import attribute
from tests.attribution.claims import INTERPRETER, Files, attributed, claim, notes, wheel, whose
from tests.support.trees import Link, keep_all, made

RPMDB = zlib.decompress((Path(__file__).parent / "data" / "rpmdb.sqlite.zz").read_bytes())


def stanza(name: str, version: str, architecture: str = "amd64") -> str:
    return f"Package: {name}\nStatus: install ok installed\nArchitecture: {architecture}\nVersion: {version}\n\n"


def md5(content: str) -> str:
    return hashlib.md5(content.encode()).hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# dpkg
# --------------------------------------------------------------------------------------------------------------------


def test_dpkg_lists_give_files_to_packages_through_a_merged_usr() -> None:
    files: Files = {
        "lib": Link(b"usr/lib"),
        "usr/lib/x86_64-linux-gnu/libc.so.6": "libc",
        "usr/bin/vim": "vim",
        "usr/bin/view": Link(b"vim"),
        "var/lib/dpkg/status": stanza("dpkg", "1") + stanza("libc6", "2.39-0ubuntu8") + stanza("vim", "2:9.1"),
        "var/lib/dpkg/info/libc6:amd64.list": "/.\n/lib\n/lib/x86_64-linux-gnu\n/lib/x86_64-linux-gnu/libc.so.6\n",
        "var/lib/dpkg/info/vim.list": "/.\n/usr\n/usr/bin\n/usr/bin/vim\n/usr/bin/view\n/usr/share/doc/vim/gone\n",
    }
    found = attributed(files)
    assert claim(found, "usr/lib/x86_64-linux-gnu/libc.so.6", "dpkg:libc6") == (
        "dpkg-list",
        b"lib/x86_64-linux-gnu/libc.so.6",
    )
    assert claim(found, "usr/bin/view", "dpkg:vim") == ("dpkg-list", b"usr/bin/view")
    assert {owner.name: owner.version for owner in found.owners if owner.kind == "dpkg"} == {
        "libc6": "2.39-0ubuntu8",
        "vim": "2:9.1",
    }
    assert whose(found, "var/lib/dpkg/status") == ["unowned:unowned:/var"]
    assert found.integrity == ()
    assert found.blindspots == ()


def test_a_package_of_two_architectures_has_two_names() -> None:
    files: Files = {
        "var/lib/dpkg/status": stanza("dpkg", "1") + stanza("libc6", "2") + stanza("libc6", "2", "i386"),
        "var/lib/dpkg/info/libc6:amd64.list": "/usr/lib/a.so\n/usr/share/both\n",
        "var/lib/dpkg/info/libc6:i386.list": "/usr/lib/i.so\n/usr/share/both\n",
        "usr/lib/a.so": "",
        "usr/lib/i.so": "",
        "usr/share/both": "",
    }
    found = attributed(files)
    assert whose(found, "usr/lib/a.so") == ["dpkg:libc6"]
    assert whose(found, "usr/lib/i.so") == ["dpkg:libc6:i386"]
    assert whose(found, "usr/share/both") == ["dpkg:libc6", "dpkg:libc6:i386"]


def test_diverted_files_belong_to_their_package_where_they_went() -> None:
    files: Files = {
        "var/lib/dpkg/status": stanza("vim-common", "1") + stanza("vim-tiny", "1"),
        "var/lib/dpkg/info/vim-common.list": "/usr/help.txt\n",
        "var/lib/dpkg/info/vim-tiny.list": "/usr/help.txt\n",
        "var/lib/dpkg/diversions": "/usr/help.txt\n/usr/help.txt.vim-tiny\nvim-tiny\n",
        "usr/help.txt": "tiny",
        "usr/help.txt.vim-tiny": "common",
    }
    found = attributed(files)
    assert whose(found, "usr/help.txt") == ["dpkg:vim-tiny"]
    assert whose(found, "usr/help.txt.vim-tiny") == ["dpkg:vim-common"]


def test_a_wheel_and_a_deb_both_own_debians_python_packages() -> None:
    site = "usr/lib/python3/dist-packages"
    files: Files = {
        "usr/lib/python3.12/os.py": "",
        f"{site}/six.py": "",
        f"{site}/six-1.16.0.egg-info/PKG-INFO": "Name: six\nVersion: 1.16.0\n",
        f"{site}/six-1.16.0.egg-info/top_level.txt": "six\n",
        f"{site}/__pycache__/six.cpython-312.pyc": "",
        "var/lib/dpkg/status": stanza("python3-six", "1.16.0-4", "all"),
        "var/lib/dpkg/info/python3-six.list": f"/{site}/six.py\n/{site}/six-1.16.0.egg-info/PKG-INFO\n",
    }
    found = attributed(files)
    for path in (f"{site}/six.py", f"{site}/__pycache__/six.cpython-312.pyc", f"{site}/six-1.16.0.egg-info/PKG-INFO"):
        assert whose(found, path) == ["dpkg:python3-six", "egg:six"]
    assert claim(found, f"{site}/six-1.16.0.egg-info/PKG-INFO", "egg:six")[1] == b"six.egg-info/PKG-INFO"


def test_md5sums_are_held_against_the_files_whose_content_is_at_hand() -> None:
    files: Files = {
        "var/lib/dpkg/status": stanza("tool", "1"),
        "var/lib/dpkg/info/tool.list": "/usr/bin/edited\n/usr/bin/same\n",
        "var/lib/dpkg/info/tool.md5sums": f"{md5('old')}  usr/bin/edited\n{md5('same')}  usr/bin/same\nrubbish\n",
        "usr/bin/edited": "new",
        "usr/bin/same": "same",
    }
    tree, texts = made(files, keep_all)
    assert notes(attribute(tree, texts, "b")) == [("dpkg-mismatch", "tool", b"usr/bin/edited")]
    tree, texts = made(files)  # without the content nothing is said
    assert attribute(tree, texts, "b").integrity == ()


def test_files_of_packages_that_are_gone_are_said_once_for_a_directory_and_not_for_docs() -> None:
    listed = ["usr/lib/tool/a", "usr/lib/tool/b/c", "usr/bin/tool", "usr/share/doc/tool/x", "usr/share/cut/y"]
    files: Files = {
        "var/lib/dpkg/status": stanza("tool", "1"),
        "var/lib/dpkg/info/tool.list": "".join(f"/{path}\n" for path in listed),
        "var/lib/dpkg/info/tool.md5sums": "".join(f"{md5('x')}  {path}\n" for path in listed),
        "etc/dpkg/dpkg.cfg.d/excludes": "path-exclude=/usr/share/cut/*\n",
        "usr/bin/other": "",
        "usr/lib/other": "",
    }
    assert notes(attributed(files)) == [
        ("dpkg-missing", "tool", b"usr/bin/tool"),
        ("dpkg-missing", "tool", b"usr/lib/tool"),
    ]


def test_distroless_has_one_file_for_each_package() -> None:
    files: Files = {
        "var/lib/dpkg/status.d/base": "Package: base-files\nVersion: 12\nArchitecture: amd64\n",
        "var/lib/dpkg/status.d/base.md5sums": f"{md5('x')}  etc/debian_version\n",
        "etc/debian_version": "x",
    }
    found = attributed(files)
    assert whose(found, "etc/debian_version") == ["dpkg:base-files"]
    assert [owner.version for owner in found.owners if owner.kind == "dpkg"] == ["12"]


# --------------------------------------------------------------------------------------------------------------------
# rpm
# --------------------------------------------------------------------------------------------------------------------

DEMO: Files = {
    "usr/bin/demo": "hello\n",
    "usr/share/demo/data.txt": "data\n",
    "usr/share/demo/link": Link(b"data.txt"),
    "etc/demo.conf": "mine\n",
}


def test_rpms_own_database_gives_files_to_packages() -> None:
    """The recording was made by rpm 4.18 of a package with a file, a link, a configuration and a ghost."""
    found = attributed(DEMO | {"var/lib/rpm/rpmdb.sqlite": RPMDB})
    assert claim(found, "usr/bin/demo", "rpm:demo") == ("rpm-header", b"usr/bin/demo")
    assert whose(found, "usr/share/demo/link") == ["rpm:demo"]
    assert whose(found, "etc/demo.conf") == ["rpm:demo"]
    assert [owner.version for owner in found.owners if owner.kind == "rpm"] == ["2:1.2-3"]
    assert found.integrity == ()  # a changed configuration is no edit, a ghost that is absent not missing
    assert found.blindspots == ()


def test_rpms_files_are_held_against_their_sha256() -> None:
    files = DEMO | {"usr/lib/sysimage/rpm/rpmdb.sqlite": RPMDB, "usr/bin/demo": "edited\n"}
    del files["usr/share/demo/data.txt"]
    assert notes(attributed(files)) == [
        ("rpm-mismatch", "demo", b"usr/bin/demo"),
        ("rpm-missing", "demo", b"usr/share/demo/data.txt"),
    ]


def test_a_database_in_two_places_by_a_link_is_read_once() -> None:
    files = DEMO | {"usr/lib/sysimage/rpm/rpmdb.sqlite": RPMDB, "var/lib/rpm": Link(b"../../usr/lib/sysimage/rpm")}
    assert len(attributed(files).claims[b"usr/bin/demo"]) == 1


def test_rpm_databases_that_are_not_read_are_blindspots() -> None:
    for name, content in (
        ("Packages", b"bdb"),
        ("Packages.db", b"ndb"),
        ("rpmdb.sqlite", b"torn"),
        ("rpmdb.sqlite", RPMDB[:9000]),
    ):
        found = attributed({f"var/lib/rpm/{name}": content})
        assert [spot.path for spot in found.blindspots] == [f"var/lib/rpm/{name}".encode()]


def test_a_write_ahead_log_is_a_blindspot() -> None:
    files: Files = {"var/lib/rpm/rpmdb.sqlite": RPMDB, "var/lib/rpm/rpmdb.sqlite-wal": "frames"}
    assert [spot.path for spot in attributed(files).blindspots] == [b"var/lib/rpm/rpmdb.sqlite-wal"]


def test_a_view_in_place_of_the_packages_is_not_run() -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute(
            "CREATE VIEW Packages AS "
            "WITH RECURSIVE n(blob) AS (SELECT 1 UNION ALL SELECT blob + 1 FROM n) SELECT * FROM n"
        )
        data = connection.serialize()
    connection.close()
    assert len(attributed({"var/lib/rpm/rpmdb.sqlite": data}).blindspots) == 1


# --------------------------------------------------------------------------------------------------------------------
# conda
# --------------------------------------------------------------------------------------------------------------------


def test_conda_meta_gives_files_to_packages_and_wheels_keep_theirs() -> None:
    site = "opt/conda/lib/python3.12/site-packages"
    meta = {
        "name": "numpy",
        "version": "2.1",
        "files": ["lib/python3.12/site-packages/numpy/__init__.py", "lib/libx.so"],
    }
    files: Files = {
        "opt/conda/conda-meta/numpy-2.1-py312.json": json.dumps(meta | {"paths_data": {"paths": []}, "depends": ["x"]}),
        "opt/conda/conda-meta/history": "",
        "opt/conda/lib/libx.so": "",
        "opt/conda/lib/python3.12/os.py": "",
        "opt/conda/pkgs/numpy-2.1/lib/libx.so": "",
        **wheel("numpy", "2.1", {"numpy/__init__.py": ""}, site=site),
    }
    found = attributed(files)
    assert claim(found, "opt/conda/lib/libx.so", "conda:numpy") == ("conda-meta", b"lib/libx.so")
    assert whose(found, f"{site}/numpy/__init__.py") == ["conda:numpy", "wheel:numpy"]
    assert whose(found, "opt/conda/pkgs/numpy-2.1/lib/libx.so") == ["unowned:unowned:/opt"]
    assert whose(found, "opt/conda/conda-meta/numpy-2.1-py312.json") == ["unowned:unowned:/opt"]


def test_broken_conda_meta_is_a_blindspot() -> None:
    for content in (b"{", b"[]", b'{"name": 1}', b"\xff", b"[" * 100_000):
        assert len(attributed({"opt/conda/conda-meta/x.json": content}).blindspots) == 1


# --------------------------------------------------------------------------------------------------------------------
# Toolkits
# --------------------------------------------------------------------------------------------------------------------


def test_oneapi_components_are_owners_by_their_version() -> None:
    files: Files = {
        "opt/intel/oneapi/compiler/2025.1/lib/libsycl.so.8": "",
        "opt/intel/oneapi/compiler/2025.0/lib/libsycl.so.8": "",
        "opt/intel/oneapi/compiler/latest": Link(b"2025.1"),
        "opt/intel/oneapi/2025.1/lib/libmkl.so": "",
        "opt/intel/oneapi/setvars.sh": "",
    }
    found = attributed(files)
    owners = {(o.name, o.version, o.root) for o in found.owners if o.kind == "prefix"}
    assert owners == {
        ("oneapi-compiler", "2025.0", b"opt/intel/oneapi/compiler/2025.0"),
        ("oneapi-compiler", "2025.1", b"opt/intel/oneapi/compiler/2025.1"),
        ("oneapi", "2025.1", b"opt/intel/oneapi/2025.1"),
        ("oneapi", None, b"opt/intel/oneapi"),
    }
    sycl = claim(found, "opt/intel/oneapi/compiler/2025.1/lib/libsycl.so.8", "prefix:oneapi-compiler")
    assert sycl == ("prefix", b"lib/libsycl.so.8")
    assert claim(found, "opt/intel/oneapi/compiler/latest", "prefix:oneapi") == ("prefix", b"compiler/latest")
    assert claim(found, "opt/intel/oneapi/setvars.sh", "prefix:oneapi") == ("prefix", b"setvars.sh")


def test_cuda_and_rocm_by_directory_with_the_version_they_tell() -> None:
    files: Files = {
        "usr/local/cuda-12.8/bin/nvcc": "",
        "usr/local/cuda-12.8/version.json": json.dumps({"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}),
        "usr/local/cuda-11.8/lib/x.so": "",
        "usr/local/cuda": Link(b"cuda-12.8"),
        "usr/local/cuda-10.2/version.txt": "CUDA Version 10.2.89\n",
        "usr/local/cuda-9.0/version.json": "{",
        "opt/rocm-6.3.1/lib/libhip.so": "",
        "opt/rocm-6.3.1/.info/version": "6.3.1-48\n",
        "opt/rocm": Link(b"rocm-6.3.1"),
    }
    found = attributed(files)
    versions = {o.root: (o.name, o.version) for o in found.owners if o.kind == "prefix"}
    assert versions == {
        b"usr/local/cuda-12.8": ("cuda", "12.8.1"),
        b"usr/local/cuda-11.8": ("cuda", "11.8"),
        b"usr/local/cuda-10.2": ("cuda", "10.2.89"),
        b"usr/local/cuda-9.0": ("cuda", "9.0"),
        b"opt/rocm-6.3.1": ("rocm", "6.3.1-48"),
    }
    assert claim(found, "usr/local/cuda-12.8/bin/nvcc", "prefix:cuda") == ("prefix", b"bin/nvcc")
    assert whose(found, "usr/local/cuda") == ["unowned:unowned:/usr"]


def test_a_toolkit_from_debs_has_both_owners() -> None:
    files: Files = {
        "usr/local/cuda-12.8/bin/nvcc": "",
        "var/lib/dpkg/status": stanza("cuda-nvcc-12-8", "12.8.93-1"),
        "var/lib/dpkg/info/cuda-nvcc-12-8.list": "/usr/local/cuda-12.8/bin/nvcc\n",
    }
    assert whose(attributed(INTERPRETER | files), "usr/local/cuda-12.8/bin/nvcc") == [
        "dpkg:cuda-nvcc-12-8",
        "prefix:cuda",
    ]


def header(*entries: tuple[int, int, int, bytes]) -> bytes:
    index, data = b"", b""
    for tag, kind, count, content in entries:
        index += struct.pack(">IIII", tag, kind, len(data), count)
        data += content
    return struct.pack(">II", len(entries), len(data)) + index + data


def database(*blobs: bytes) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
    connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(blob,) for blob in blobs])
    connection.commit()
    data = connection.serialize()
    connection.close()
    return data


def test_damaged_rpm_headers_are_blindspots_and_the_others_count() -> None:
    name, names, folders = (1000, 6, 1, b"good\0"), (1117, 8, 1, b"demo\0"), (1118, 8, 1, b"/usr/bin/\0")
    good = header(name, names, folders, (1116, 4, 1, b"\0\0\0\0"))
    damaged = (
        b"",
        b"\xff" * 40,
        good[:-5],
        header((1000, 6, 1, b"")),
        header((1000, 6, 9, b"x\0")),
        header(name, (1116, 4, 0xFFFFFFFF, b"")),
        header(name, names, folders, (1116, 4, 1, b"\0\0\0\7")),
        header(name, names, folders),
        header(names, folders),
    )
    found = attributed({"usr/bin/demo": "", "var/lib/rpm/rpmdb.sqlite": database(*damaged, good)})
    assert whose(found, "usr/bin/demo") == ["rpm:good"]
    assert len(found.blindspots) == len(damaged)
