"""Who asks for a name, and what every kind of question needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec

from imgdiff.model import Environment, LookupCandidate
from imgdiff.trace.graph.graph import Graph
from imgdiff.trace.launch.started import Launch, PythonStart
from imgdiff.trace.paths import show
from imgdiff.trace.roles import Setting
from imgdiff.trace.tracer import Tracer

_ELSEWHERE = 200  # files that one answer names


class Asked(msgspec.Struct, frozen=True):
    """One process: in words, how it is started, and its interpreter and module path, if it is a Python."""

    label: str
    launch: Launch
    graph: Graph | None
    program: bytes | None

    @classmethod
    def of_python(cls, setting: Setting) -> Asked:
        """A Python that the entry starts."""
        start = setting.launch.python
        assert start is not None
        what = {"module": setting.label, "script": setting.label, "code": "-c", "stdin": "reading stdin"}[start.mode]
        environment = setting.graph.resolver.search.environment
        label = f"{_interpreter(environment)} {what}, in /{_text(setting.launch.cwd)}"
        return cls(label, setting.launch, setting.graph, environment.executable)

    @classmethod
    def of_program(cls, launch: Launch) -> Asked:
        """A program that is no Python."""
        assert launch.program is not None
        return cls(f"{show(launch.program)}, in /{_text(launch.cwd)}", launch, None, launch.program)

    @classmethod
    def of_environment(cls, tracer: Tracer, launch: Launch, environment: Environment) -> Asked | None:
        """The interpreter of an environment, as if it were started with ``-c``."""
        start = PythonStart(b"", environment, frozenset(), "code", "", ())
        graph = tracer.maker.graph(start, launch, launch.cwd)
        if graph is None:
            return None
        label = f"{_interpreter(environment)} -c, in /{_text(launch.cwd)} (the entry starts no Python)"
        return cls(label, launch, graph, environment.executable)


def _interpreter(environment: Environment) -> str:
    return f"python{environment.version} of {show(environment.prefix)}"


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


class Desk:
    """What every answer about one image is made with. ``loader`` is the file that asks for a library."""

    def __init__(self, tracer: Tracer, loader: bytes | None) -> None:
        self.tracer, self.loader = tracer, loader
        self.tree, self.facts, self.attribution = tracer.tree, tracer.facts, tracer.attribution

    def candidate(
        self, path: bytes, file: bytes | None, note: str | None = None, *, wins: bool = False
    ) -> LookupCandidate:
        """Return a file as a candidate; ``file`` None is a directory alone."""
        entry = None if file is None else self.tree.get(file)
        owners = () if file is None else self.attribution.owners_of(file)
        names = dict.fromkeys(f"{owner.name} {owner.version}" if owner.version else owner.name for owner in owners)
        return LookupCandidate(
            path.strip(b"/"), file, None if entry is None else entry.digest, tuple(names), wins, note
        )

    def elsewhere(self, fits: Callable[[bytes], bool], known: Collection[bytes | None]) -> tuple[LookupCandidate, ...]:
        """Return the files of the tree that fit and are none of those known, at most 200."""
        found = sorted(
            path
            for path, entry in self.tree.entries.items()
            if entry.type == "file" and fits(path) and path not in known
        )
        return tuple(self.candidate(path, path) for path in found[:_ELSEWHERE])

    def setters(self, launch: Launch, name: str, part: str) -> tuple[bytes | None, int | None, str]:
        """Return who puts a part into a path list of ENV: a script with the line, and words."""
        if part in self.tracer.commands.env.get(name, "").split(":"):
            return None, None, f"{name} in the image's ENV"
        for each in launch.set_by:
            if each.name == name and each.part == part:
                doubt = "" if each.sure else ", if that line runs"
                if each.path is None:
                    return None, each.line, f"{name} in the shell code of the entry{doubt}"
                return each.path, each.line, f"{name} in a script that the entry runs{doubt}"
        if name not in launch.env:
            return None, None, f"the default of {name}"
        return None, None, f"{name} in the entry's command line"


def parts(value: str, separators: str = ":") -> Iterator[str]:
    """Yield the parts of a path list."""
    for separator in separators[1:]:
        value = value.replace(separator, separators[0])
    yield from value.split(separators[0])
