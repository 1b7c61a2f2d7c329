"""What a recording does to a verdict: it raises what it shows, and settles by absence only where it may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import imgdiff
from imgdiff.errors import RecordingError, UsageError
from imgdiff.model import Evidence, JudgedChange, Report
from tests.recordings.made import event, write
from tests.recordings.story import MIDDLEWARE, PYTHON, SITE, STORY, Lines, processes, ran, sources


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


class Story:
    """The story's pair, compared with recordings."""

    def __init__(self, directory: Path, cache: Path) -> None:
        self._directory, self._cache = directory, cache
        self._count = 0

    def diff(self, *runs: tuple[Lines, ...], **options: Any) -> Report:
        traces = []
        for run in runs:
            self._count += 1
            traces.append(str(write(self._directory / str(self._count), *run)))
        return imgdiff.diff(str(STORY / "a"), str(STORY / "b"), traces=traces, cache_dir=self._cache, jobs=1, **options)


@pytest.fixture
def story(tmp_path: Path, cache: Path) -> Story:
    return Story(tmp_path, cache)


def middleware(report: Report) -> JudgedChange:
    return next(each for each in report.changes if each.change.path == MIDDLEWARE.encode())


def evidence(report: Report, role: str = "engine-core") -> Evidence:
    return middleware(report).load[role]


def test_the_story_is_undecided_alone_and_killed_with_its_recording(story: Story) -> None:
    alone, report = story.diff(), story.diff(processes())
    assert alone.verdict.outcome == "undecided"
    assert report.verdict.outcome == "killed"
    assert report.verdict.confidence == "recorded"
    assert {role: report.roles[role].evidence for role in ("api-server", "engine-core", "worker")} == {
        "api-server": "recorded",
        "engine-core": "recorded",
        "worker": "recorded",  # it lives in the engine core
    }
    assert evidence(report, "api-server").level == "recorded"
    assert evidence(report, "api-server").how == "executed"
    assert evidence(report).level == "dormant"
    assert evidence(report).settled
    assert any("not loaded in the recorded run" in reason for reason in report.verdict.reasons)


def test_the_report_says_of_what_run_and_when(story: Story) -> None:
    text = " ".join(story.diff(processes()).verdict.caveats)
    assert "speaks for b, and for that run alone" in text
    assert "vllm serve" in text
    assert "2025-12-02 10:06:50 UTC" in text
    assert "complete for Python modules" in text


def test_what_ran_stands(story: Story) -> None:
    front, engine = processes()
    report = story.diff((front, [*engine, ran(MIDDLEWARE, sources("b")[MIDDLEWARE])]))
    assert report.verdict.outcome == "stands"
    assert report.verdict.confidence == "recorded"
    assert (evidence(report).level, evidence(report).how) == ("recorded", "executed")


def test_what_was_read_as_text_alone_is_undecided(story: Story) -> None:
    front, engine = processes()
    report = story.diff((front, [*engine, event("open", file="/" + MIDDLEWARE, mode="r")]))
    assert report.verdict.outcome == "undecided"
    assert (evidence(report).level, evidence(report).how) == ("recorded", "opened")


def without(lines: Lines, word: str) -> Lines:
    return [line for line in lines if line["event"] != word]


def unseen_child(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    child = event("spawn", call="subprocess.Popen", executable=PYTHON, argv=["python", "-m", "x"], env="inherited")
    return front, [*engine, child]


def hidden_child(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    child = event("spawn", call="subprocess.Popen", executable=PYTHON, argv=["python"], env="empty-of-recorder")
    came = [{**engine[0], "pid": 30, "parent": 20, "argv": ["python"], "time": engine[0]["time"] + 1}]
    return front, [*engine, child], [*came, *engine[2:]]


def unknown_program(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    child = event("spawn", call="subprocess.Popen", executable="/opt/x", argv=["/opt/x"], env="inherited")
    return front, [*engine, child]


def shell_command(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    argv = ["/bin/sh", "-c", "ldconfig -p | python3 -"]
    return front, [*engine, event("spawn", call="subprocess.Popen", executable="/bin/sh", argv=argv, env="inherited")]


def forked_child(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return front, [*engine, event("fork")]


def second_engine(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return [*front, next(line for line in front if line["event"] == "spawn")], engine


def lost_parent(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    del front
    return (engine,)


def cut(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return front, [*engine, {"event": "exec"}, {"nothing": True}]


def noted(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return front, [*engine, event("note", what="a module", reason="its name is no text")]


def replaced(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return front, [*engine, event("spawn", call="os.exec", executable=PYTHON, argv=["python"], env="inherited")]


def no_opens(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return front, [{**engine[0], "coverage": ["python", "maps"]}, *engine[1:]]


def untitled(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    lines = without(engine, "title")
    return front, [line for line in lines if "/v1/engine/core.py" not in line.get("file", "")], lines


def no_digests(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return front, [{**line, "sha256": None} if "sha256" in line else line for line in engine]


def forked_engine(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    front = [*without(front, "spawn"), event("fork")]
    return front, [{**engine[0], "how": "fork"}, *engine[1:]]


def from_elsewhere(front: Lines, engine: Lines) -> tuple[Lines, ...]:
    return front, [*engine, event("exec", file="/mnt/plugins/patch.py", sha256="ab" * 32)]


@pytest.mark.parametrize(
    "spoil",
    [
        unseen_child,
        hidden_child,
        unknown_program,
        shell_command,
        forked_child,
        second_engine,
        lost_parent,
        cut,
        noted,
        replaced,
        no_opens,
        untitled,
        no_digests,
        forked_engine,
        from_elsewhere,
    ],
)
def test_absence_settles_nothing_where_something_could_have_gone_unseen(story: Story, spoil: Any) -> None:
    report = story.diff(spoil(*processes()))
    assert report.verdict.outcome == "undecided", report.verdict.reasons
    assert report.verdict.roles["engine-core"].outcome == "undecided"
    assert report.verdict.confidence == "static"


def by_fork(front: Lines, engine: Lines, *functions: str, watched: bool = True) -> tuple[Lines, ...]:
    """The engine core as a fork of the server: nothing runs again in it but functions."""
    words = ["python", "origins", "maps", "open", *(["functions"] if watched else [])]
    ran_here = [event("function", file=f"/{path}") for path in (f"{SITE}/vllm/v1/engine/core.py", *functions)]
    begin = {**engine[0], "how": "fork", "coverage": words}
    return [*without(front, "spawn"), event("fork")], [begin, event("title", title="VLLM::EngineCore"), *ran_here]


def test_what_is_inherited_is_settled_where_starts_of_functions_were_seen(story: Story) -> None:
    report = story.diff(by_fork(*processes()))
    assert report.verdict.roles["engine-core"].outcome == "killed", report.verdict.reasons
    assert evidence(report).level == "dormant"


def test_what_is_inherited_proves_nothing_without_them(story: Story) -> None:
    report = story.diff(by_fork(*processes(), watched=False))
    assert report.verdict.roles["engine-core"].outcome == "undecided"
    assert evidence(report).level == "dormant"  # no evidence of loading either


def test_a_function_that_started_after_the_fork_stands(story: Story) -> None:
    report = story.diff(by_fork(*processes(), MIDDLEWARE))
    assert report.verdict.roles["engine-core"].outcome == "stands"
    assert evidence(report).level == "recorded"


def test_a_worker_that_ran_nowhere_here_is_not_settled(story: Story) -> None:
    front, engine = processes()  # as under Ray, whose workers are other containers' processes
    engine = [line for line in engine if "_worker.py" not in line.get("file", "")]
    engine = [line for line in engine if "multiproc_executor.py" not in line.get("file", "")]
    report = story.diff((front, engine))
    assert report.verdict.roles["engine-core"].outcome == "killed"
    assert report.verdict.roles["worker"].outcome == "undecided"


@pytest.mark.parametrize("recorder", ["/", "", "/opt/venv", "/opt"])
def test_a_recorder_that_says_it_lies_in_the_image_hides_nothing(story: Story, recorder: str) -> None:
    front, engine = processes(recorder=recorder)
    report = story.diff((front, [*engine, ran(MIDDLEWARE, sources("b")[MIDDLEWARE])]))
    assert report.verdict.outcome == "stands"


def test_every_recording_of_a_role_must_be_complete(story: Story) -> None:
    assert story.diff(processes(), unseen_child(*processes())).verdict.outcome == "undecided"
    assert story.diff(processes(), processes("a")).verdict.outcome == "killed"


def test_children_that_load_no_python_are_no_gap(story: Story) -> None:
    front, engine = processes()
    child = event("spawn", call="subprocess.Popen", executable="/usr/bin/lscpu", argv=["lscpu"], env="inherited")
    assert story.diff((front, [*engine, child])).verdict.outcome == "killed"


def test_what_must_run_and_is_not_shown_is_said_and_undecided(story: Story) -> None:
    front, engine = processes()
    front = [line for line in front if MIDDLEWARE not in line.get("file", "")]
    report = story.diff((front, engine), roles=["api-server"])
    assert report.verdict.outcome == "undecided"
    assert evidence(report, "api-server").disputed
    assert any("does not show it" in reason for reason in report.verdict.reasons)


def test_one_made_on_another_image_is_refused(story: Story) -> None:
    front, engine = processes()
    other = ran("opt/venv/lib/python3.12/site-packages/torch/__init__.py", b"another torch")
    lines = (front, [other if "/torch/__init__.py" in line.get("file", "") else line for line in engine])
    with pytest.raises(RecordingError, match=r"another image.*torch/__init__\.py"):
        story.diff(lines)
    report = story.diff(lines, trace_any_image=True)
    assert report.verdict.outcome == "undecided"
    assert any("other bytes" in spot.reason for spot in report.blindspots)


def test_one_of_another_architecture_is_refused(story: Story) -> None:
    front, engine = processes(machine="aarch64")
    with pytest.raises(RecordingError, match="aarch64"):
        story.diff((front, engine))


def test_one_of_other_software_is_refused(story: Story) -> None:
    front, engine = processes()
    moved = [{**line, "file": "/elsewhere" + line["file"]} if "file" in line else line for line in engine]
    with pytest.raises(RecordingError, match="another image"):
        story.diff(([front[0]], moved))


def test_a_role_that_the_profile_lacks_is_wrong_usage(tmp_path: Path, cache: Path) -> None:
    directory = write(tmp_path / "r", *processes())
    with pytest.raises(UsageError, match="decoder"):
        imgdiff.diff(str(STORY / "a"), str(STORY / "b"), traces=[f"decoder={directory}"], cache_dir=cache, jobs=1)


def test_a_report_is_recalled_for_the_same_recording_alone(tmp_path: Path, cache: Path) -> None:
    directory = write(tmp_path / "r", *processes())

    def outcome() -> str:
        report = imgdiff.diff(str(STORY / "a"), str(STORY / "b"), traces=[str(directory)], cache_dir=cache, jobs=1)
        return report.verdict.outcome

    assert outcome() == outcome() == "killed"
    engine = sorted(directory.iterdir())[1]
    with engine.open("a") as file:
        file.write(json.dumps(ran(MIDDLEWARE, sources("b")[MIDDLEWARE])) + "\n")
    assert outcome() == "stands"


@pytest.mark.parametrize("kept", ["resource_tracker", "EngineCore"])
def test_one_process_of_a_run_tells_nothing_of_the_roles_of_others(cache: Path, kept: str) -> None:
    """The recording shipped with the story, of which one file was given."""
    shipped = Path(__file__).parents[2] / "fixtures" / "story"
    files = [file for file in sorted((shipped / "recording").iterdir()) if kept in file.read_text(encoding="utf-8")]
    report = imgdiff.diff(
        str(shipped / "a"), str(shipped / "b"), traces=[str(files[0])], cache_dir=cache, roles=["api-server"]
    )
    assert report.verdict.outcome != "killed"
    if kept == "resource_tracker":
        assert any("no recorded process ran what api-server starts with" in text for text in report.verdict.caveats)


def test_a_role_that_a_recording_contradicts_is_refused(cache: Path) -> None:
    """It was taken at the user's word: what the API server ran stood against the worker."""
    shipped = Path(__file__).parents[2] / "fixtures" / "story"
    traces = [f"worker={shipped / 'recording'}"]
    with pytest.raises(UsageError, match=r"worker=.* calls itself '.*EngineCore.*', as those of engine-core do"):
        imgdiff.diff(str(shipped / "a"), str(shipped / "b"), traces=traces, cache_dir=cache)
