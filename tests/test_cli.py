"""The command line as a user has it: exit codes, outputs, interruptions, caches, and one clear sentence for trouble."""

from __future__ import annotations

import inspect
import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

import imgdiff
from imgdiff import about
from imgdiff.pipeline import Options
from tests.support.command import PYTHON, Ran, Shell, layout
from tests.support.images import Member, put_json, tar_bytes, write_index, write_layout

ENGINE = "srv/app/engine.py"
SCHEMA = json.loads((Path(__file__).parents[1] / "docs/report-v1.schema.json").read_text())
CHANGED = {ENGINE: PYTHON[ENGINE].replace(b"BIAS = 3", b"BIAS = 4")}
SECRETS = ("s3cr3t-token", "s3cr3t-key", "s3cr3t-password", "s3cr3t-label")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with images: ``a``, and others that differ from it as their name says."""
    top = tmp_path_factory.mktemp("images")
    layout(top / "a")
    layout(top / "same", compression="zstd")
    layout(top / "comment", {ENGINE: PYTHON[ENGINE].replace(b"# scores", b"# words")})
    layout(top / "code", CHANGED)
    layout(top / "data", {"etc/app/settings.json": b'{"scale": 3}\n'})
    return top


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def refused(ran: Ran) -> str:
    """Check that a run ended with exit 2, nothing on stdout, and one sentence (with a hint); return it."""
    assert (ran.code, ran.out) == (2, ""), ran
    first, *rest = ran.err.splitlines()
    assert first.startswith("imgdiff: "), ran.err
    assert len(rest) <= 1, ran.err
    assert all(line.startswith("  hint: ") for line in rest), ran.err
    assert "\x1b" not in ran.err
    return ran.err


# --------------------------------------------------------------------------------------------------------------------
# Exit codes
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "code", "word"),
    [("same", 0, "IDENTICAL"), ("comment", 0, "KILLED"), ("code", 1, "STANDS"), ("data", 3, "UNDECIDED")],
)
def test_exit_codes(other: str, code: int, word: str, images: Path, shell: Shell) -> None:
    ran = shell.run(images / "a", images / other, "--no-cache")
    assert ran.code == code
    assert ran.out.startswith(word)
    assert "\x1b" not in ran.out
    assert max(len(line) for line in ran.out.splitlines() if "sha256" not in line and "/" not in line) <= 80
    assert ran.err == ""  # the report is on stdout, and nobody watches the progress
    assert shell.left() == []


def test_the_early_list_goes_to_stderr_and_changes_no_report(images: Path, shell: Shell, tmp_path: Path) -> None:
    name = b"etc/app/\x1b[2Kline\nbreak.json".decode()
    layout(tmp_path / "other", {**CHANGED, name: b"{}"})
    plain = shell.run(images / "a", tmp_path / "other", "--no-cache")
    ran = shell.run(images / "a", tmp_path / "other", "--no-cache", "--early")
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert ran.err.splitlines() == [
        "added, data (unowned:/etc): /etc/app/\\x1b[2Kline\\x0abreak.json: The file is in b only.",
        f"modified, code (unowned:/srv): /{ENGINE}: The syntax trees differ: <module>.",
        "2 files differ; who loads what is traced now",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "imgdiff A B"),
        (("a",), "Missing argument 'B'"),
        (("a", "b", "--format", "html5"), "html5"),
        (("a", "b", "--jobs", "0"), "--jobs"),
        (("a", "b", "--role", "worker"), "no role 'worker'"),
        (("a", "b", "--profile", "nope"), "no engine profile 'nope'"),
        (("a", "b", "--only", "nobody"), "no owner is called 'nobody'"),
        (("a", "b", "--format", "json", "--format", "markdown"), "only one report can go to stdout"),
        (("a", "b", "-o", "report.xyz"), "names no format"),
        (("a", "b", "-o", "no/such/place.json"), "its directory is not there"),
        (("a", "b", "-o", "x.json", "-o", "./x.json"), "two reports can't go to one file"),
        (("a", "b", "--platform", "linux"), "platform"),
        (("a", "b", "--platform", "linux/s390x"), "linux/s390x"),
        (("a", "b", "--entry", "python 'x"), "No closing quotation"),
        (("a", "b", "--entry", " "), "--entry is empty"),
        (("a", "a"), "both references are the same"),
        (("./a", "a"), "both references are the same"),
        (("oci:./a/", "oci:a"), "both references are the same"),
        (("a", "nowhere"), "'nowhere'"),
        (("a", "b", "--cache-dir", "file"), "file"),
        (("a", "b", "--cache-dir", ""), "it is empty"),
    ],
)
def test_wrong_usage_is_one_sentence(arguments: tuple[str, ...], words: str, images: Path, shell: Shell) -> None:
    for name, image in (("a", "a"), ("b", "code")):
        (shell.directory / name).symlink_to(images / image)
    (shell.directory / "file").write_text("no directory")
    assert words in refused(shell.fork(*arguments))
    assert not list(shell.directory.glob("*.json"))


# --------------------------------------------------------------------------------------------------------------------
# Bad input: images that can't be read
# --------------------------------------------------------------------------------------------------------------------


def layer_blob(directory: Path) -> Path:
    return max((directory / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)


def truncated(directory: Path) -> None:
    blob = layer_blob(layout(directory, CHANGED))
    blob.write_bytes(blob.read_bytes()[:-100])


def tampered(directory: Path) -> None:
    blob = layer_blob(layout(directory, CHANGED))
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)


def tampered_plain(directory: Path) -> None:
    blob = layer_blob(layout(directory, CHANGED, compression="none"))
    blob.write_bytes(blob.read_bytes().replace(b"BIAS = 4", b"BIAS = 5"))


def missing(directory: Path) -> None:
    layer_blob(layout(directory, CHANGED)).unlink()


def garbage(directory: Path) -> None:
    write_layout(directory, [b"this is no tar, whatever its digest says " * 100], {})


def no_image(directory: Path) -> None:
    directory.write_bytes(b"no image at all\n")


def empty(directory: Path) -> None:
    directory.mkdir()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncated, "bytes"),
        (tampered, ""),
        (tampered_plain, "digest"),
        (missing, ""),
        (garbage, "tar"),
        (no_image, "image"),
        (empty, "image"),
    ],
)
def test_an_image_that_can_not_be_read_is_one_sentence(
    damage: Callable[[Path], None], words: str, images: Path, shell: Shell
) -> None:
    damage(shell.directory / "bad")
    said = refused(shell.fork(images / "a", "bad", "-o", "report.json"))
    assert words in said.lower()
    assert "bad" in said or "layer" in said.lower() or "blob" in said.lower()
    assert not (shell.directory / "report.json").exists()
    assert not (shell.cache / "imgdiff/layers").exists() or len(list((shell.cache / "imgdiff/layers").iterdir())) <= 2


# --------------------------------------------------------------------------------------------------------------------
# Bad input: images that can be read, and hold what can't
# --------------------------------------------------------------------------------------------------------------------

HOSTILE = (
    Member("../outside.py", b"x"),
    Member("/absolute.py", b"x"),
    Member("srv/app/\x1b[31mred\x1b[0m.py", b"x = 1\n"),
    Member("srv/app/<script>alert(1)</script>.html", b"x"),
    Member("srv/app/`code` **bold** @someone [link](http://evil.example).md", b"x"),
    Member("srv/app/new\nline.txt", b"x"),
    Member(b"srv/app/\xff\xfe.bin", b"x"),
    Member("srv/app/\u202etxt.exe", b"x"),
)


def report_of(shell: Shell, *arguments: str | Path, codes: tuple[int, ...] = (0, 1, 3)) -> dict[str, object]:
    """Run, check the JSON against its schema, and return it."""
    ran = shell.fork(*arguments, "--no-cache", "--format", "json")
    assert ran.code in codes, ran
    report: dict[str, object] = json.loads(ran.out)
    jsonschema.validate(report, SCHEMA)
    return report


def blindspots(report: dict[str, object]) -> dict[str, list[str]]:
    spots = report["blindspots"]
    assert isinstance(spots, list)
    return {str(spot["path"]): spot["roles"] for spot in spots}


def outcome(report: dict[str, object]) -> str:
    verdict = report["verdict"]
    assert isinstance(verdict, dict)
    return str(verdict["outcome"])


def test_hostile_names_reach_every_format_escaped(images: Path, shell: Shell) -> None:
    layout(shell.directory / "b", members=HOSTILE)
    outputs = [word for name in ("r.json", "r.md", "r.txt") for word in ("-o", name)]
    ran = shell.fork(images / "a", "b", "--no-cache", "-vv", *outputs)
    assert ran.code in (1, 3)
    report = json.loads((shell.directory / "r.json").read_bytes())
    jsonschema.validate(report, SCHEMA)
    assert any("outside" in path for path in blindspots(report))
    terminal, markdown = ((shell.directory / name).read_text() for name in ("r.txt", "r.md"))
    for text in (terminal, markdown, ran.err):
        assert not any(character in text for character in ("\x1b", "\u202e", "\xff"))
        assert "\\x1b[31mred" in text or text is ran.err
    assert "<script>" not in markdown.replace("`/srv/app/<script>alert(1)</script>.html`", "")
    assert (shell.directory.parent / "outside.py").exists() is False


def test_symlink_loops(images: Path, shell: Shell) -> None:
    loops = (
        Member("srv/app/one", type="symlink", target="two"),
        Member("srv/app/two", type="symlink", target="one"),
        Member("srv/self", type="symlink", target="self/self"),
        Member("usr/lib/python3.11/loop", type="symlink", target=".."),
    )
    layout(shell.directory / "b", CHANGED, members=loops)
    assert outcome(report_of(shell, images / "a", "b")) == "stands"


def test_ten_thousand_nested_directories(images: Path, shell: Shell) -> None:
    """Longer than any path that Linux takes: what lies there is said to be left out, and equality is not claimed."""
    deep = "/".join(["d"] * 10_000)
    nested = (Member(f"srv/{deep}/file.py", b"x = 1\n"),)
    layout(shell.directory / "b", members=nested)
    report = report_of(shell, images / "a", "b")
    assert outcome(report) == "undecided"
    assert blindspots(report)[f"/srv/{deep}/file.py"] == ["main"]
    layout(shell.directory / "c", CHANGED, members=nested)
    assert outcome(report_of(shell, images / "a", "c")) == "stands"
    short = "/".join(["d"] * 2_000)
    layout(shell.directory / "d", CHANGED, members=(Member(f"srv/{short}/file.py", b"x = 1\n"),))
    changes = report_of(shell, images / "a", "d")["changes"]
    assert isinstance(changes, list)
    assert f"/srv/{short}/file.py" in [change["path"]["b"] for change in changes]


INFO = "usr/lib/python3.11/site-packages/thing-1.0.dist-info"
RUBBISH = (
    b'\x00\x01\xff\n"unclosed,sha256=,\nthing.py,sha256=nothing,minus one\n'
    b"../../../../../../etc/shadow,,\n" + b"," * 1000 + b"\n\n" + b"x" * 100_000 + b",sha256=a,1\n"
)


def test_a_record_with_rubbish(images: Path, shell: Shell) -> None:
    files = {
        f"{INFO}/RECORD": RUBBISH,
        f"{INFO}/METADATA": b"\xff\xfeName: \nVersion\n\n",
        "usr/lib/python3.11/site-packages/thing.py": b"X = 1\n",
    }
    layout(shell.directory / "b", files)
    report = report_of(shell, images / "a", "b")
    assert len(report["changes"]) == 3  # type: ignore[arg-type]  # it is a list, by its schema


PARENTHESES = b"X = " + b"(" * 10_000 + b"1" + b")" * 10_000 + b"\n"


@pytest.mark.parametrize(
    "source", [b"def broken(:\n    pass\n", PARENTHESES, b"\x00\x01\x02", b"# coding: klingon\nX = 1\n"]
)
def test_a_source_that_can_not_be_parsed_is_a_blindspot_where_it_is_reached(
    source: bytes, images: Path, shell: Shell
) -> None:
    """It is the same in both images: what it imports is not known, so that nothing is killed."""
    reached = {ENGINE: b"from app import bad\n" + PYTHON[ENGINE], "srv/app/bad.py": source}
    layout(shell.directory / "a", reached)
    layout(shell.directory / "b", {**reached, "srv/app/unused.py": b"X = 2\n"})
    report = report_of(shell, "a", "b")
    assert outcome(report) == "undecided"
    assert blindspots(report)["/srv/app/bad.py"] == ["main"]


def test_a_source_that_can_not_be_parsed_and_differs_is_code(images: Path, shell: Shell) -> None:
    layout(shell.directory / "a", {"srv/app/engine.py": PARENTHESES})
    layout(shell.directory / "b", {"srv/app/engine.py": PARENTHESES + b"#\n"})
    assert outcome(report_of(shell, "a", "b")) in ("stands", "undecided")


@pytest.mark.parametrize(
    ("where", "known"), [("program header", False), ("section header", True), ("everything", False)]
)
def test_an_elf_file_with_wild_offsets(where: str, known: bool, images: Path, shell: Shell) -> None:
    """No loader reads section headers; without program headers nobody knows what is loaded."""
    data = bytearray(PYTHON["usr/bin/python3.11"])
    if where == "program header":
        data[32:40] = b"\xf0" * 8
    elif where == "section header":
        data[40:48] = b"\xf0" * 8
    else:
        data[16:] = b"\xff" * (len(data) - 16)
    layout(shell.directory / "b", {"usr/bin/python3.11": bytes(data)})
    assert outcome(report_of(shell, images / "a", "b")) in ("stands", "undecided")
    layout(shell.directory / "c", {"usr/bin/python3.11": bytes(data), "srv/app/unused.py": b"X = 2\n"})
    report = report_of(shell, "b", "c")
    assert outcome(report) == ("killed" if known else "undecided")
    assert ("/usr/bin/python3.11" in blindspots(report)) != known


# --------------------------------------------------------------------------------------------------------------------
# Outputs
# --------------------------------------------------------------------------------------------------------------------


def test_several_formats_in_one_run_and_the_summary_on_stderr(images: Path, shell: Shell) -> None:
    formats = ["--format", "json", "--format", "markdown", "--format", "terminal"]
    ran = shell.run(images / "a", images / "code", *formats, "-o", "r.json", "-o", "r.md")
    assert ran.code == 1
    assert ran.out.startswith("STANDS for main")
    assert ran.err == "stands for main [static evidence]\n"
    report = json.loads((shell.directory / "r.json").read_bytes())
    jsonschema.validate(report, SCHEMA)
    assert outcome(report) == "stands"
    assert "stands" in (shell.directory / "r.md").read_text().splitlines()[0].lower()
    (shell.directory / "mine").touch()
    modes = {(shell.directory / name).stat().st_mode for name in ("r.json", "r.md", "mine")}
    assert len(modes) == 1  # as any file that a user makes


def test_the_ending_of_a_file_tells_its_format_and_quiet_is_quiet(images: Path, shell: Shell) -> None:
    (shell.directory / "old.md").write_text("old")
    (shell.directory / "link.md").symlink_to("old.md")
    ran = shell.run(images / "a", images / "comment", "-q", "-o", "link.md", "-o", "/dev/null", "--format", "markdown",
                    "--format", "json")  # fmt: skip
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (shell.directory / "link.md").is_symlink()
    assert "killed" in (shell.directory / "old.md").read_text()
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert not [path for path in shell.directory.iterdir() if "part" in path.name]


@pytest.mark.parametrize(
    ("formats", "outputs", "stdout"),
    [
        (("terminal", "json"), ("r.json",), "terminal"),
        (("json", "markdown", "terminal"), ("r.txt", "r.md"), "json"),
        (("markdown", "json"), ("r.json", "report"), None),
        (("json", "markdown"), ("report", "r.md"), None),
        (("terminal", "json"), ("report.xyz",), "json"),
    ],
)
def test_of_several_formats_the_one_that_a_file_is_named_after_goes_there(
    formats: tuple[str, ...], outputs: tuple[str, ...], stdout: str | None, images: Path, shell: Shell
) -> None:
    starts = {"terminal": "KILLED for main", "json": '{\n  "schema"', "markdown": "### imgdiff"}
    endings = {"r.json": "json", "r.md": "markdown", "r.txt": "terminal"}
    words = [word for name in formats for word in ("--format", name)]
    ran = shell.run(images / "a", images / "comment", *words, *(word for name in outputs for word in ("-o", name)))
    assert ran.code == 0
    left = [name for name in formats if name not in {stdout, *(endings.get(output) for output in outputs)}]
    for output in outputs:
        text = (shell.directory / output).read_text()
        assert text.startswith(starts[endings[output] if output in endings else left.pop()]), output
    assert ran.out.startswith(starts[stdout]) if stdout is not None else not ran.out


def test_an_output_that_can_not_be_written_leaves_nothing(images: Path, shell: Shell) -> None:
    (shell.directory / "there.json").mkdir()
    said = shell.fork(images / "a", images / "code", "--format", "terminal", "--format", "json", "-o", "there.json")
    assert (said.code, said.out) == (2, "")
    assert "there.json" in said.err
    full = Path("/dev/full")
    if full.exists():
        ran = shell.fork(images / "a", images / "code", "--format", "json", "--format", "terminal", "-o", full)
        assert (ran.code, ran.out) == (2, "")
        assert "No space left" in refused(ran)


def test_only_loaded_and_verbose_narrow_or_widen_what_people_see(images: Path, shell: Shell) -> None:
    layout(shell.directory / "b", {**CHANGED, "var/log/build.log": b"tuesday\n"})
    whole = shell.fork(images / "a", "b", "--cache-dir", "c").out
    verbose = shell.fork(images / "a", "b", "--cache-dir", "c", "-v").out
    only = shell.fork(images / "a", "b", "--cache-dir", "c", "--only", "unowned:/var").out
    loaded = shell.fork(images / "a", "b", "--cache-dir", "c", "--loaded").out
    assert "build.log" in whole
    assert "engine.py" in whole
    assert "build.log" in only
    assert "srv/app/engine.py:" not in only.partition("Owners")[2]
    assert "build.log" not in loaded
    assert len(verbose) > len(whole)
    assert len({text.splitlines()[0] for text in (whole, verbose, only, loaded)}) == 1
    narrowed = [
        json.loads(shell.fork(images / "a", "b", "--cache-dir", "c", "--format", "json", *narrow).out)
        for narrow in ((), ("--loaded",), ("--only", "unowned:/var"))
    ]
    assert len({json.dumps({**report, "imgdiff": None}) for report in narrowed}) == 1


def on_terminal(shell: Shell, *arguments: str | Path, **env: str) -> str:
    """Run with stdout and stderr on a terminal; return what it shows."""
    leader, follower = pty.openpty()
    process = shell.start(*arguments, env={"TERM": "xterm", **env}, stdout=follower, stderr=follower)
    os.close(follower)
    shown = bytearray()
    try:
        while piece := os.read(leader, 65536):
            shown += piece
    except OSError:  # EIO: the other end is closed
        pass
    os.close(leader)
    process.communicate()
    return shown.decode()


def test_colour_is_for_terminals_and_no_color_takes_it_away(images: Path, shell: Shell) -> None:
    assert "\x1b[1;31mSTANDS" in on_terminal(shell, images / "a", images / "code", "-q")
    plain = on_terminal(shell, images / "a", images / "code", "-q", NO_COLOR="1")
    assert "STANDS" in plain
    assert "\x1b" not in plain


def test_a_closed_pipe_ends_it_quietly(images: Path, shell: Shell) -> None:
    read, write = os.pipe()
    os.close(read)
    process = shell.start(images / "a", images / "code", "--no-cache", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (2, b"")
    assert shell.left() == []


# --------------------------------------------------------------------------------------------------------------------
# Interruptions
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def endless(shell: Shell) -> Iterator[Path]:
    """An image with a layer that takes minutes to read: a file of 200 GB that is a hole on disk."""
    directory = shell.directory / "endless"
    size = 200 << 30
    head = tar_bytes([Member("zeros", b"")])[:512]
    info = bytearray(head)
    info[124:136] = b"\x80" + size.to_bytes(11, "big")
    info[148:156] = b" " * 8
    info[148:156] = b"%06o\0 " % sum(info)
    digest = "0" * 64
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)
    with (blobs / digest).open("wb") as blob:
        blob.write(info)
        blob.truncate(512 + size + 1024)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    vendor = "application/vnd.oci.image."
    layer = {"mediaType": vendor + "layer.v1.tar", "digest": f"sha256:{digest}", "size": 512 + size + 1024}
    manifest = {"schemaVersion": 2, "mediaType": vendor + "manifest.v1+json", "layers": [layer],
                "config": put_json(directory, config, vendor + "config.v1+json")}  # fmt: skip
    write_index(directory, [put_json(directory, manifest, vendor + "manifest.v1+json")])
    yield directory
    (blobs / digest).unlink()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("cached", [True, False])
def test_an_interrupt_leaves_nothing_behind(
    signum: signal.Signals, cached: bool, endless: Path, images: Path, shell: Shell
) -> None:
    where = ["--cache-dir", "kept"] if cached else ["--no-cache"]
    process = shell.start(images / "a", endless, *where, "--jobs", "2", "-o", "report.json", start_new_session=True)
    kept = shell.directory / "kept/layers"
    while not any(kept.iterdir() if cached and kept.is_dir() else shell.temporary.iterdir()):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.2)
    os.killpg(process.pid, signum)  # as a terminal sends it
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (-signum, b"")
    assert err.strip() == b"interrupted"
    assert shell.left() == []
    assert not (shell.directory / "report.json").exists()
    assert not [path for path in shell.directory.rglob("*") if path.name.endswith((".part", ".tmp"))]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_worker_processes_run_leaves_nothing_behind(signum: signal.Signals, shell: Shell) -> None:
    names = [f"large{number}" for number in range(4)]  # so much that processes are started for it
    engine = {"srv/app/engine.py": PYTHON["srv/app/engine.py"] + f"from app import {', '.join(names)}\n".encode()}
    for name in names:
        engine[f"srv/app/{name}.py"] = f"NAME = {name!r}\n".encode() + b"#" * 1_500_000
    layout(shell.directory / "a", engine)
    layout(shell.directory / "b", {**engine, "srv/app/large0.py": b"NAME = 1\n" + b"#" * 1_500_000})
    process = shell.start("a", "b", "--no-cache", "--jobs", "2", "-o", "report.json", start_new_session=True)
    while not any(shell.temporary.glob("pymp-*")):  # what multiprocessing makes for them
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signum)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err.strip()) == (-signum, b"", b"interrupted")
    assert shell.left() == []
    assert not (shell.directory / "report.json").exists()


SLOW_IMPORT = """
import sys, time
class Slow:
    def find_spec(self, name, *_):
        if name == "imgdiff.cli":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
from imgdiff.__main__ import main
main()
"""


def test_an_interrupt_while_the_parts_are_imported_ends_it_without_a_word() -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW_IMPORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == (b"", b"")
    assert process.returncode == -signal.SIGINT


def test_the_package_itself_is_imported_at_once() -> None:
    """Nothing is prepared for Ctrl-C before ``main``, and the package comes before that."""
    code = "import sys; before = set(sys.modules); import imgdiff; print(*sorted(set(sys.modules) - before))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["__future__", "imgdiff", "imgdiff.errors"]
    assert imgdiff.__version__ == about.VERSION
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        getattr(imgdiff, "nope")  # noqa: B009


def test_all_that_the_command_line_can_ask_for_can_be_asked_for_from_python() -> None:
    given = set(inspect.signature(imgdiff.diff).parameters) - {"a", "b", "early"}  # a call, and no part of the question
    names = {"trace_any_image": "any_image"}
    assert {names.get(name, name) for name in given} == set(Options.__struct_fields__) - {
        "argv",
        "said",
    }  # made of the others


def test_nohup_is_left_as_it_is(endless: Path, images: Path, shell: Shell) -> None:
    command = ["nohup", sys.executable, "-m", "imgdiff", str(images / "a"), str(endless), "--no-cache", "-q"]
    process = subprocess.Popen(command, env=shell.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any(shell.temporary.iterdir()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None
    process.terminate()
    assert process.wait() == -signal.SIGTERM
    assert shell.left() == []


# --------------------------------------------------------------------------------------------------------------------
# The cache
# --------------------------------------------------------------------------------------------------------------------


def test_cache_info_clear_and_prune(images: Path, shell: Shell) -> None:
    assert shell.fork(images / "a", images / "code", "--cache-dir", "c").code == 1
    info = dict(line.split(": ") for line in shell.run("cache", "info", "--cache-dir", "c").out.splitlines())
    assert (info["layers"], int(info["facts"].replace(",", "")) > 0) == ("2", True)
    pruned = shell.fork("cache", "prune", "--max-size", "0", "--cache-dir", "c")
    assert (pruned.code, pruned.out) == (0, "")
    assert pruned.err.startswith("freed ")
    assert pruned.err.endswith(" MB (2 layers) in c\n")
    assert "layers: 0\n" in shell.fork("cache", "info", "--cache-dir", "c").out
    assert shell.fork(images / "a", images / "code", "--cache-dir", "c").code == 1
    assert shell.fork("cache", "clear", "--cache-dir", "c", "-q") == Ran(0, "", "")
    assert "layers: 0\n" in shell.fork("cache", "info", "--cache-dir", "c").out


def test_the_report_is_the_same_whatever_the_jobs_and_the_state_of_the_cache(images: Path, shell: Shell) -> None:
    (shell.directory / "x").symlink_to(images / "a")
    layout(shell.directory / "y", {**CHANGED, **{f"srv/app/m{number}.py": b"X = 1\n" for number in range(50)}})
    arguments = ("x", "y", "--format", "json", "--cache-dir", "c")
    cold = shell.run(*arguments)
    warm = shell.run(*arguments)
    assert warm == cold
    reports = [
        cold.out,
        shell.run(*arguments, "--jobs", "1").out,
        shell.fork("x", "y", "--format", "json", "--no-cache").out,
    ]
    assert len({json.dumps({**json.loads(text), "imgdiff": None}, indent=1) for text in reports}) == 1


def test_a_torn_cache_is_never_believed(images: Path, shell: Shell) -> None:
    arguments = (images / "a", images / "code", "--format", "json", "--cache-dir", "c")
    first = shell.fork(*arguments)
    for path in sorted((shell.directory / "c").rglob("*")):
        if path.is_file():
            data = bytearray(path.read_bytes())
            for at in range(len(data) // 3, len(data), max(1, len(data) // 7)):
                data[at] ^= 0x55
            path.write_bytes(data)
    again = shell.fork(*arguments)
    assert (again.code, again.out) == (first.code, first.out), again.err


# --------------------------------------------------------------------------------------------------------------------
# Secrets
# --------------------------------------------------------------------------------------------------------------------


def test_secrets_are_in_no_format(shell: Shell) -> None:
    for name, suffix in (("a", "1"), ("b", "2")):
        layout(
            shell.directory / name,
            CHANGED if name == "b" else {},
            env={
                "HF_TOKEN": SECRETS[0] + suffix,
                "OPENAI_API_KEY": SECRETS[1] + suffix,
                "https_proxy": f"http://user:{SECRETS[2]}{suffix}@proxy.example:3128",
                "PIP_INDEX_URL": f"https://me:{SECRETS[2]}{suffix}@index.example/simple",
            },
            entrypoint=("python3.11", "-m", "app", "--api-key", SECRETS[1] + suffix),
        )
    outputs = [word for name in ("r.json", "r.md", "r.txt") for word in ("-o", name)]
    entry = f"python3.11 -m app --token={SECRETS[0]}"
    ran = shell.fork("a", "b", "--no-cache", "-vv", *outputs)
    also = shell.fork("a", "b", "--no-cache", "-vv", "--entry", entry)
    json_ = shell.fork("a", "b", "--no-cache", "--entry", entry, "--format", "json")
    assert ran.code == also.code == 1
    texts = [(shell.directory / name).read_text() for name in ("r.json", "r.md", "r.txt")]
    for text in (*texts, ran.out, ran.err, also.out, json_.out):
        assert not [secret for secret in SECRETS if secret in text]
    assert all("HF_TOKEN" in text for text in texts)


@pytest.mark.parametrize("command", [["info"], ["clear"], ["prune"]])
def test_a_directory_that_was_never_a_cache_is_left_alone(shell: Shell, tmp_path: Path, command: list[str]) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "rows.sqlite").write_text("mine")
    done = shell.fork("cache", *command, "--cache-dir", str(mine))
    assert (done.code, done.out) == (2, "")
    assert "is no cache of imgdiff" in done.err
    assert [(path.name, path.read_text()) for path in mine.iterdir()] == [("rows.sqlite", "mine")]
