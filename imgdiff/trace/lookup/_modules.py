"""What a module name leads to: every directory of the search path, in order, with what it has."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from imgdiff.model import LookupAnswer, LookupCandidate, LookupPlace
from imgdiff.trace.closure.run_time_path import BUILT_IN
from imgdiff.trace.finder.resolver import Found, Resolver
from imgdiff.trace.finder.search_path import Searched
from imgdiff.trace.lookup._asked import Asked, Desk
from imgdiff.trace.paths import show

_KINDS = {"source": "", "bytecode": "a .pyc without its source", "extension": "an extension module"}


def module(desk: Desk, asked: Asked, name: str) -> LookupAnswer | None:
    """Return what a module name leads to; None where the process is no Python."""
    if asked.graph is None:
        return None
    resolver = asked.graph.resolver
    winner = resolver.find(name)
    places = [*_directories(desk, asked, resolver, name), *_below(desk, resolver, name)]
    finder = _finder(desk, resolver, name)
    if finder is not None:
        places.insert(0 if _asked_first(resolver, name) else len(places), finder)
    places = _marked(places, winner)
    winners = [each for place in places for each in place.candidates if each.wins]
    if winner is not None and not winners:  # a copy that is found through __path__ alone
        winners = [desk.candidate(winner.path or winner.portions[0], winner.path, wins=True)]
    known = {each.file for place in places for each in place.candidates} | {each.file for each in winners}
    return LookupAnswer(
        "module",
        name,
        (),
        tuple(winners[:1]),
        tuple(places),
        tuple(_notes(desk, resolver, name, winner)),
        desk.elsewhere(_Named(desk, name), known),
    )


def _directories(desk: Desk, asked: Asked, resolver: Resolver, name: str) -> Iterator[LookupPlace]:
    for place in resolver.search.places:
        by, line, said = place.by, place.line, None
        if place.source == "PYTHONPATH":
            by, line, said = _python_path(desk, asked, place)
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
    if top in BUILT_IN:
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
