"""What a module name leads to: every directory of the search path, in order, with what it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from imgdiff.model import LookupAnswer, LookupCandidate, LookupPlace
from imgdiff.trace.closure.run_time_path import BUILT_IN, LINKED
from imgdiff.trace.finder.resolver import Found, Resolver
from imgdiff.trace.finder.search_path import Searched
from imgdiff.trace.lookup._asked import Asked, Desk
from imgdiff.trace.paths import show

# Frozen into CPython, so that no directory is searched for them (its Python/frozen.c): from 3.8 on, and from 3.11 on.
_FROZEN = frozenset(
    {"zipimport", "_frozen_importlib", "_frozen_importlib_external", "importlib._bootstrap"}
    | {"importlib._bootstrap_external"}
)
_FROZEN_3_11 = frozenset(
    {"abc", "codecs", "io", "_collections_abc", "_sitebuiltins", "genericpath", "ntpath", "posixpath", "os", "site"}
    | {"stat", "importlib.util", "importlib.machinery", "runpy", "os.path", "__hello__", "__phello__"}
)
# What an interpreter has loaded before it puts the script's or the working directory on the path: always, and by site
_EARLY = frozenset({"abc", "codecs", "encodings", "io"})
_EARLY_BY_SITE = _EARLY | frozenset(
    {"_collections_abc", "_sitebuiltins", "genericpath", "posixpath", "os", "site", "stat"}
    | {"sitecustomize", "usercustomize"}
)
_KINDS = {"source": "", "bytecode": "a .pyc without its source", "extension": "an extension module"}


def module(desk: Desk, asked: Asked, name: str) -> LookupAnswer | None:
    """Return what a module name leads to; None where the process is no Python."""
    if asked.graph is None:
        return None
    resolver = asked.graph.resolver
    name, asked_for = ("posixpath", name) if name == "os.path" else (name, name)  # os puts it into sys.modules
    inside = _inside_interpreter(asked, resolver, name)
    early = _behind_first(resolver, name) if _is_early(asked, name) and _has_first(desk, asked, resolver) else None
    skipped = 1 if early is not None else 0  # what nothing has at start is looked for once more when it is asked for
    winner = None if inside is not None else early or resolver.find(name)
    places = [*_directories(desk, asked, resolver, name), *_below(desk, resolver, name)]
    finder = _finder(desk, resolver, name)
    if finder is not None:
        places.insert(0 if _asked_first(resolver, name) else len(places), finder)
    places = [*places[:skipped], *_marked(places[skipped:], winner)]
    if inside is not None:
        places.insert(0, _interpreter(desk, asked, inside))
    winners = [each for place in places for each in place.candidates if each.wins]
    if winner is not None and not winners:  # a copy that is found through __path__ alone
        winners = [desk.candidate(winner.path or winner.portions[0], winner.path, wins=True)]
    known = {each.file for place in places for each in place.candidates} | {each.file for each in winners}
    notes = [*_notes(desk, resolver, name, winner if inside is None else None)]
    if inside is not None:
        notes.insert(0, f"{asked_for} is {inside} the interpreter, so no place is searched for it.")
    if skipped:
        notes.append(f"{name} is loaded before {show(resolver.search.places[0].written)} is put on the path.")
    notes += _open(desk, asked, resolver, name, places)
    return LookupAnswer(
        "module",
        asked_for,
        (),
        tuple(winners[:1]),
        tuple(places),
        tuple(dict.fromkeys(notes)),
        desk.elsewhere(_Named(desk, name), known),
    )


def _version(resolver: Resolver) -> tuple[int, ...]:
    return tuple(int(part) for part in resolver.search.environment.version.split(".") if part.isdigit())


def _inside_interpreter(asked: Asked, resolver: Resolver, name: str) -> str | None:
    """Return in a word how a module lies in the interpreter itself; None where it does not, or may not."""
    if name in LINKED:
        return "built into"
    off = any("frozen_modules=off" in word for word in asked.launch.argv)
    off = off or asked.launch.env.get("PYTHON_FROZEN_MODULES") == "off"
    if name in _FROZEN or (name in _FROZEN_3_11 and _version(resolver) >= (3, 11) and not off):
        return "frozen into"
    return None


def _interpreter(desk: Desk, asked: Asked, how: str) -> LookupPlace:
    path = asked.program
    candidates = () if path is None else (desk.candidate(path, desk.tree.resolve(path), f"{how} it", wins=True),)
    return LookupPlace("interpreter", None, True, path, None, f"modules that are {how} it", candidates)


def _is_early(asked: Asked, name: str) -> bool:
    start = asked.launch.python
    without_site = start is not None and "S" in start.flags
    return name.partition(".")[0] in (_EARLY if without_site else _EARLY_BY_SITE)


def _has_first(desk: Desk, asked: Asked, resolver: Resolver) -> bool:
    """Tell whether the first place is one that is put there once the interpreter has started, and no other names it."""
    first = next(iter(resolver.search.places), None)
    if first is None or first.source not in ("script directory", "working directory"):
        return False
    written = (part.encode("utf-8", "surrogateescape") for part in asked.launch.env.get("PYTHONPATH", "").split(":"))
    parts = [part or b"." for part in written] if asked.launch.env.get("PYTHONPATH") else []
    return all(desk.tree.resolve(part, asked.launch.cwd) != first.found for part in parts)


def _behind_first(resolver: Resolver, name: str) -> Found | None:
    """Return what a name is to an interpreter that starts, before the first place is on its path."""
    for place in resolver.search.places[1:]:
        found = _inside(resolver, name, place.found)[0] if place.found is not None else None
        if found is not None:
            return found
    return resolver.mapped(name)


def _open(desk: Desk, asked: Asked, resolver: Resolver, name: str, places: Sequence[LookupPlace]) -> Iterator[str]:
    """Say what can lead to another copy: archives that are asked before the winner (before directories without
    ``__init__``, all of them), and code that changes the path."""
    wins = next((at for at, place in enumerate(places) if any(each.wins for each in place.candidates)), len(places))
    if any(place.source == "interpreter" for place in places):
        return
    top = resolver.find(name.partition(".")[0])
    last = len(places) if top is not None and top.kind == "namespace" else wins
    shown = {(place.source, place.directory) for place in places[:last]}
    for each in resolver.search.places:
        if each.archive is not None and (each.source, each.written) in shown:
            yield (
                f"{show(each.archive)} is an archive on the path, which is not looked into: if it has the module, that "
                "is the copy that wins."
            )
    for blind in resolver.search.blindspots:
        if blind.what != "archive on sys.path" and blind.path is not None:
            yield f"{show(blind.path)}: {blind.reason}. What that does to the path is not in this answer."
    if _is_early(asked, "sitecustomize"):
        is_first = _has_first(desk, asked, resolver)
        found = _behind_first(resolver, "sitecustomize") if is_first else resolver.find("sitecustomize")
        if found is not None and found.path is not None:
            yield f"{show(found.path)} runs at start: a directory that its code puts on the path is not in this answer."


def _directories(desk: Desk, asked: Asked, resolver: Resolver, name: str) -> Iterator[LookupPlace]:
    for place in resolver.search.places:
        by, line, said = place.by, place.line, None
        if place.source == "PYTHONPATH":
            by, line, said = _python_path(desk, asked, place)
        if place.archive is not None:
            text = "an archive, which is not looked into"
            yield LookupPlace(place.source, place.written, True, by, line, f"{said}; {text}" if said else text)
            continue
        if place.found is None:
            yield LookupPlace(place.source, place.written, False, by, line, said)
            continue
        found, why = _inside(resolver, name, place.found)
        candidates = () if found is None and why is None else (_candidate(desk, place, found, why),)
        yield LookupPlace(place.source, place.written, True, by, line, said, candidates)


def _python_path(desk: Desk, asked: Asked, place: Searched) -> tuple[bytes | None, int | None, str]:
    for part in asked.launch.env.get("PYTHONPATH", "").split(":"):
        written = part.encode("utf-8", "surrogateescape")
        full = written if written.startswith(b"/") else asked.launch.cwd + b"/" + written
        if b"/".join(each for each in full.split(b"/") if each not in (b"", b".")) == place.written:
            return desk.setters(asked.launch, "PYTHONPATH", part)
    return None, None, "PYTHONPATH"


def _inside(resolver: Resolver, name: str, directory: bytes) -> tuple[Found | None, str | None]:
    """Return what a dotted name is if its top-level package is taken from this directory, or why it is nothing."""
    directories: tuple[bytes, ...] = (directory,)
    above = ""
    found: Found | None = None
    for part in name.split("."):
        dotted = f"{above}.{part}" if above else part
        if above and not directories:
            return None, f"{above} is here, and is no package"
        found = resolver.find_in(dotted, part, directories)
        if found is None:
            return None, f"{above} is here, without {part}" if above else None
        above, directories = dotted, found.portions
    return found, None


def _candidate(desk: Desk, place: Searched, found: Found | None, why: str | None) -> LookupCandidate:
    if found is None:
        return desk.candidate(place.written, None, why)
    if found.path is None:
        return desk.candidate(found.portions[0], None, "a directory without __init__: a namespace package")
    return desk.candidate(found.path, found.path, _KINDS.get(found.kind) or None)


def _below(desk: Desk, resolver: Resolver, name: str) -> Iterator[LookupPlace]:
    """The directories that a package has in its ``__path__`` and that no place of the search path gives."""
    above, _, last = name.rpartition(".")
    package = resolver.find(above) if above else None
    if package is None:
        return
    given = {
        portion
        for place in resolver.search.places
        if place.found is not None and (found := _inside(resolver, above, place.found)[0]) is not None
        for portion in found.portions
    }
    for directory in package.portions:
        if directory not in given and not _from_finder(resolver, name):
            found = resolver.find_in(name, last, (directory,))
            path = None if found is None else found.path
            candidates = () if found is None else (desk.candidate(path or directory, path),)
            yield LookupPlace("package path", directory, True, package.path, None, f"{above}.__path__", candidates)


def _from_finder(resolver: Resolver, name: str) -> str | None:
    """Return the longest name that an editable finder knows and that leads to this one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        known = ".".join(parts[:end])
        if known in resolver.search.mapping:
            return known
    return None


def _asked_first(resolver: Resolver, name: str) -> bool:
    known = _from_finder(resolver, name)
    return known is not None and resolver.search.finders.get(known, (b"", False))[1]


def _finder(desk: Desk, resolver: Resolver, name: str) -> LookupPlace | None:
    known = _from_finder(resolver, name)
    if known is None:
        return None
    path, first = resolver.search.finders.get(known, (None, False))
    found = resolver.mapped(known)
    for part in name[len(known) + 1 :].split(".") if found is not None and name != known else ():
        assert found is not None
        found = resolver.find_in(f"{found.name}.{part}", part, found.portions)
        if found is None:
            break
    candidates = () if found is None else (desk.candidate(found.path or found.portions[0], found.path),)
    order = "asked before sys.path" if first else "asked behind sys.path"
    return LookupPlace("editable finder", None, True, path, None, f"it maps {known}, {order}", candidates)


def _marked(places: list[LookupPlace], winner: Found | None) -> list[LookupPlace]:
    """Mark the candidate that is what the name resolves to, where it first stands."""
    if winner is None:
        return places
    done = False
    marked = []
    for place in places:
        candidates = list(place.candidates)
        for at, each in enumerate(candidates if not done else ()):
            if each.file == winner.path and (each.file is not None or each.path in winner.portions):
                candidates[at] = msgspec.structs.replace(each, wins=True)
                done = True
        marked.append(msgspec.structs.replace(place, candidates=tuple(candidates)))
    return marked


def _notes(desk: Desk, resolver: Resolver, name: str, winner: Found | None) -> Iterator[str]:
    top = name.partition(".")[0]
    if top in BUILT_IN - LINKED:
        yield f"CPython can have {top} built in: then no place is searched for it."
    if winner is None and "." in name:
        package = resolver.find(name.rpartition(".")[0])
        if package is not None and package.path is not None:
            yield f"{package.name} is {show(package.path)}, and what lies below other copies of it is not searched."
    source = winner.path if winner is not None and winner.kind == "source" else None
    if source is not None and desk.facts.runs(source) == "bytecode":
        yield "What runs is its .pyc, which fits the source."
    if winner is not None and len(winner.portions) > 1:
        yield f"It is a namespace package of {', '.join(map(show, winner.portions))}."


class _Named:
    """Tells whether a file would be the module of this name, in a directory that is no package itself."""

    def __init__(self, desk: Desk, name: str) -> None:
        self._tree = desk.tree
        stem = name.replace(".", "/").encode("utf-8", "surrogateescape")
        self._ends = tuple(stem + end for end in (b".py", b".pyc", b"/__init__.py", b"/__init__.pyc"))
        self._native = stem + b"."

    def __call__(self, path: bytes) -> bool:
        if path.endswith(self._ends):
            end = next(end for end in self._ends if path.endswith(end))
            start = path[: -len(end)]
        elif path.endswith(b".so") and self._native in path:
            start, _, rest = path.rpartition(self._native)
            if b"/" in rest:
                return False
        else:
            return False
        if start and not start.endswith(b"/"):
            return False
        return self._tree.get(start + b"__init__.py") is None
