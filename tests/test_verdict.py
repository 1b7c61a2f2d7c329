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
    Outcome,
    Profile,
    ProfileRole,
    ResolutionChange,
    Resolved,
    RoleVerdict,
    Status,
    Verdict,
)
from imgdiff.verdict import Findings, _headline, bears, judge, stronger

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
    assert found.headline == "undecided for worker, killed for engine-core; api-server: stands (it makes prompts)"
    assert found.settle


OUTCOMES = ("stands", "undecided", "killed", "identical")


@pytest.mark.parametrize("core", OUTCOMES)
@pytest.mark.parametrize("worker", OUTCOMES)
@pytest.mark.parametrize("server", OUTCOMES)
def test_the_headline_gives_each_role_its_own_outcome(core: Outcome, worker: Outcome, server: Outcome) -> None:
    """Whatever the outcomes, no role is said to have another one's, and the worst of the claim comes first."""
    outcomes = {"api-server": server, "engine-core": core, "worker": worker}
    found = _headline(ROLES, {role: RoleVerdict(each, "static", ()) for role, each in outcomes.items()}, PROFILE)
    claim, _, others = found.partition("; ")
    if core == worker:
        assert claim == f"{core} for engine-core and worker"
    else:
        first, second = sorted((("engine-core", core), ("worker", worker)), key=lambda pair: OUTCOMES.index(pair[1]))
        assert claim == f"{first[1]} for {first[0]}, {second[1]} for {second[0]}"
    assert others == (f"api-server: {server} (it makes prompts)" if server in ("stands", "undecided") else "")


def test_three_roles_are_listed_with_commas() -> None:
    outcomes: dict[str, Outcome] = dict.fromkeys(ALL, "killed")
    found = _headline(ALL, {role: RoleVerdict(each, "static", ()) for role, each in outcomes.items()}, PROFILE)
    assert found == "killed for api-server, engine-core and worker"


def test_what_is_true_of_several_roles_is_said_once() -> None:
    found = verdict(judged(change(), engine_core="eager", worker="eager"))
    assert found.reasons == ("engine-core and worker: 1 differing file is loaded at start: /opt/x.py.",)
    assert found.roles["worker"].reasons == ("worker: 1 differing file is loaded at start: /opt/x.py.",)
    apart = verdict(judged(change(), engine_core="eager", worker="dormant"))
    assert [reason.partition(":")[0] for reason in apart.reasons] == ["engine-core", "worker"]


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([], "no file differs"),
        (["unreached"], "the one file that differs does not bear (never reached)."),
        (["unreached"] * 2, "none of the 2 differing files bears (never reached)."),
        (["outside", "unreached", "unreached"], "none of the 3 differing files bears: 2 never reached, 1 read by no"),
        (["eager"] * 2, "2 differing files are loaded at start: /opt/x.py, /opt/x.py."),
        (["deferred"], "1 differing file can be loaded later, by code that is reached: /opt/x.py."),
        (["unknown"] * 4, "4 differing files may be read: the trace can't tell: /opt/x.py, /opt/x.py, /opt/x.py and 1"),
    ],
)
def test_sentences_count_in_singular_and_plural(levels: list[Level], said: str) -> None:
    moved = ConfigChange("labels", "x", "1", "2", "none", "because")
    found = verdict(*(judged(change(), worker=level) for level in levels), config=(moved,) if levels else ())
    reasons = " ".join(found.roles["worker"].reasons)
    if not levels:
        spot = Blindspot("module", "it could not be parsed", b"opt/y.py", "b", ("api-server",))
        env = ResolutionChange("module", "x", "worker", "unreached", Resolved(b"a", b"1"), Resolved(b"b", b"1"))
        reasons = " ".join(verdict(blindspots=(spot,), resolution=(env,)).roles["worker"].reasons)
    assert said in reasons


@pytest.mark.parametrize("level", ["deferred", "unknown", "dormant"])
def test_undecided_always_says_what_would_settle_it(level: Level) -> None:
    name = ResolutionChange("library", "libc.so.6", "worker", level, Resolved(b"a", b"1"), None)
    env = ConfigChange("env", "LANG", "C", "en_US", "undecided", "because")
    spot = Blindspot("module", "it could not be parsed", b"opt/y.py", "b", ("worker",))
    for found in (
        verdict(judged(change(), worker=level)),
        verdict(resolution=(name,)),
        verdict(config=(env,)),
        verdict(judged(change()), blindspots=(spot,)),
        verdict(judged(change("metadata", settle="Read the lines."), worker="eager")),
        verdict(judged(change(status="attributes", bears=True), worker="eager")),
    ):
        assert found.outcome == "undecided"
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
