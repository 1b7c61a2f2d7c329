"""What to set so that an existing deployment is recorded: for docker run, compose, Kubernetes, or as variables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from imgdiff.errors import UsageError
from imgdiff.recorder.settings import OUT, PYTHON, STRACE, Tracer, loaders, traced, variables


class Described(msgspec.Struct, frozen=True):
    """A container that is to be recorded: where the recorder was exported to, and what is known of its image (its own
    variables and command; nothing where no image was named). ``tracer`` is None without system
    calls."""

    directory: Path
    reference: str | None = None
    image: str | None = None
    env: dict[str, str] = {}
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    tracer: Tracer | None = None

    def set(self) -> tuple[dict[str, str], list[str]]:
        """Return the variables, and the command in the tracer's hands (empty without one)."""
        found = variables(self.env, self.image)
        if self.tracer is None:
            return found, []
        argv = [*self.entrypoint, *self.command]
        if not argv:
            raise UsageError(
                "--syscalls stands before the container's command, which is not known",
                "name an image that has an entry point or command: imgdiff record --print-env --syscalls IMAGE",
            )
        command, outside = traced(argv, {**loaders(self.env), **found}, self.tracer)
        return outside, command

    def mounts(self) -> list[tuple[str, str, bool]]:
        """Return (path here, path in the container, whether it is only read)."""
        places = [("python", PYTHON, True), ("out", OUT, False)]
        if self.tracer is not None:
            places.append(("strace", STRACE, True))
        return [(str(self.directory / name), target, read_only) for name, target, read_only in places]


def printed(format_: str, described: Described) -> tuple[str, str]:
    """Return what to paste, and what to know of it. Raises UsageError for what a format can't say."""
    if format_ != "env" and any(char in str(described.directory) for char in ',"\n'):
        raise UsageError("the recorder's directory has a comma, quote or newline in its name", "export it elsewhere")
    text = FORMATS[format_](described)
    notes = [] if described.reference is not None else [_UNKNOWN]
    if format_ == "docker":
        notes.append(_BETWEEN if described.tracer is None else _WHOLE)
    if format_ == "env":
        notes.append(_MOUNT)
    return text, "\n".join(notes)


_UNKNOWN: Final = (
    "An image, or a deployment, that sets PYTHONPATH itself needs its value behind the one here, after a colon; "
    "imgdiff record --print-env IMAGE does that for an image's."
)

_BETWEEN: Final = "Put this between docker run and the image's name."
_WHOLE: Final = "Put this behind docker run and your own options: the image and the whole command stand at its end."
_MOUNT: Final = f"Mount python (only read) at {PYTHON} and out at {OUT}; docker run takes this as --env-file."


def _docker(described: Described) -> str:
    found, command = described.set()
    words = []
    for source, target, read_only in described.mounts():
        words += ["--mount", f"type=bind,source={source},target={target}{',readonly' if read_only else ''}"]
    for name, value in found.items():
        words += ["-e", f"{name}={value}"]
    if command:
        assert described.reference is not None
        words += ["--entrypoint", command[0], described.reference, *command[1:]]
    return shlex.join(words) + "\n"


def _compose(described: Described) -> str:
    found, command = described.set()
    lines = [
        "# docker compose -f compose.yaml -f THIS-FILE up; SERVICE is the name of yours",
        "services:",
        "  SERVICE:",
    ]
    if command:
        lines += [f"    entrypoint: {_list(_doubled(word) for word in command)}", "    command: []"]
    lines += ["    environment:", *(f"      {name}: {_text(_doubled(value))}" for name, value in found.items())]
    lines += ["    volumes:"]
    for source, target, read_only in described.mounts():
        lines += [
            "      - type: bind",
            f"        source: {_text(_doubled(source))}",
            f"        target: {_text(target)}",
        ]
        lines += ["        read_only: true"] if read_only else []
    return "\n".join(lines) + "\n"


def _kubernetes(described: Described) -> str:
    if described.tracer is not None:
        raise UsageError(
            "--syscalls has no form for Kubernetes: the tracer is too large for a ConfigMap",
            "leave --syscalls out, or copy the exported directory to the nodes and mount it (hostPath)",
        )
    found, _ = described.set()
    lines = [
        f"# kubectl create configmap imgdiff-recorder --from-file={shlex.quote(str(described.directory / 'python'))}",
        "# kubectl patch deployment NAME --patch-file THIS-FILE; CONTAINER is the name of yours",
        f"# kubectl cp POD:{OUT} recording -c CONTAINER, while the pod is there",
        "spec:",
        "  template:",
        "    spec:",
        "      containers:",
        "        - name: CONTAINER",
        "          env:",
    ]
    for name, value in found.items():
        escaped = value.replace("$(", "$$(")
        lines += [f"            - name: {name}", f"              value: {_text(escaped)}"]
    lines += ["          volumeMounts:"]
    for volume, target, read_only in (("recorder", PYTHON, True), ("recording", OUT, False)):
        lines += [f"            - name: imgdiff-{volume}", f"              mountPath: {target}"]
        lines += ["              readOnly: true"] if read_only else []
    lines += [
        "      volumes:",
        "        - name: imgdiff-recorder",
        "          configMap:",
        "            name: imgdiff-recorder",
        "        - name: imgdiff-recording",
        "          emptyDir: {}",
    ]
    return "\n".join(lines) + "\n"


def _env(described: Described) -> str:
    if described.tracer is not None:
        raise UsageError("--syscalls changes the command, which no variable does", "use --format docker or compose")
    found, _ = described.set()
    if any("\n" in value for value in found.values()):
        raise UsageError("a variable of the image has a line break in it", "use --format docker")
    return "".join(f"{name}={value}\n" for name, value in found.items())


def _text(value: str) -> str:
    """Return a YAML string: JSON's are."""
    return json.dumps(value)


def _list(words: Iterable[str]) -> str:
    return json.dumps(list(words))


def _doubled(value: str) -> str:
    """Keep compose from filling in variables."""
    return value.replace("$", "$$")


FORMATS: Final[Mapping[str, Callable[[Described], str]]] = {
    "docker": _docker,
    "compose": _compose,
    "kubernetes": _kubernetes,
    "env": _env,
}
