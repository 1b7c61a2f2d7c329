"""Which copy a library's name leads to, and every place that the loader searches."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from imgdiff.engines import load_profiles
from imgdiff.errors import UsageError
from imgdiff.model import ElfFacts, ImageConfig, LookupAnswer
from imgdiff.trace.libraries.needed import LibraryResolver
from imgdiff.trace.lookup import loads, look_up
from imgdiff.trace.tracer import Tracer
from tests.support.elf import Elf
from tests.trace.library_image import LOADER, Content, LibraryImage, Machine
from tests.trace.test_ld_cache import new_cache
from tests.trace.test_libraries import (
    LIBC,
    MUSL,
    PLACES_OF_LIBRARIES,
    PROGRAM,
    RPATH,
    RUNPATH,
    compiled,
    library,
    loader,
    program,
    system,
)
from tests.trace.world import World, make_attribution


def tracer(image: LibraryImage, argv: tuple[str, ...], env: Mapping[str, str], directory: str = "/") -> Tracer:
    config = ImageConfig(env=tuple(f"{name}={value}" for name, value in env.items()), cmd=argv, working_dir=directory)
    attribution = make_attribution(image.tree, environments=())
    return Tracer(image.tree, attribution, image, config, load_profiles()[-1], None, "a")


def ask(
    files: Mapping[str, Content],
    name: str = "libx.so.1",
    env: Mapping[str, str] | None = None,
    asking: str | None = None,
    libc: Mapping[str, Content] = LIBC,
) -> LookupAnswer:
    """Return the answer to the program, which is also held against the search that the trace uses."""
    image = LibraryImage({**libc, **files})
    (answer,) = look_up(tracer(image, (f"/{PROGRAM}",), env or {}), name, ["library"], asking)
    resolver = LibraryResolver(image.tree, image, env, PROGRAM.encode())
    found = resolver.resolve(name, None if asking is None else asking.encode()).candidates
    if not any(place.source == "loaded already" for place in answer.places):
        assert [each.file for each in answer.winners] == [each.path for each in found if not each.beyond]
    return answer


def won(answer: LookupAnswer) -> list[str]:
    return [each.path.decode() for each in answer.winners]


def shown(answer: LookupAnswer) -> list[tuple[str, str | None, list[str]]]:
    """Every place that holds something; what wins has an arrow before it."""
    return [
        (
            place.source,
            None if place.directory is None else place.directory.decode(),
            [("=> " if each.wins else "") + each.path.decode() for each in place.candidates],
        )
        for place in answer.places
        if place.candidates
    ]


COPIES: dict[str, Content] = {
    **{
        f"{place}/libx.so.1": library("libx.so.1")
        for place in ("opt/rpath", "opt/env", "opt/runpath", "opt/b", "opt/a", "usr/lib64")
    },
    "etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n",
    "etc/ld.so.conf.d/20-b.conf": b"# b\n/opt/b\n",
    "etc/ld.so.conf.d/10-a.conf": b"/opt/a\n",
}


def test_the_order_of_the_search_and_who_says_so() -> None:
    answer = ask({**COPIES, PROGRAM: program(runpath="/opt/runpath")}, env={"LD_LIBRARY_PATH": "/none:/opt/env"})
    assert shown(answer) == [
        ("LD_LIBRARY_PATH", "opt/env", ["=> opt/env/libx.so.1"]),
        ("RUNPATH", "opt/runpath", ["opt/runpath/libx.so.1"]),
        ("ldconfig", "opt/a", ["opt/a/libx.so.1"]),
        ("ldconfig", "opt/b", ["opt/b/libx.so.1"]),
        ("ldconfig", "usr/lib64", ["usr/lib64/libx.so.1"]),
        ("default path", "usr/lib64", ["usr/lib64/libx.so.1"]),
    ]
    places = {(place.source, place.directory): place for place in answer.places}
    assert not places["LD_LIBRARY_PATH", b"none"].present
    assert places["LD_LIBRARY_PATH", b"opt/env"].said == "LD_LIBRARY_PATH in the image's ENV"
    assert places["RUNPATH", b"opt/runpath"].by == PROGRAM.encode()
    assert (places["ldconfig", b"opt/b"].by, places["ldconfig", b"opt/b"].line) == (b"etc/ld.so.conf.d/20-b.conf", 2)
    assert answer.asked_by == (f"/{PROGRAM}, in /",)


def test_an_rpath_comes_before_the_environment() -> None:
    answer = ask({**COPIES, PROGRAM: program(rpath="/opt/rpath")}, env={"LD_LIBRARY_PATH": "/opt/env"})
    assert [place.source for place in answer.places][:2] == ["RPATH", "LD_LIBRARY_PATH"]
    assert won(answer) == ["opt/rpath/libx.so.1"]


def test_the_stored_cache_and_a_rebuilt_one() -> None:
    stored = new_cache([(b"libx.so.1", b"/opt/b/libx.so.1", 0x0303, 0)])
    answer = ask({**COPIES, PROGRAM: program(), "etc/ld.so.cache": stored})
    assert shown(answer)[:2] == [
        ("ld.so.cache", None, ["=> opt/b/libx.so.1"]),
        ("ldconfig", "opt/a", ["=> opt/a/libx.so.1"]),
    ]
    assert any("one made anew by ldconfig to /opt/a/libx.so.1" in note for note in answer.notes)


def test_directories_for_certain_cpus_stand_beside_the_plain_file() -> None:
    files = {**COPIES, PROGRAM: program(), "opt/env/glibc-hwcaps/x86-64-v3/libx.so.1": library("libx.so.1")}
    answer = ask(files, env={"LD_LIBRARY_PATH": "/opt/env"})
    assert won(answer) == ["opt/env/glibc-hwcaps/x86-64-v3/libx.so.1", "opt/env/libx.so.1"]
    assert answer.winners[0].note == "for certain CPUs: glibc-hwcaps/x86-64-v3"


def test_what_the_search_passes_over_is_said() -> None:
    files: dict[str, Content] = {
        "opt/env/libx.so.1": Elf(soname="libx.so.1", machine=183),
        "opt/text/libx.so.1": b"INPUT(x)\n",
        "usr/lib64/libx.so.1": library("libx.so.1"),
        PROGRAM: program(),
    }
    answer = ask(files, env={"LD_LIBRARY_PATH": "/opt/env:/opt/text"})
    notes = {each.path: each.note for place in answer.places for each in place.candidates}
    assert notes[b"opt/env/libx.so.1"] == "passed over: it is for another machine"
    assert notes[b"opt/text/libx.so.1"] == "it is no ELF file: the loader ends here with an error"
    assert won(answer) == ["opt/text/libx.so.1"]


@pytest.mark.parametrize("content", [b"INPUT(x)\n", b""])
def test_the_loader_looks_no_further_than_at_what_is_no_library(content: bytes) -> None:
    """... so nothing behind it wins; a file for another CPU, or one that may not be looked at, ends no search."""
    files: dict[str, Content] = {"opt/bad/libx.so.1": content, **COPIES, PROGRAM: program()}
    answer = ask(files, env={"LD_LIBRARY_PATH": "/opt/bad:/opt/env"})
    assert won(answer) == ["opt/bad/libx.so.1"]
    assert any("/opt/bad/libx.so.1 is no library" in note for note in answer.notes)
    variant = {"opt/env/glibc-hwcaps/x86-64-v3/libx.so.1": content}
    assert won(ask({**COPIES, PROGRAM: program(), **variant}, env={"LD_LIBRARY_PATH": "/opt/env"})) == [
        "opt/env/glibc-hwcaps/x86-64-v3/libx.so.1",
        "opt/env/libx.so.1",
    ]


def test_a_directory_of_the_name_ends_the_search() -> None:
    files: dict[str, Content] = {"opt/bad/libx.so.1/x": b"", **COPIES, PROGRAM: program()}
    answer = ask(files, env={"LD_LIBRARY_PATH": "/opt/bad:/opt/env"})
    assert won(answer) == []
    assert "/opt/bad/libx.so.1 is no library" in answer.notes[0]
    assert answer.places[0].candidates[0].note == "it is a directory: the loader ends here with an error"


def test_what_is_loaded_already_answers_before_the_search_comes_to_what_is_no_library() -> None:
    for bad in ({"opt/rpath/libx.so.1": b""}, {"opt/rpath/libx.so.1/x": b""}):
        kept = {path: each for path, each in COPIES.items() if path != "opt/rpath/libx.so.1"}
        files: dict[str, Content] = {
            **kept,
            **bad,
            PROGRAM: program("libx.so.1", runpath="/usr/lib64"),
            "opt/ask.so": library("ask.so", rpath="/opt/rpath:/usr/lib64"),
        }
        answer = ask(files, asking="/opt/ask.so")
        assert won(answer) == ["usr/lib64/libx.so.1"]
        assert answer.places[0].source == "loaded already"
        assert not any("no library" in note for note in answer.notes)


def test_the_rpaths_of_what_has_loaded_the_one_that_asks_count() -> None:
    files = {
        **COPIES,
        PROGRAM: program("liba.so"),
        "usr/lib64/liba.so": library("liba.so", "libb.so", rpath="/opt/rpath"),
        "usr/lib64/libb.so": library("libb.so"),
    }
    assert won(ask(files, asking="/usr/lib64/liba.so")) == ["opt/rpath/libx.so.1"]
    answer = next(iter(look_up(tracer(LibraryImage({**LIBC, **files}), (f"/{PROGRAM}",), {}), "libx.so.1", ["library"],
                               "/usr/lib64/libb.so")))  # fmt: skip
    assert won(answer) == ["opt/rpath/libx.so.1"]


def test_a_library_that_is_preloaded_by_a_name_answers_to_that_name() -> None:
    """... whatever its SONAME is."""
    files = {**COPIES, PROGRAM: program(), "opt/env/libx.so.1": library("libother.so")}
    files["opt/ask.so"] = library("ask.so", runpath="/opt/runpath")
    env = {"LD_LIBRARY_PATH": "/opt/env", "LD_PRELOAD": "libx.so.1"}
    del files["usr/lib64/libx.so.1"]
    assert won(ask(files, env=env, asking="/opt/ask.so")) == ["opt/env/libx.so.1"]
    files[PROGRAM] = program(rpath="/opt/rpath")
    files["opt/rpath/libx.so.1"] = library("libother.so")
    answer = ask(files, env={"LD_PRELOAD": "libx.so.1"}, asking="/opt/ask.so")
    assert won(answer) == ["opt/rpath/libx.so.1"]
    assert answer.places[0].source == "loaded already"


def test_the_first_of_two_preloaded_files_answers_for_their_soname() -> None:
    answer = ask({**COPIES, PROGRAM: program()}, env={"LD_PRELOAD": "/opt/b/libx.so.1:/opt/a/libx.so.1"})
    assert won(answer) == ["opt/b/libx.so.1"]


def test_what_a_program_needs_that_is_no_python_is_told_of_its_role() -> None:
    files = {**COPIES, PROGRAM: program("libx.so.1", rpath="/opt/a")}
    asked = tracer(LibraryImage({**LIBC, **files}), (f"/{PROGRAM}",), {})
    answers = look_up(asked, "libx.so.1", ["library"])
    profile = load_profiles()[-1]
    found = loads(tracer(LibraryImage({**LIBC, **files}), (f"/{PROGRAM}",), {}).run(), profile, "libx.so.1",
                  [role.name for role in profile.roles], answers)  # fmt: skip
    assert [(each.level, each.file) for each in found] == [("eager", b"opt/a/libx.so.1")]


def test_a_preloaded_library_answers_for_its_soname() -> None:
    files = {**COPIES, "opt/pre/libother.so": library("libx.so.1"), PROGRAM: program()}
    answer = ask(files, env={"LD_PRELOAD": "/opt/pre/libother.so"})
    assert won(answer) == ["opt/pre/libother.so"]
    assert answer.places[0].source == "loaded already"
    assert answer.winners[0].note == "LD_PRELOAD in the image's ENV preloads it"
    by_file = ask({**files, "etc/ld.so.preload": b"# x\n/opt/pre/libother.so\n"})
    assert by_file.winners[0].note == "/etc/ld.so.preload, line 2, preloads it"
    # The image has no cache: whether ldconfig makes one at start is open.
    assert won(ask(files)) == ["opt/a/libx.so.1", "usr/lib64/libx.so.1"]


def test_what_the_program_has_loaded_answers_to_those_that_come_later() -> None:
    files = {
        **COPIES,
        PROGRAM: program("libx.so.1", runpath="/opt/runpath"),
        "opt/later.so": library("later.so", "libx.so.1", rpath="/opt/rpath"),
    }
    answer = ask(files, asking="/opt/later.so")
    assert won(answer) == ["opt/runpath/libx.so.1"]
    assert answer.winners[0].note == f"/{PROGRAM} needs it, and /{PROGRAM} is the program"
    alone = ask({**files, PROGRAM: program()}, asking="/opt/later.so")
    assert won(alone) == ["opt/rpath/libx.so.1"]
    assert alone.asked_by == (f"/{PROGRAM}, in /, for /opt/later.so",)
    assert not alone.notes
    assert "DT_NEEDED" in ask({**files, PROGRAM: program()}, "liby.so", asking="/opt/later.so").notes[0]


def test_a_file_that_asks_must_be_an_elf_file() -> None:
    with pytest.raises(UsageError, match="not in the image"):
        ask({PROGRAM: program()}, asking="/none")
    with pytest.raises(UsageError, match="no ELF file"):
        ask({PROGRAM: program(), "opt/x": b"text"}, asking="/opt/x")


def test_copies_that_no_place_has_are_named() -> None:
    answer = ask({"opt/lost/libx.so.1": library("libx.so.1"), PROGRAM: program()})
    assert won(answer) == []
    assert [each.path for each in answer.elsewhere] == [b"opt/lost/libx.so.1"]


def test_a_path_is_taken_as_it_is() -> None:
    answer = ask({**COPIES, PROGRAM: program()}, "/opt/b/libx.so.1")
    assert [place.source for place in answer.places] == ["path"]
    assert won(answer) == ["opt/b/libx.so.1"]


def test_musl_with_its_path_file_and_its_own_names() -> None:
    main = Elf(interpreter="/lib/ld-musl-x86_64.so.1", runpath="/opt/none")
    answer = ask({PROGRAM: main, "etc/ld-musl-x86_64.path": b"/usr/lib\n/usr/local/lib\n"}, libc=MUSL)
    assert [(place.source, place.directory) for place in answer.places] == [
        ("RPATH", b"opt/none"),
        ("musl's path", b"usr/lib"),
        ("musl's path", b"usr/local/lib"),
    ]
    assert answer.places[1].by == b"etc/ld-musl-x86_64.path"
    assert won(answer) == ["usr/lib/libx.so.1"]
    own = ask({PROGRAM: main}, "libc.musl-x86_64.so.1", libc=MUSL)
    assert [place.source for place in own.places] == ["musl's own"]


def test_a_script_that_sets_the_library_path() -> None:
    """A line that runs in any case decides; of one that may not run, both copies count."""
    main = ElfFacts(62, 64, needed=("libx.so.1",), interpreter=LOADER, python=True)
    copy = ElfFacts(62, 64, soname="libx.so.1")
    files: dict[str, bytes | str] = {
        "opt/start.sh": "#!/bin/sh\n. /opt/vars.sh\nexec python3.12 -m app\n",
        "opt/x/libx.so.1": "",
        "usr/lib64/libx.so.1": "",
        "usr/bin/sh": "",
        "usr/lib/python3.12/site-packages/app.py": "",
    }
    elves = {
        "usr/bin/python3.12": main,
        "usr/bin/sh": ElfFacts(62, 64, interpreter=LOADER),
        "opt/x/libx.so.1": copy,
        "usr/lib64/libx.so.1": copy,
    }

    def run(script: str) -> tuple[LookupAnswer, World]:
        world = World(
            {**files, "opt/vars.sh": script},
            argv=["/opt/start.sh"],
            env=["PATH=/usr/bin:/bin"],
            links={"bin/sh": "/usr/bin/sh"},
            elves=elves,
        )
        return next(each for each in world.look_up("libx.so.1") if "python" in each.asked_by[0]), world

    answer, world = run("export LD_LIBRARY_PATH=/opt/x:${LD_LIBRARY_PATH:-}\n")
    assert won(answer) == ["opt/x/libx.so.1"]
    assert (answer.places[0].by, answer.places[0].line) == (b"opt/vars.sh", 1)
    assert (world.level("opt/x/libx.so.1"), world.level("usr/lib64/libx.so.1")) == ("eager", "unreached")
    answer, world = run('if test -n "$X"; then\n  LD_LIBRARY_PATH=/opt/x:$LD_LIBRARY_PATH\nfi\n')
    assert won(answer) == ["opt/x/libx.so.1", "usr/lib64/libx.so.1"]
    assert answer.places[0].said == "LD_LIBRARY_PATH in a script that the entry runs, if that line runs"
    assert (world.level("opt/x/libx.so.1"), world.level("usr/lib64/libx.so.1")) == ("eager", "eager")


def test_what_ctypes_opens_is_looked_for_by_its_extension_module() -> None:
    """... to which a RUNPATH of the program does not speak: the trace took the program's copy alone."""
    extension = "usr/lib/python3.12/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so"
    copy = ElfFacts(62, 64, soname="libx.so.1")
    world = World(
        {
            "usr/lib/python3.12/site-packages/app.py": "import ctypes\nctypes.CDLL('libx.so.1')\n",
            "usr/lib/python3.12/ctypes.py": "import _ctypes\n",
            extension: "",
            "opt/own/libx.so.1": "",
            "usr/lib64/libx.so.1": "",
        },
        env=["PATH=/usr/bin:/bin"],
        elves={
            "usr/bin/python3.12": ElfFacts(62, 64, interpreter=LOADER, python=True, runpath="/opt/own"),
            extension: ElfFacts(62, 64, python=True),
            "opt/own/libx.so.1": copy,
            "usr/lib64/libx.so.1": copy,
        },
    )
    (answer,) = world.look_up("libx.so.1")
    assert won(answer) == ["opt/own/libx.so.1"]
    assert f"ctypes opens it by /{extension}, which leads to /usr/lib64/libx.so.1" in answer.notes[0]
    assert (world.level("opt/own/libx.so.1"), world.level("usr/lib64/libx.so.1")) == ("deferred", "deferred")


# What ld.so itself says -----------------------------------------------------------------------------------------------

_SEARCHED = re.compile(r"search path=(\S*)\s*\((RPATH|RUNPATH|LD_LIBRARY_PATH)")


def searched(path: Path, name: str, environment: Mapping[str, str]) -> tuple[list[tuple[str, str]], str | None]:
    """Ask ld.so where it searches for a name, before its cache, and what it takes."""
    variables = {**environment, "LD_TRACE_LOADED_OBJECTS": "1", "LD_DEBUG": "libs"}
    done = subprocess.run([loader(), str(path)], capture_output=True, text=True, env=variables, check=False, cwd="/")
    found: list[tuple[str, str]] = []
    here = False
    for line in done.stderr.splitlines():
        if "find library=" in line:
            here = f"find library={name} " in line
        match = _SEARCHED.search(line) if here else None
        for directory in match[1].split(":") if match else ():
            plain = directory.partition("/glibc-hwcaps")[0]
            for legacy in ("/tls", "/haswell", "/avx512_1", "/x86_64"):
                plain = plain.partition(legacy)[0]
            if match and (match[2], plain) not in found:
                found.append((match[2], plain))
    taken = re.search(rf"{re.escape(name)} => (\S+)", done.stdout)
    return found, None if taken is None or taken[1] == "not" else os.path.realpath(taken[1])


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ((), ""),
        ((RPATH + "$ORIGIN/one:$ORIGIN/two",), ""),
        ((RPATH + "$ORIGIN/one",), "two"),
        ((RUNPATH + "$ORIGIN/one:$ORIGIN/two",), ""),
        ((RUNPATH + "$ORIGIN/one",), "two"),
        ((RUNPATH + "$ORIGIN/none:$ORIGIN/two",), "gone:three"),
    ],
)
def test_the_order_is_that_of_ld_so(tmp_path: Path, options: tuple[str, ...], environment: str) -> None:
    loader()
    root = tmp_path.resolve()
    one, _ = (compiled(root, f"{place}/libend.so", []) for place in ("one", "two"))
    (root / "three").mkdir()
    main = compiled(root, "main", [one], *options)
    env = {"LD_LIBRARY_PATH": ":".join(str(root / part) for part in environment.split(":"))} if environment else {}
    places, taken = searched(main, "libend.so", env)
    machine = Machine([*PLACES_OF_LIBRARIES, str(root)])
    machine.share(system())
    (answer,) = look_up(tracer(machine, (str(main),), env), "libend.so", ["library"])
    mine = [
        (place.source, "/" + place.directory.decode())
        for place in answer.places
        if place.source in ("RPATH", "RUNPATH", "LD_LIBRARY_PATH") and place.directory is not None
    ]
    assert mine[: len(places)] == places
    assert (answer.winners[0].file if answer.winners else None) == (None if taken is None else os.fsencode(taken)[1:])
