"""What pip and venv really write, held against what is said of it. All wheels but the last tests' are built here."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from imgdiff.attribution import attribute, owner_root, owner_roots
from imgdiff.model import Attribution, Tree
from tests.attribution.claims import claim, distribution, notes, whose
from tests.support.trees import TextsOf, walked

MINOR = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"opt/venv/lib/{MINOR}/site-packages"
SHELL = textwrap.dedent((owner_root.__doc__ or "").partition("::\n")[2])

needs_shell = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("sha256sum", "sed", "paste", "bash")), reason="needs coreutils and bash"
)


POINTS = "[console_scripts]\nengine-serve = engine:main\n\n[other]\na = b\n"


def build(directory: Path, name: str, version: str, files: dict[str, str], data: dict[str, str] | None = None) -> Path:
    """Write a wheel (PyPA "Binary distribution format"); ``data`` goes to its .data folder."""
    info = f"{name}-{version}.dist-info"
    content = {
        **files,
        **{f"{name}-{version}.data/{path}": text for path, text in (data or {}).items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        quoted = f'"{path}"' if "," in path else path
        rows.append(f"{quoted},sha256={digest},{len(text)}\n")
    wheel = directory / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return wheel


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real venv with four wheels, one of them editable, installed by pip."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], check=False, capture_output=True).returncode:
        pytest.skip("this interpreter has no pip")
    work = tmp_path_factory.mktemp("real")
    engine = build(
        work,
        "my_engine",
        "1.0+cpu",
        {
            "engine/__init__.py": "import sys\n",
            "engine/sub/mod.py": "x = 1\n",
            "engine/configs/E=64,N=512,device_name=Intel(R)_Arc.json": "{}",
            "my_engine-1.0+cpu.dist-info/entry_points.txt": POINTS,
        },
        {
            "data/lib/libengine.so.1": "so",
            "data/share/e.txt": "t",
            "scripts/engine-tool": "#!/bin/sh\n",
            "headers/e.h": "",
        },
    )
    plain = build(work, "plain", "2.0", {"plain.py": "y = 2\n"})
    venv = work / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip("--python", venv / "bin" / "python", "install", "--no-deps", "--no-index", engine, plain)
    return venv


def attributed(prefix: Path) -> tuple[Tree, TextsOf, Attribution]:
    tree, texts = walked(prefix, b"opt/venv")
    return tree, texts, attribute(tree, texts, "a")


def test_a_real_venv(prefix: Path) -> None:
    tree, _, found = attributed(prefix)
    (environment,) = found.environments
    assert environment.prefix == b"opt/venv"
    assert environment.sites == (SITE.encode(),)
    assert found.integrity == ()
    assert found.blindspots == ()
    assert claim(found, "opt/venv/lib/libengine.so.1", "wheel:my-engine") == ("record", b"../../libengine.so.1")
    assert claim(found, "opt/venv/bin/engine-tool", "wheel:my-engine") == ("record", b"../../../bin/engine-tool")
    assert whose(found, "opt/venv/bin/engine-serve") == ["wheel:my-engine"]
    assert whose(found, f"{SITE}/plain.py") == ["wheel:plain"]
    assert whose(found, "opt/venv/pyvenv.cfg") == ["unowned:unowned:/opt"]
    assert distribution(found, "my-engine").packages == ("engine",)
    assert distribution(found, "my-engine").version == "1.0+cpu"
    config = b"engine/configs/E=64,N=512,device_name=Intel(R)_Arc.json"
    assert claim(found, SITE.encode() + b"/" + config, "wheel:my-engine") == ("record", config)
    compiled = [path for path in tree.entries if path.endswith(b".pyc")]
    assert len(compiled) == 3
    assert all(not owner.name.startswith("unowned") for path in compiled for owner in found.owners_of(path))


def test_a_real_edit_is_seen(prefix: Path, tmp_path: Path) -> None:
    copy = tmp_path / "venv"
    shutil.copytree(prefix, copy, symlinks=True)
    with (copy / "lib" / MINOR / "site-packages" / "engine" / "sub" / "mod.py").open("a") as file:
        file.write("# sed was here\n")
    assert notes(attributed(copy)[2]) == [("record-mismatch", "my-engine", f"{SITE}/engine/sub/mod.py".encode())]


def test_pips_target_directory(prefix: Path, tmp_path: Path) -> None:
    wheel = prefix.parent / "my_engine-1.0+cpu-py3-none-any.whl"
    pip("install", "--no-deps", "--no-index", "--target", tmp_path / "deps", wheel)
    tree, texts = walked(tmp_path / "deps", b"srv/deps")
    found = attribute(tree, texts, "a")
    assert whose(found, "srv/deps/engine/__init__.py") == ["wheel:my-engine"]
    assert whose(found, "srv/deps/bin/engine-serve") == ["wheel:my-engine"]
    assert claim(found, "srv/deps/share/e.txt", "wheel:my-engine") == ("record", b"../../share/e.txt")
    # pip itself loses what a wheel puts into lib/ there, and RECORD still lists it.
    assert not (tmp_path / "deps" / "libengine.so.1").exists()
    assert notes(found) == [("record-missing", "my-engine", b"srv/libengine.so.1")]


# --------------------------------------------------------------------------------------------------------------------
# Root hashes
# --------------------------------------------------------------------------------------------------------------------


def shell_root(site: Path, name: str) -> str:
    """What the line that owner_root's docstring shows prints, run by a real shell."""
    line = SHELL.replace("vllm", name)
    done = subprocess.run(["bash", "-c", line], cwd=site, check=True, capture_output=True, text=True)
    return done.stdout.split()[0]


def root(found: Attribution, tree: Tree, name: str) -> str:
    return owner_root(found, tree, distribution(found, name).owner)


@needs_shell
def test_the_shell_line_of_the_documentation_gives_the_same_root(prefix: Path) -> None:
    tree, _, found = attributed(prefix)
    site = prefix / "lib" / MINOR / "site-packages"
    assert root(found, tree, "my-engine") == shell_root(site, "my_engine")
    assert root(found, tree, "plain") == shell_root(site, "plain")


@needs_shell
def test_a_link_counts_by_its_text_and_a_missing_file_not_at_all(prefix: Path, tmp_path: Path) -> None:
    copy = tmp_path / "venv"
    shutil.copytree(prefix, copy, symlinks=True)
    site = copy / "lib" / MINOR / "site-packages"
    before = root(attributed(copy)[2], attributed(copy)[0], "my-engine")
    (site / "engine" / "sub" / "mod.py").unlink()
    (site / "engine" / "sub" / "mod.py").symlink_to("/elsewhere")
    (copy / "share" / "e.txt").unlink()
    tree, _, found = attributed(copy)
    assert before != root(found, tree, "my-engine") == shell_root(site, "my_engine")


def test_the_root_is_the_hash_of_lines_as_sha256sum_writes_them(prefix: Path) -> None:
    tree, _, found = attributed(prefix)
    files = {
        b"plain.py": b"y = 2\n",
        b"plain.dist-info/METADATA": b"Metadata-Version: 2.1\nName: plain\nVersion: 2.0\n",
        b"plain.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = b"".join(
        hashlib.sha256(content).hexdigest().encode() + b"  " + path + b"\n" for path, content in sorted(files.items())
    )
    assert root(found, tree, "plain") == hashlib.sha256(lines).hexdigest()


def test_two_installs_and_a_moved_one_have_one_root(prefix: Path, tmp_path: Path) -> None:
    tree, _, found = attributed(prefix)
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(other)], check=True)
    wheel = prefix.parent / "my_engine-1.0+cpu-py3-none-any.whl"
    pip("--python", other / "bin" / "python", "install", "--no-deps", "--no-index", "--no-compile", wheel)
    moved, texts = walked(other, b"srv/py")
    again = attribute(moved, texts, "b")
    assert root(found, tree, "my-engine") == root(again, moved, "my-engine")


def test_roots_of_all_owners_are_those_of_each(prefix: Path) -> None:
    tree, _, found = attributed(prefix)
    assert owner_roots(found, tree) == {index: owner_root(found, tree, index) for index in range(len(found.owners))}


# --------------------------------------------------------------------------------------------------------------------
# Real wheels of the index
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.network
def test_an_upgrade_pairs_file_by_file(tmp_path: Path) -> None:
    """compressed-tensors 0.15.0 -> 0.15.0.1: the same relative paths, of which three differ."""
    relatives = []
    for version in ("0.15.0", "0.15.0.1"):
        target = tmp_path / version
        pip("install", "--no-deps", "--no-compile", "--target", target, f"compressed-tensors=={version}", "six")
        tree, texts = walked(target, b"srv/deps")
        found = attribute(tree, texts, "a")
        assert found.integrity == ()
        owner = distribution(found, "compressed-tensors").owner
        relatives.append(
            {
                each.relative: tree.entries[path].digest
                for path, claims in found.claims.items()
                for each in claims
                if each.owner == owner
            }
        )
        if shutil.which("sha256sum"):
            assert root(found, tree, "compressed-tensors") == shell_root(target, "compressed_tensors")
            assert root(found, tree, "six") == shell_root(target, "six")
    a, b = relatives
    assert a.keys() == b.keys()
    assert sorted(path for path in a if a[path] != b[path]) == [
        b"compressed_tensors.dist-info/METADATA",
        b"compressed_tensors.dist-info/RECORD",
        b"compressed_tensors/version.py",
    ]


@pytest.mark.network
def test_a_real_editable_install(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src" / "edited").mkdir(parents=True)
    (project / "src" / "edited" / "__init__.py").write_text("")
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "edited"\nversion = "3"\n'
    )
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip("--python", venv / "bin" / "python", "install", "--no-deps", "--editable", project)
    tree, texts = walked(tmp_path, os.fsencode(tmp_path).lstrip(b"/"))
    found = attribute(tree, texts, "a")
    one = distribution(found, "edited")
    assert one.editable == os.fsencode(project).lstrip(b"/")
    assert one.packages == ("edited",)
    assert claim(found, one.editable + b"/src/edited/__init__.py", "editable:edited") == (
        "editable",
        b"src/edited/__init__.py",
    )
