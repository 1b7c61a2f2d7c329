"""Reports made by hand for the formatters' tests."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from imgdiff.model import (
    Bears,
    Blindspot,
    Change,
    ConfigChange,
    Delta,
    Effect,
    Evidence,
    FileEntry,
    Hop,
    ImageSummary,
    Integrity,
    JudgedChange,
    Level,
    Owner,
    OwnerRow,
    OwnerTally,
    Report,
    ResolutionChange,
    Resolved,
    RoleInfo,
    RoleVerdict,
    Status,
    Verdict,
)

ROLES = ("api-server", "engine-core", "worker")
HOSTILE = b"opt/\x1b[31m<script>alert(1)</script>|`@someone`\n![x](http://evil) \xff\xe2\x80\xae.py"


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def judged(
    path: bytes,
    level: Level = "unreached",
    weight: Bears = "none",
    *,
    status: Status = "modified",
    effect: Effect = "code",
    reason: str = "The syntax trees differ: f.",
    owner: str = "vllm",
) -> JudgedChange:
    a = FileEntry(path, "file", 0o644, 0, 0, 0, 3, digest("a"))
    b = FileEntry(path, "file", 0o644, 0, 0, 0, 4, digest("b"))
    owners = (Owner("wheel", owner, "1", b"opt"),)
    chain = (Hop("vllm.v1", b"opt/vllm/v1.py", 3, "f", "root"), Hop("vllm.x", path, None, None, "dormant"))
    change = Change(path, path, status, a, b, owners, owners, Delta(effect, reason, {"kind": "python"}))
    return JudgedChange(
        change,
        {role: Evidence(level, None, chain if level not in ("unreached", "outside") else ()) for role in ROLES},
        dict.fromkeys(ROLES, weight),
        (owner,),
        (owner,),
    )


def row(name: str, *, modified: int = 0, files: int = 10, loaded: int = 0) -> OwnerRow:
    a, b = (Owner("wheel", name, version, b"opt") for version in ("1.0", "1.1" if modified else "1.0"))
    root = hashlib.sha256(name.encode()).hexdigest()
    tally = OwnerTally(a, b, files, files, files - modified, modified, 0, 0, 0, 0, 0, root, root)
    return OwnerRow(name, "wheel", tally, loaded)


def report(*changes: JudgedChange, **fields: Any) -> Report:
    layer = ("sha256:" + "1" * 64, "sha256:" + "2" * 64, 1234, "application/vnd.oci.image.layer.v1.tar+gzip")
    image = ImageSummary("fixtures/a", "oci", "sha256:" + "3" * 64, None, "linux/amd64", (layer,), 20, 12_345_678)
    verdict = Verdict(
        "undecided",
        "static",
        "undecided for engine-core and worker; api-server: stands (it makes prompts)",
        ("engine-core: 1 differing file could be loaded only by functions that nothing reached refers to: /opt/x.py.",),
        ("Not covered: the host's kernel.",),
        ("engine-core", "worker"),
        {role: RoleVerdict("undecided", "static", ("because",)) for role in ROLES},
        ("Record the failing run.",),
    )
    made = Report(
        version="0.1.0",
        argv=("imgdiff", "a b", "c"),
        pythons=("3.11",),
        image_a=image,
        image_b=msgspec.structs.replace(image, reference="fixtures/b"),
        profile="vllm",
        roles={role: RoleInfo(("vllm.v1.engine.core",), "static") for role in ROLES},
        verdict=verdict,
        owners=(row("torch"), row("vllm", modified=len(changes), files=max(10, len(changes)), loaded=1)),
        changes=changes,
        resolution=(
            ResolutionChange("module", "torch", "worker", "eager", Resolved(b"a/torch.py", digest("x")), None),
        ),
        config=(ConfigChange("env", "OMP_NUM_THREADS", None, "1", "undecided", "no list knows this name"),),
        integrity=(Integrity("a", "record-mismatch", "torch", b"opt/torch.so", "its bytes are not those of RECORD"),),
        blindspots=(Blindspot("module", "it can't be parsed", HOSTILE, "b", ("worker",)),),
        mtime_only=7,
    )
    return msgspec.structs.replace(made, **fields)
