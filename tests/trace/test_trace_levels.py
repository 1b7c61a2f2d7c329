"""Levels of files that are no modules: data, names, libraries, programs, absent files, versions."""

from __future__ import annotations

import pytest

from imgdiff.model import ElfFacts
from tests.trace.world import BASE, PYTHON, SITE, World, site

S = SITE.decode()
ELF = ElfFacts(62, 64)
LIB = "usr/lib/x86_64-linux-gnu"


def app(source: str = "", **more: bytes | str) -> dict[str, bytes | str]:
    return site({"app.py": source, **more})


def test_data_of_a_reached_owner_is_unknown_and_of_others_unreached() -> None:
    files = site(
        {
            "app/__main__.py": "",
            "app/__init__.py": "",
            "app/table.json": "{}",
            "other/__init__.py": "",
            "other/table2.json": "{}",
        }
    )
    world = World(files, owned={"app": [f"{S}/app".encode()], "other": [f"{S}/other".encode()]})
    assert world.level(f"{S}/app/table.json") == "unknown"
    assert world.level(f"{S}/other/table2.json") == "unreached"
    assert world.level(f"{S}/other/__init__.py") == "unreached"


@pytest.mark.parametrize(
    ("path", "level"),
    [
        ("usr/share/man/man1/x.1", "outside"),
        ("usr/share/locale/de/LC_MESSAGES/x.mo", "outside"),
        ("var/lib/dpkg/status", "outside"),
        ("etc/passwd-", "outside"),
        (f"{S}/app/stub.pyi", "outside"),
        (f"{S}/app-1.dist-info/licenses/LICENSE", "outside"),
        ("root/.cache/pip/x", "outside"),
        ("root/.cache/triton/kernel", "unknown"),
        ("root/.cache/huggingface/model.bin", "unknown"),
        ("etc/something.conf", "unreached"),
        ("usr/lib/locale/C.utf8/LC_CTYPE", "unreached"),
    ],
)
def test_lists_of_what_nobody_reads_and_of_what_is_read_at_run_time(path: str, level: str) -> None:
    assert World({**app(), path: "x"}).level(path) == level


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("OPEN = '/opt/models/config.ini'\n", "opt/models/config.ini"),
        ("OPEN = '/opt/models'\n", "opt/models/deep/config.ini"),
        ("OPEN = 'deep/config.ini'\n", "opt/models/deep/config.ini"),
        ("OPEN = 'config.ini'\n", "opt/models/config.ini"),
        ("OPEN = 'see --file=/opt/models/config.ini, please'\n", "opt/models/config.ini"),
        ("OPEN = '~/.app/config.ini'\n", "root/.app/config.ini"),
        ("OPEN = f'/opt/{x}/device_name={y}.json'\nx = y = 1\n", "opt/a/device_name=Intel(R)_Arc(TM).json"),
        ("OPEN = 'E=%d,N=%d.json' % (a, b)\n", "opt/E=1,N=2.json"),
    ],
)
def test_files_that_strings_name_are_unknown(source: str, path: str) -> None:
    if "E=%d" in source:
        source = source.replace("E=%d,N=%d", "Expert=%d,N=%d")
        path = path.replace("E=1", "Expert=1")
    world = World({**app(source), path: "x"})
    assert world.level(path) == "unknown"
    assert World({**app(), path: "x"}).level(path) == "unreached"


@pytest.mark.parametrize("text", ["/", "/usr", "/usr/lib", "/etc", "/opt", "/root", "/tmp"])
def test_common_directories_name_nothing(text: str) -> None:
    world = World({**app(f"X = '{text}'\n"), "opt/x/file.bin": "", "etc/zz.conf": "", "root/zz.conf": "", "tmp/zz": ""})
    for path in ("opt/x/file.bin", "etc/zz.conf", "root/zz.conf", "tmp/zz"):
        assert world.level(path) == "unreached"


def test_env_argv_working_directory_and_links_name_files() -> None:
    files = {**app(), "opt/conf/a.yml": "", "data/args.yml": "", "work/b.bin": "", "opt/linked/c.bin": ""}
    world = World(
        files,
        env=["APP_CONF=/opt/conf"],
        argv=("python3.12", "-m", "app", "--config=/data/args.yml"),
        cwd="/work",
        links={"etc/current": "/opt/linked"},
    )
    for path in ("opt/conf/a.yml", "data/args.yml", "work/b.bin", "opt/linked/c.bin"):
        assert world.level(path) == "unknown", path


def test_a_prefix_in_env_names_no_modules_below_a_search_path() -> None:
    files = {**app(), **site({"quiet.py": ""}), "usr/share/zz/data.bin": ""}
    assert World(files, env=[f"VIRTUAL_ENV=/{S.rpartition('/')[0]}"]).level(f"{S}/quiet.py") == "unreached"


def test_a_prefix_in_env_names_no_modules_through_a_link_to_a_search_path_below_it() -> None:
    prefix = S.partition("/lib/")[0]
    files = {**app(), **site({"quiet.py": ""})}
    world = World(files, env=[f"VIRTUAL_ENV=/{prefix}"], links={f"{prefix}/lib64": "lib"})
    assert world.level(f"{S}/quiet.py") == "unreached"


def test_strings_of_native_code_name_files() -> None:
    elves = {PYTHON.decode(): ElfFacts(62, 64, python=True, strings=("/etc/odd.conf", "libnss_%s.so.2"))}
    files = {**app(), "etc/odd.conf": "", f"{LIB}/libnss_files.so.2": "ELF", f"{LIB}/libother.so.2": "ELF"}
    world = World(files, elves={**elves, f"{LIB}/libnss_files.so.2": ELF, f"{LIB}/libother.so.2": ELF})
    assert world.level("etc/odd.conf") == "unknown"
    assert world.level(f"{LIB}/libnss_files.so.2") == "unknown"
    assert world.level(f"{LIB}/libother.so.2") == "unreached"


def test_libraries_by_needed_dlopen_and_beside() -> None:
    files = {
        **app("import ext\nimport ctypes\nctypes.CDLL('libopened.so.1')\n"),
        f"{S}/ext.abi3.so": "ELF",
        f"{LIB}/libneeded.so.1": "ELF",
        f"{LIB}/libopened.so.1": "ELF",
        f"{LIB}/libidle.so.1": "ELF",
        f"{LIB}/plugins/libplug.so": "ELF",
        f"{S}/vendor.libs/libown.so.2": "ELF",
        f"{S}/vendor.libs/sub/libnear.so.2": "ELF",
        f"{S}/far.libs/libfar.so.2": "ELF",
    }
    elves: dict[str, ElfFacts] = {path: ELF for path, content in files.items() if content == "ELF"}
    elves[f"{S}/ext.abi3.so"] = ElfFacts(
        62, 64, python=True, needed=("libneeded.so.1", "libown.so.2", "libcuda.so.1"), runpath="$ORIGIN/vendor.libs"
    )
    world = World(files, elves=elves)
    assert world.level(f"{LIB}/libneeded.so.1") == "eager"
    assert world.level(f"{S}/vendor.libs/libown.so.2") == "eager"
    assert world.level(f"{LIB}/libopened.so.1") == "deferred"
    assert world.level(f"{LIB}/libidle.so.1") == "unreached"
    assert world.level(f"{LIB}/plugins/libplug.so") == "unknown"
    assert world.level(f"{S}/vendor.libs/sub/libnear.so.2") == "unknown"
    assert world.level(f"{S}/far.libs/libfar.so.2") == "unreached"
    assert world.trace.roles["main"].libraries["libneeded.so.1"][1].path == f"{LIB}/libneeded.so.1".encode()
    assert any("libcuda.so.1" in caveat for caveat in world.trace.caveats)
    assert world.absent(f"{LIB}/libcuda.so.1") in ("eager", "deferred")


def test_preloads_are_eager() -> None:
    files = {
        **app(),
        f"{LIB}/libtcmalloc.so.4": "ELF",
        "etc/ld.so.preload": f"/{LIB}/libforced.so\n",
        f"{LIB}/libforced.so": "ELF",
    }
    elves = {f"{LIB}/libtcmalloc.so.4": ELF, f"{LIB}/libforced.so": ELF}
    world = World(files, elves=elves, env=[f"LD_PRELOAD=/{LIB}/libtcmalloc.so.4"])
    assert world.level(f"{LIB}/libtcmalloc.so.4") == "eager"
    assert world.level(f"{LIB}/libforced.so") == "eager"
    assert world.level("etc/ld.so.preload") == "eager"
    assert World(app()).absent("etc/ld.so.preload") == "eager"


def test_programs_that_reached_code_names() -> None:
    files = {
        **app("import subprocess\nsubprocess.run(['ninja', '-v'])\nCC = 'gcc'\n"),
        "usr/bin/ninja": "ELF",
        "usr/bin/gcc": "ELF",
        "usr/bin/idle": "ELF",
        "usr/include/stdio.h": "",
        "usr/lib/gcc/cc1": "ELF",
    }
    elves = {path: ELF for path, content in files.items() if content == "ELF" and not path.endswith("3.12")}
    world = World(files, elves=elves)
    assert world.level("usr/bin/ninja") == "deferred"
    assert world.level("usr/bin/gcc") == "deferred"
    assert world.level("usr/include/stdio.h") == "deferred"
    assert world.level("usr/lib/gcc/cc1") == "deferred"
    assert world.level("usr/bin/idle") == "unreached"
    assert World({**BASE, **app(), "usr/include/stdio.h": ""}).level("usr/include/stdio.h") == "unreached"


def test_links_have_the_stronger_evidence_of_their_ends() -> None:
    world = World(
        {**app("import dep\n"), "opt/real/dep.py": "", "opt/idle/x.py": ""},
        links={f"{S}/dep.py": "/opt/real/dep.py", "opt/alias.py": "/opt/idle/x.py"},
    )
    assert world.level("opt/real/dep.py") == "eager"
    assert world.level(f"{S}/dep.py") == "eager"


def test_a_directory_link_on_the_way_is_loaded() -> None:
    world = World(
        {**app("import pkg.mod\n"), "opt/real/__init__.py": "", "opt/real/mod.py": ""}, links={f"{S}/pkg": "/opt/real"}
    )
    assert world.level("opt/real/mod.py") == "eager"
    assert world.level(f"{S}/pkg") == "eager"
    assert world.level("opt/real") == "eager"


def test_absent_modules_that_code_looks_for() -> None:
    source = "try:\n    import optional\nexcept ImportError:\n    optional = None\nfrom pkg import maybe\ndef f():\n    import later\nf()\nimport importlib\nimportlib.util.find_spec('found')\n"
    world = World(site({"app.py": source, "pkg/__init__.py": ""}))
    assert world.absent(f"{S}/optional.py") == "eager"
    assert world.absent(f"{S}/optional/__init__.py") == "eager"
    assert world.absent(f"{S}/optional.cpython-312-x86_64-linux-gnu.so") == "eager"
    assert world.absent(f"{S}/pkg/maybe.py") == "eager"
    assert world.absent(f"{S}/later.py") == "deferred"
    assert world.absent(f"{S}/found.py") == "deferred"
    assert world.absent(f"{S}/never.py") == "unreached"
    assert world.absent("srv/optional.py") == "eager"


def test_absent_modules_that_would_shadow() -> None:
    world = World(app("import dep\n", **{"dep.py": ""}), env=["PYTHONPATH=/opt/first"])
    assert world.absent("srv/dep.py") == "eager"  # the working directory is asked first
    assert world.absent(f"{S}/dep/__init__.py") == "eager"
    assert world.absent("srv/os.py") == "eager"


def test_absent_data() -> None:
    files = site({"app/__init__.py": "", "app/__main__.py": "NAME = 'tuning.json'\n", "app/configs/a.json": "{}"})
    world = World(files, owned={"app": [f"{S}/app".encode()]})
    assert world.absent(f"{S}/app/configs/b.json") == "unknown"
    assert world.absent("opt/tuning.json") == "unknown"
    assert world.absent("usr/share/man/man1/y.1") == "outside"
    assert world.absent("opt/else.json") == "unreached"


def test_who_asks_for_a_version() -> None:
    source = "from importlib.metadata import version\nimport dep\nif version('dep') > '1':\n    pass\ndef f():\n    return version('dep')\n"
    files = app(source, **{"dep.py": "", "other.py": ""})
    hops = World(files).trace.roles["main"].asks_version("dep")
    assert [(hop.path, hop.line) for hop in hops] == [(f"{S}/app.py".encode(), 3)]
    assert not World(files).trace.roles["main"].asks_version("other")
    used = World(app("import dep\nprint(dep.__version__)\n", **{"dep.py": "__version__ = '1'\n"}))
    assert used.trace.roles["main"].asks_version("dep")


def test_data_that_only_a_dormant_function_names_is_dormant() -> None:
    files = {**app("def unused_zz():\n    return open('/opt/secret.bin')\n"), "opt/secret.bin": ""}
    assert World(files).level("opt/secret.bin") == "dormant"


def test_nothing_depends_on_the_order_of_hashes() -> None:
    files = site({"app.py": "import a, b\n", "a.py": "import c\n", "b.py": "import c\n", "c.py": ""})
    assert (
        World(files).chain(f"{S}/c.py")
        == World(files).chain(f"{S}/c.py")
        == [("app", 1, "the entry: -m app", "root"), ("a", 1, None, "import"), ("c", None, None, "import")]
    )


def test_data_around_a_program_of_nobody_may_be_read() -> None:
    files = {"srv/app/main.py": "import os, sys\nopen(os.path.join(os.path.dirname(__file__), sys.argv[1]))\n"}
    files |= {"srv/app/deep/table.json": "{}", "srv/other/table.json": "{}", "srv/app/never.py": ""}
    world = World(files, argv=("python3.12", "/srv/app/main.py"), cwd="/")
    assert world.level("srv/app/deep/table.json") == "unknown"
    assert world.level("srv/other/table.json") == "unreached"
    assert world.level("srv/app/never.py") == "unreached"


def test_a_directory_on_the_way_to_a_named_file_may_be_felt() -> None:
    world = World({**app("OPEN = '/data/deep/f.bin'\n"), "data/deep/f.bin": "", "data/else/": ""})
    assert [world.level(path) for path in ("data", "data/deep", "data/else")] == ["unknown", "unknown", "unreached"]


@pytest.mark.parametrize(
    ("path", "argv"),
    [
        ("root/.cache/huggingface/hub/f", ("python3.12", "-m", "app")),
        ("home/me/.triton/cache/k.cubin", ("python3.12", "-m", "app")),
        ("home/me/.bashrc", ("bash", "-c", "exec python3.12 -m app")),
    ],
)
def test_every_directory_on_the_way_to_what_may_be_read_may_be_felt(path: str, argv: tuple[str, ...]) -> None:
    """A lost execute bit of any of them bars the way: it was answered identical."""
    world = World(
        {**app(), path: "x", "srv/none/f": "x", "usr/bin/bash": "ELF"}, argv=argv, elves={"usr/bin/bash": ELF}
    )
    above = path.rpartition("/")[0]
    while above:
        assert world.level(above) == "unknown", above
        above = above.rpartition("/")[0]
    assert world.level("srv/none") == "unreached"


def test_a_file_in_the_home_directory_is_named_by_its_tilde() -> None:
    world = World(
        {**app("OPEN = '~/.foorc', '~/settings'\n"), "root/.foorc": "", "home/x/settings": "", "root/.bar": ""}
    )
    levels = [world.level(path) for path in ("root/.foorc", "home/x/settings", "root/.bar")]
    assert levels == ["unknown", "unknown", "unreached"]


@pytest.mark.parametrize("cwd", ["/srv", "/", "/root", "/work/dir"])
def test_a_bare_name_finds_what_lies_in_the_working_directory(cwd: str) -> None:
    directory = cwd.strip("/") + "/" if cwd != "/" else ""
    files = {**site({"app.py": "open('conf').read()\n"}), f"{directory}conf": "1", "elsewhere/conf": "1"}
    world = World(files, cwd=cwd)
    assert world.level(f"{directory}conf") == "unknown"
    assert world.level("elsewhere/conf") == "unreached"


def test_a_path_that_is_put_together_for_a_call_is_named() -> None:
    source = "import os\nopen(os.path.join(os.path.expanduser('~'), 'cfg')).read()\n"
    files = {**site({"app.py": source}), "root/cfg": "1", "root/quiet": "1"}
    world = World(files, env=("HOME=/root",))
    assert world.level("root/cfg") == "unknown"
    assert world.level("root/quiet") == "unreached"


@pytest.mark.parametrize("first", ["aaa", "zzz"])
def test_a_place_is_named_by_another_module_too_when_one_in_it_says_it(first: str) -> None:
    """A module's own place says where it is; the same text in a module elsewhere names that place."""
    inside, outside = ("aaa", "zzz") if first == "aaa" else ("zzz", "aaa")
    text = 'PLACE = "/opt/pkg"\n'
    files: dict[str, bytes | str] = {
        **site({"app.py": f"import sys\nimport {inside}\nimport {outside}\n", f"{outside}.py": text}),
        f"opt/pkg/{inside}.py": text,
        "opt/pkg/table.bin": b"1",
    }
    assert World(files, env=("PYTHONPATH=/opt/pkg",)).level("opt/pkg/table.bin") == "unknown"


@pytest.mark.parametrize("text", ["conf/a.ini", "a.ini", "/opt/conf/a.ini", "~/conf/a.ini"])
@pytest.mark.parametrize("target", ["real/b.cfg", "/opt/conf/real/b.cfg", "further/../real/b.cfg", "second"])
def test_what_is_named_by_a_link_is_the_file_that_the_link_leads_to(text: str, target: str) -> None:
    files = {
        **app(f"OPEN = '{text}'\n"),
        "opt/conf/real/b.cfg": "",
        "opt/conf/real/c.cfg": "",
        "opt/conf/further/x": "",
    }
    links = {"opt/conf/a.ini": target, "opt/conf/second": "real/b.cfg"}
    world = World(files, links=links)
    assert world.level("opt/conf/a.ini") == "unknown"
    assert world.level("opt/conf/real/b.cfg") == "unknown"
    assert world.level("opt/conf/real/c.cfg") == "unreached"
    assert (
        World({**files, **app()}, links={**links, "opt/conf/a.ini": "real/b.cfg"}).level("opt/conf/a.ini")
        == "unreached"
    )


def test_what_is_named_through_a_linked_directory_is_reached_at_any_depth() -> None:
    files = {**app("OPEN = 'conf/set/a.ini'\n"), "srv/real/one/b.cfg": "", "srv/real/one/c.cfg": ""}
    links = {"opt/conf": "../srv/real", "srv/real/set": "one", "srv/real/one/a.ini": "b.cfg", "srv/real/one/self": "."}
    world = World(files, links=links)
    assert world.level("srv/real/one/b.cfg") == "unknown"
    assert world.level("srv/real/one/c.cfg") == "unreached"


def test_links_to_directories_above_themselves_are_gone_through() -> None:
    files = {**app("OPEN = 'X11/b.cfg'\n"), "srv/real/one/b.cfg": "", "srv/real/one/c.cfg": ""}
    links = {"srv/real/one/X11": ".", "srv/real/one/up": "..", "srv/real/one/further": "../one"}
    world = World(files, links=links)
    assert world.level("srv/real/one/b.cfg") == "unknown"
    assert world.level("srv/real/one/c.cfg") == "unreached"


def test_a_file_with_more_names_through_links_than_are_looked_at_is_not_called_unreached() -> None:
    links = {f"srv/{number}": "real" for number in range(600)}
    assert World({**app(), "srv/real/b.cfg": ""}, links=links).level("srv/real/b.cfg") == "unknown"


def test_data_of_a_package_or_a_cache_that_is_a_link_is_read_where_the_link_leads() -> None:
    files = {
        **site({"app/__main__.py": "", "app/__init__.py": ""}),
        "usr/share/tables/t.json": "",
        "data/cache/kernel": "",
        "data/other/kernel": "",
        "etc/table.bin": "",
    }
    up = "../" * len(f"{S}/app".split("/"))
    links = {
        f"{S}/app/tables": f"{up}usr/share/tables",
        "root/.cache/triton": "../../data/cache",
        "work/t": "../etc/table.bin",
    }
    world = World(files, links=links, cwd="/work", owned={"app": [f"{S}/app".encode()]})
    assert world.level("usr/share/tables/t.json") == "unknown"
    assert world.level("data/cache/kernel") == "unknown"
    assert world.level("etc/table.bin") == "unknown"
    assert world.level("data/other/kernel") == "unreached"
