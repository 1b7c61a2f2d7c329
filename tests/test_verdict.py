"""The rules that make a verdict, each with the case that it must not swallow."""

from __future__ import annotations

from typing import Any

import pytest

from imgdiff.model import (
    Blindspot,
    Change,
    ConfigChange,
    Delta,
    Effect,
    Evidence,
    FileEntry,
    JudgedChange,
    Level,
    Profile,
    ProfileRole,
    ResolutionChange,
    Resolved,
    Status,
    Verdict,
)
from imgdiff.verdict import Findings, bears, judge, stronger

PROFILE = Profile(
    "vllm",
    "vllm",
    (
        ProfileRole("api-server", False, "makes prompts"),
        ProfileRole("engine-core", True, "schedules"),
        ProfileRole("worker", True, "computes"),
    ),
)
ROLES = ("engine-core", "worker")
ALL = ("api-server", *ROLES)


def change(effect: Effect = "code", status: Status = "modified", settle: str | None = None, **detail: Any) -> Change:
    entry = FileEntry(b"opt/x.py", "file", 0o644, 0, 0, 0, 1, b"\x00" * 32)
    return Change(b"opt/x.py", b"opt/x.py", status, entry, entry, delta=Delta(effect, "because", detail, settle))


def judged(what: Change, **levels: Level) -> JudgedChange:
    load = {role: Evidence(levels.get(role.replace("-", "_"), "unreached")) for role in ALL}
    return JudgedChange(what, load, {role: bears(what, evidence) for role, evidence in load.items()})


def verdict(*changes: JudgedChange, **fields: Any) -> Verdict:
    accepted = fields.pop("accepted", ())
    findings: dict[str, Any] = {"resolution": (), "config": (), "blindspots": (), "caveats": (), **fields}
    return judge(Findings(changes, **findings), PROFILE, ROLES, accepted)


@pytest.mark.parametrize(
    ("level", "outcome"),
    [
        ("recorded", "stands"),
        ("eager", "stands"),
        ("deferred", "undecided"),
        ("unknown", "undecided"),
        ("dormant", "undecided"),
        ("unreached", "killed"),
        ("outside", "killed"),
    ],
)
def test_each_level_and_what_it_leaves(level: Level, outcome: str) -> None:
    assert verdict(judged(change(), worker=level)).outcome == outcome


def test_nothing_differs_is_identical() -> None:
    assert verdict().outcome == "identical"


def test_noise_and_metadata_weigh_nothing_even_where_they_are_loaded() -> None:
    assert (
        verdict(judged(change("noise"), worker="eager"), judged(change("metadata"), worker="eager")).outcome == "killed"
    )


def test_an_open_question_is_undecided_even_at_the_weakest_proof() -> None:
    assert verdict(judged(change("metadata", settle="look"), worker="eager")).outcome == "undecided"
    assert verdict(judged(change("code", settle="look"), worker="eager")).outcome == "undecided"


def test_a_move_weighs_nothing_and_is_not_identical() -> None:
    assert verdict(judged(change(status="moved"), worker="eager")).outcome == "killed"


def test_attributes_bear_only_where_a_process_can_feel_them() -> None:
    assert verdict(judged(change(status="attributes", bears=True), worker="eager")).outcome == "undecided"
    assert verdict(judged(change(status="attributes", bears=False), worker="eager")).outcome == "identical"
    assert verdict(judged(change(status="attributes", bears=True))).outcome == "identical"


def test_a_change_without_a_delta_is_never_killed() -> None:
    entry = FileEntry(b"x", "file", 0o644, 0, 0, 0, 1)
    bare = Change(b"x", b"x", "modified", entry, entry)
    assert verdict(judged(bare, worker="eager")).outcome == "undecided"


def test_a_blindspot_blocks_killed_and_not_identical() -> None:
    spot = Blindspot("module", "it could not be parsed", b"opt/y.py", "b", ("worker",))
    assert verdict(judged(change()), blindspots=(spot,)).outcome == "undecided"
    assert verdict(blindspots=(spot,)).outcome == "identical"
    elsewhere = Blindspot("module", "it could not be parsed", b"opt/y.py", "b", ("api-server",))
    assert verdict(judged(change()), blindspots=(elsewhere,)).outcome == "killed"


def test_unread_content_is_never_identical() -> None:
    assert verdict(unread=True).outcome == "undecided"


@pytest.mark.parametrize(
    ("level", "outcome"), [("eager", "stands"), ("deferred", "undecided"), ("unreached", "killed")]
)
def test_a_name_that_leads_elsewhere(level: Level, outcome: str) -> None:
    item = ResolutionChange("module", "torch", "worker", level, Resolved(b"a", b"1"), Resolved(b"b", b"1"))
    assert verdict(resolution=(item,)).outcome == outcome


@pytest.mark.parametrize(
    ("weight", "outcome"), [("stands", "stands"), ("undecided", "undecided"), ("none", "identical")]
)
def test_a_config_that_steers(weight: Any, outcome: str) -> None:
    item = ConfigChange("env", "X", "1", "2", weight, "because")
    assert verdict(config=(item,)).outcome == outcome


def test_the_claim_has_the_worst_of_its_roles_and_others_are_named() -> None:
    found = verdict(judged(change(), api_server="eager", worker="dormant"))
    assert found.outcome == "undecided"
    assert found.roles["engine-core"].outcome == "killed"
    assert found.headline == "undecided for engine-core and worker; api-server: stands (it makes prompts)"
    assert found.settle


def test_accepting_dormant_is_the_first_caveat() -> None:
    what = change()
    accepted: tuple[Level, ...] = ("dormant",)
    load = {role: Evidence("dormant") for role in ALL}
    item = JudgedChange(what, load, {role: bears(what, load[role], accepted) for role in ALL})
    found = verdict(item, caveats=("Other.",), accepted=accepted)
    assert found.outcome == "killed"
    assert "--accept dormant" in found.caveats[0]


def test_a_source_that_was_only_read_as_text_leaves_it_open() -> None:
    what = change(kind="python")
    assert bears(what, Evidence("recorded", "opened")) == "undecided"
    assert bears(what, Evidence("recorded", "executed")) == "stands"


def test_the_stronger_evidence_wins() -> None:
    assert stronger(Evidence("dormant"), Evidence("eager")).level == "eager"
    assert stronger(Evidence("unknown"), Evidence("outside")).level == "unknown"
