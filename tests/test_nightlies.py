"""Ordinary nightlies must be killable: two builds of one Dockerfile a day apart, nothing that matters changed.

Each kind of such a difference is killed with its proof in the report; its twin, in which one byte that matters hides
among the same differences, is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import imgdiff
from imgdiff.model import JudgedChange, Report
from tests.support import nightly
from tests.support.elf import Elf, elf_bytes
from tests.support.images import Member
from tests.support.nightly import LIBRARY, SITE, TUESDAY, Build, Shop

pytest.importorskip("pip", reason="pip installs the wheels that the images hold")


@dataclass(frozen=True)
class Proof:
    """What the report says of a group of paths: how it begins, the level, and the effect and reason (where asked)."""

    start: str
    level: str | None = None
    effect: str | None = None
    reason: str = ""


@dataclass(frozen=True)
class Nightly:
    """What a day changes, in which proof it ends, what hides in its twin, and how sure the twin's verdict is."""

    change: Callable[[Build], None]
    proofs: tuple[Proof, ...]
    twin: Callable[[Build], None]
    twin_outcome: str
    twin_path: str
    vllm: bool = False
    config: tuple[str, ...] = field(default=())


# --------------------------------------------------------------------------------------------------------------------
# What a day changes
# --------------------------------------------------------------------------------------------------------------------

OPS = f"{SITE}/kernels/ops.py"
SETTINGS = f"{SITE}/kernels/settings.py"


def pyc_headers(build: Build) -> None:
    build.compile(mtime=TUESDAY)


def apt_and_dpkg(build: Build) -> None:
    build.put("var/lib/dpkg/status-old", "Package: base-files\n", TUESDAY)
    build.put("var/lib/apt/extended_states", "Package: vim\nAuto-Installed: 0\n", TUESDAY)
    build.put("var/lib/apt/lists/deb.debian.org_debian_dists_bookworm_InRelease", "Date: Tue, 17 Jun\n", TUESDAY)
    build.put("var/lib/apt/lists/security.debian.org_dists_bookworm_InRelease", "Date: Tue, 17 Jun\n", TUESDAY)
    build.put("var/cache/apt/pkgcache.bin", b"\0\1tuesday", TUESDAY)
    build.put("var/cache/debconf/config.dat-old", "Name: tz2\n", TUESDAY)
    status = build.text("var/lib/dpkg/status")
    build.put("var/lib/dpkg/status", "\n".join(reversed(status.strip().split("\n\n"))) + "\n", TUESDAY)


def logs(build: Build) -> None:
    build.put("var/log/dpkg.log", "2025-06-16 install vim\n", TUESDAY)
    build.put("var/log/apt/history.log", "Start-Date: 2025-06-16\n", TUESDAY)
    build.put("var/log/alternatives.log", "update-alternatives 2025-06-16\n", TUESDAY)


def caches(build: Build) -> None:
    build.put("root/.cache/pip/http/1/2/3", b"cached tuesday", TUESDAY)
    build.put("root/.cache/pip/http/4/5/6", b"cached tuesday", TUESDAY)
    build.put("root/.cache/uv/wheels-v5/index", b"cached tuesday", TUESDAY)
    build.put("var/cache/fontconfig/a1.cache-8", b"fonts tuesday", TUESDAY)
    del build.files["var/cache/debconf/config.dat-old"]


def machine_id(build: Build) -> None:
    for path in ("etc/machine-id", "var/lib/dbus/machine-id"):
        build.put(path, "fedcba9876543210fedcba9876543210\n", TUESDAY)
    build.put("etc/hostname", "buildkitsandbox2\n", TUESDAY)


def loader_speed_up(build: Build) -> None:
    nightly.loader_caches(build, "tuesday")


def build_labels(build: Build) -> None:
    build.env |= {"VLLM_BUILD_COMMIT": "5e6f7a8b", "VLLM_BUILD_URL": "https://ci.example/2"}
    build.labels |= {"org.opencontainers.image.revision": "5e6f7a8b"}
    logs(build)  # so that there is a file that differs, as always


def further_names(build: Build) -> None:
    """What a tool that links equal files together leaves: further names of files that are loaded, which nobody asks for."""
    for path, name in ((OPS, "var/spare/ops_of_monday.py"), (LIBRARY, "var/spare/kernel.of.monday")):
        build.files[name] = Member(name, type="hardlink", target=path, mtime=TUESDAY)


def user_by_name(build: Build) -> None:
    build.user = "root:root"
    logs(build)


def vim_upgrade(build: Build) -> None:
    nightly.vim(build, "2:9.0.1378-2+deb12u1")


def comments(build: Build) -> None:
    build.edit(OPS, "# words weigh by their length", "# a word weighs as much as it is long\n    # (issue 12)")
    build.compile(OPS, mtime=TUESDAY)


def pip_against_uv(build: Build) -> None:
    """What ``uv pip install`` leaves where pip did before: no bytecode, other records, another console script."""
    for path in [path for path in build.files if path.startswith(f"{SITE}/") and path.endswith(".pyc")]:
        del build.files[path]
    for info in sorted({path.rpartition("/")[0] for path in build.files if ".dist-info/" in path}):
        build.put(f"{info}/INSTALLER", "uv", TUESDAY)
        build.put(f"{info}/REQUESTED", "", TUESDAY)
        build.put(f"{info}/uv_cache.json", '{"timestamp":{"secs_since_epoch":1750086400}}', TUESDAY)
        rows = [row for row in build.text(f"{info}/RECORD").splitlines() if "__pycache__" not in row]
        rows = [row for row in rows if not row.startswith(("../", f"{Path(info).name}/INSTALLER"))]
        build.put(f"{info}/RECORD", "\n".join([*rows, f"{Path(info).name}/uv_cache.json,,"]) + "\n", TUESDAY)
    script = (
        "#!/usr/local/bin/python3\n# -*- coding: utf-8 -*-\nimport sys\nfrom kernels.cli import main\n"
        'if __name__ == "__main__":\n    if sys.argv[0].endswith("-script.pyw"):\n'
        "        sys.argv[0] = sys.argv[0][:-11]\n"
        '    elif sys.argv[0].endswith(".exe"):\n        sys.argv[0] = sys.argv[0][:-4]\n    sys.exit(main())\n'
    )
    build.put("usr/local/bin/kernels-bench", script, TUESDAY, 0o755)


# --------------------------------------------------------------------------------------------------------------------
# What hides in the twins
# --------------------------------------------------------------------------------------------------------------------


def other_bytecode(build: Build) -> None:
    """One constant of one ``.pyc``, under a header that fits its source."""
    source = build.files[OPS]
    other = source.content.replace(b"BIAS = 3", b"BIAS = 4")
    build.put(nightly.cached(OPS), nightly.bytecode(other, f"/{OPS}", int(source.mtime)), int(source.mtime))


def other_conffile(build: Build) -> None:
    build.put("etc/engine/engine.conf", '{"scale": 3}\n', TUESDAY)


def other_kernel(build: Build) -> None:
    build.put(LIBRARY, nightly.kernel(b"\x31\xc0\xc3\x90\x90\x90\x90\x91"), mode=0o755)


def other_compile_cache(build: Build) -> None:
    build.put("root/.cache/triton/ab12/kernel.json", '{"num_warps": 8}\n', TUESDAY)


def other_search_path(build: Build) -> None:
    """The loader finds another copy, which both images have, once the container's runtime has run ldconfig."""
    build.put("etc/ld.so.conf.d/libc.conf", "/usr/local/lab\n")


def other_loader_cache(build: Build) -> None:
    if "etc/ld.so.cache" not in build.files:
        pytest.skip("ldconfig -r makes the loader's cache, which wants glibc and root")
    cache = build.files["etc/ld.so.cache"].content
    assert cache.count(b"/usr/local/lib/libkernel.so.1\0") == 1
    build.put("etc/ld.so.cache", cache.replace(b"/usr/local/lib/libkernel", b"/usr/local/lab/libkernel"))


def other_name(build: Build) -> None:
    """A further name by which Python looks first: a package of its own in the working directory."""
    build.files["srv/kernels.py"] = Member("srv/kernels.py", type="hardlink", target="srv/app/__init__.py")


def other_root(build: Build) -> None:
    """A further line of user 0 before root's, so that no user and root have other homes."""
    build.put("etc/passwd", "toor:x:0:0:toor:/opt:/bin/sh\nroot:x:0:0:root:/root:/bin/sh\n", TUESDAY)


def other_setting(build: Build) -> None:
    build.env["VLLM_USE_V1"] = "0"


def other_constant(build: Build) -> None:
    build.edit(OPS, "BIAS = 3", "BIAS = 4")
    build.compile(OPS)


def other_bytecode_before(build: Build) -> None:
    """The same source, of which uv's image has no bytecode any more, in other words."""
    build.edit(OPS, "BIAS = 3", "BIAS = 4")


def other_encoding(build: Build) -> None:
    build.edit(SETTINGS, "utf-8", "utf-7")
    build.compile(SETTINGS, mtime=TUESDAY)


KINDS: dict[str, Nightly] = {
    "pyc-headers": Nightly(
        pyc_headers,
        (
            Proof(f"{SITE}/kernels/__pycache__/ops.", "eager", "noise", "header"),
            Proof("srv/app/__pycache__/engine.", "eager", "noise", "header"),
            Proof(f"{SITE}/colours/__pycache__/", None, "noise", "header"),
        ),
        other_bytecode,
        "stands",
        nightly.cached(OPS),
    ),
    "apt-and-dpkg": Nightly(
        apt_and_dpkg,
        (
            Proof("var/lib/dpkg/", "outside"),
            Proof("var/lib/apt/", "outside"),
            Proof("var/cache/apt/", "outside"),
            Proof("var/cache/debconf/", "outside"),
        ),
        other_conffile,
        "undecided",
        "etc/engine/engine.conf",
    ),
    "logs": Nightly(logs, (Proof("var/log/", "outside"),), other_encoding, "stands", SETTINGS),
    "caches": Nightly(
        caches,
        (
            Proof("root/.cache/pip/", "outside"),
            Proof("root/.cache/uv/", "outside"),
            Proof("var/cache/", "outside"),
        ),
        other_compile_cache,
        "undecided",
        "root/.cache/triton/ab12/kernel.json",
    ),
    "machine-id": Nightly(
        machine_id,
        (
            Proof("etc/machine-id", "outside"),
            Proof("var/lib/dbus/", "outside"),
            Proof("etc/hostname", "outside"),
        ),
        other_search_path,
        "undecided",
        "etc/ld.so.conf.d/libc.conf",
    ),
    "loader-speed-up": Nightly(
        loader_speed_up,
        (Proof("var/cache/ldconfig/aux-cache", "outside"),),
        other_loader_cache,
        "stands",
        nightly.OTHER_LIBRARY,
    ),
    "build-labels": Nightly(
        build_labels,
        (Proof("var/log/", "outside"),),
        other_setting,
        "stands",
        "",
        vllm=True,
        config=("VLLM_BUILD_COMMIT", "VLLM_BUILD_URL", "org.opencontainers.image.revision"),
    ),
    "further-names": Nightly(
        further_names, (Proof("var/spare/", "unreached", "code", "hard link"),), other_name, "stands", "srv/kernels.py"
    ),
    "user-by-name": Nightly(user_by_name, (Proof("var/log/", "outside"),), other_root, "undecided", "etc/passwd"),
    "vim": Nightly(
        vim_upgrade,
        (
            Proof("usr/bin/vim.basic", "unreached", "code"),
            Proof("usr/share/vim/", "unreached"),
            Proof("usr/share/doc/", "outside"),
            Proof("etc/vim/", "unreached"),
            Proof("var/lib/dpkg/", "outside"),
        ),
        other_kernel,
        "stands",
        LIBRARY,
    ),
    "comments": Nightly(
        comments,
        (
            Proof(OPS, "eager", "noise", "syntax tree"),
            Proof(f"{SITE}/kernels/__pycache__/ops.", "eager", "noise", "code"),
        ),
        other_constant,
        "stands",
        OPS,
    ),
    "pip-against-uv": Nightly(
        pip_against_uv,
        (
            Proof(f"{SITE}/kernels/__pycache__/ops.", "eager", "noise", "ource"),
            Proof(f"{SITE}/kernels-1.4.0.dist-info/INSTALLER", None, "metadata"),
            Proof(f"{SITE}/kernels-1.4.0.dist-info/RECORD", None, "metadata"),
            Proof(f"{SITE}/colours-0.2.1.dist-info/", None, "metadata"),
        ),
        other_bytecode_before,
        "stands",
        OPS,
    ),
}


# --------------------------------------------------------------------------------------------------------------------
# The images
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("nightlies"))


@pytest.fixture(scope="module")
def compare(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Build, Build], Report]:
    """Compare two builds; what was read of the base is shared by all tests of this module."""
    cache = tmp_path_factory.mktemp("cache")
    return lambda a, b: imgdiff.diff(shop.put(a), shop.put(b), cache_dir=cache, jobs=1)


def monday(shop: Shop, kind: Nightly) -> Build:
    return (shop.vllm if kind.vllm else shop.plain).copy()


def named(report: Report) -> dict[str, JudgedChange]:
    return {judged.change.path.decode(): judged for judged in report.changes}


@pytest.mark.parametrize("name", KINDS)
def test_a_nightly_is_killed_with_its_proof(name: str, shop: Shop, compare: Callable[[Build, Build], Report]) -> None:
    kind = KINDS[name]
    a = monday(shop, kind)
    b = a.copy()
    kind.change(b)
    report = compare(a, b)
    assert (report.verdict.outcome, report.verdict.reasons) == ("killed", report.verdict.reasons)
    assert {judged.outcome for judged in report.verdict.roles.values()} == {"killed"}
    assert report.blindspots == ()
    proven(report, kind)


def proven(report: Report, kind: Nightly) -> None:
    changes = named(report)
    assert changes
    for proof in kind.proofs:
        group = [judged for path, judged in changes.items() if path.startswith(proof.start)]
        assert group, proof
        for judged in group:
            for role, evidence in judged.load.items():
                assert judged.bears[role] == "none", (judged.change.path, role)
                if proof.level is not None:
                    assert evidence.level == proof.level, (judged.change.path, role, evidence)
                if proof.level == "eager":
                    assert evidence.chain, judged.change.path
            delta = judged.change.delta
            assert delta is not None
            assert proof.effect in (None, delta.effect), (judged.change.path, delta)
            assert proof.reason in delta.reason, (judged.change.path, delta)
    config = {change.name: change.bears for change in report.config}
    assert {config[name] for name in kind.config} <= {"none"}


@pytest.mark.parametrize("name", KINDS)
def test_its_twin_is_not(name: str, shop: Shop, compare: Callable[[Build, Build], Report]) -> None:
    kind = KINDS[name]
    a = monday(shop, kind)
    b = a.copy()
    kind.change(b)
    kind.twin(b)
    report = compare(a, b)
    assert report.verdict.outcome == kind.twin_outcome, report.verdict
    if kind.twin_path:
        assert f"/{kind.twin_path}" in imgdiff.render(report, "markdown")
        judged = named(report).get(kind.twin_path)
        assert judged is None or set(judged.bears.values()) - {"none"} or report.resolution
    else:
        assert "VLLM_USE_V1" in " ".join(report.verdict.reasons)
    assert len(report.changes) > len(kind.proofs) - 1  # it hides among the others


def everything(build: Build) -> None:
    """A whole day: all kinds together."""
    for change in (
        *(pyc_headers, apt_and_dpkg, logs, caches, machine_id, loader_speed_up, vim_upgrade, comments, pip_against_uv),
        build_labels,
    ):
        change(build)


def test_a_whole_day_is_killed(shop: Shop, compare: Callable[[Build, Build], Report]) -> None:
    a = shop.vllm.copy()
    b = a.copy()
    everything(b)
    report = compare(a, b)
    assert report.profile == "vllm"
    assert (report.verdict.outcome, report.verdict.reasons) == ("killed", report.verdict.reasons)
    assert report.blindspots == ()
    assert report.resolution == ()
    kinds = [kind for name, kind in KINDS.items() if name not in ("pyc-headers", "apt-and-dpkg", "logs")]
    proofs = tuple(proof for kind in kinds for proof in kind.proofs if not proof.start.startswith("var/"))
    proven(report, Nightly(everything, proofs, everything, "", ""))


@pytest.mark.parametrize("name", ["pyc-headers", "loader-speed-up", "comments", "pip-against-uv"])
def test_one_byte_in_a_whole_day_is_found(name: str, shop: Shop, compare: Callable[[Build, Build], Report]) -> None:
    a = shop.vllm.copy()
    b = a.copy()
    everything(b)
    KINDS[name].twin(b)
    assert compare(a, b).verdict.outcome in ("stands", "undecided")


def test_a_library_of_an_unrelated_package_in_the_loaders_cache(
    shop: Shop, compare: Callable[[Build, Build], Report]
) -> None:
    a = shop.plain.copy()
    b = a.copy()
    library = elf_bytes(Elf(soname="libgpm.so.2", exports=["Gpm_Open"]))
    b.put("usr/local/lib/libgpm.so.2", library, mode=0o755)
    nightly.loader_caches(b, "tuesday", {"usr/local/lib/libgpm.so.2": library})
    if "etc/ld.so.cache" not in b.files:
        pytest.skip("ldconfig -r makes the loader's cache, which wants glibc and root")
    report = compare(a, b)
    assert report.verdict.outcome == "killed"
    delta = named(report)["etc/ld.so.cache"].change.delta
    assert delta is not None
    assert (delta.effect, "libgpm.so.2" in delta.reason) == ("noise", True)
    b.edit(OPS, "BIAS = 3\n", "BIAS = 3\nGPM = 'libgpm.so.2'\n")  # now reached code names it
    b.compile(OPS)
    report = compare(a, b)
    assert named(report)["etc/ld.so.cache"].bears["main"] != "none"


@pytest.mark.parametrize(("group", "bears"), [("root:x:0:\n", "none"), ("root:x:0:\nvideo:x:44:root\n", "undecided")])
def test_root_by_name_is_the_user_that_engines_start_by_default(
    group: str, bears: str, shop: Shop, compare: Callable[[Build, Build], Report]
) -> None:
    """In both images alike, so that nothing else differs: root is a member of a further group, but as ``root:root``."""
    a = shop.plain.copy()
    a.put("etc/group", group)
    b = a.copy()
    b.user = "root:root"
    report = compare(a, b)
    assert [(change.field, change.bears) for change in report.config] == [("user", bears)]
    assert ("/etc/passwd" in report.config[0].reason) == (bears == "none")
    assert report.verdict.outcome == ("identical" if bears == "none" else "undecided")


def test_what_changed_under_all_names_of_a_file_counts_for_each(
    shop: Shop, compare: Callable[[Build, Build], Report]
) -> None:
    a = shop.plain.copy()
    further_names(a)
    b = a.copy()
    other_kernel(b)
    report = compare(a, b)
    assert report.verdict.outcome == "stands"
    changes = named(report)
    assert {changes[path].bears["main"] for path in (LIBRARY, "var/spare/kernel.of.monday")} == {"stands"}
    del b.files["var/spare/ops_of_monday.py"], b.files["var/spare/kernel.of.monday"]
    b.files[LIBRARY] = a.files[LIBRARY]
    assert compare(a, b).verdict.outcome == "killed"
