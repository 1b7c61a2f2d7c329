"""What an extension module made by Cython imports, by the string table that its facts hold.

The table has all strings end to end, so that a name is looked for inside of it: a name too many is an edge too many,
a name too few would hide one. Where there should be a table and it could not be read, whatever its own distribution
holds and declares to need is what it can import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser

from packaging.utils import canonicalize_name

from imgdiff.model import ElfFacts
from imgdiff.trace.graph.graph import Graph

_MARKS = ("__pyx", "_cython", "cython_")
# Who calls C functions of Cython's modules looks for them under this name; a module of Cython's has other marks, too.
_CALLED = "__pyx_capi__"
_SIGNS = ("__main__", "__name__")  # of a table: every module has them
_MIN_NAME = 3  # letters of a name that is looked for inside of other text
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def is_cython(facts: ElfFacts) -> bool:
    """Tell whether Cython made a module."""
    return any(name.startswith(_MARKS) and name != _CALLED for name in facts.identifiers)


def tables(facts: ElfFacts) -> list[str]:
    """Return the string tables among the strings of an extension module."""
    return [text for text in facts.strings if all(sign in text for sign in _SIGNS)]


def is_unread(facts: ElfFacts) -> bool:
    """Tell whether a module of Cython has neither a table that could be read nor strings of their own."""
    return is_cython(facts) and not tables(facts) and not all(sign in facts.identifiers for sign in _SIGNS)


def imported(graph: Graph, facts: ElfFacts, package: str, tops: Iterable[str]) -> Iterator[str]:
    """Yield the names of modules that an extension module of ``package`` can import, by its string tables: those of
    ``tops``, what lies below one by its dotted name, and by its last part what lies directly below (``from a.b import
    c``)."""
    texts = tables(facts)
    own = package.partition(".")[0]
    for top in sorted(tops) if texts else ():
        if len(top) < _MIN_NAME or not any(top in text for text in texts):
            continue
        yield top
        packages = [] if top == own else [top]
        if any(f"{top}." in text for text in texts):
            below = [name for name in graph.below(top) if any(name in text for text in texts)]
            yield from below
            packages += below
        for each in packages:
            for name in graph.resolver.submodules(each):
                last = name.rpartition(".")[2]
                if len(last) >= _MIN_NAME and any(last in text for text in texts):
                    yield name


def declared(graph: Graph, path: bytes, top: str) -> Iterator[str]:
    """Yield the modules of an extension module's own top-level package, and the top-level ones of the distributions
    that its own declares to need (core metadata, "Requires-Dist"); ``path`` is its file."""
    yield from graph.below(top)
    site = _site(graph, path)
    infos = {} if site is None else _infos(graph, site)
    tops: dict[str, set[str]] = {}
    for name, info in infos.items():
        tops[name] = _tops(graph, info)
    for name, info in infos.items():
        if top not in tops[name]:
            continue
        text = graph.facts.text(info + b"/METADATA") or b""
        for required in HeaderParser().parsestr(text.decode("utf-8", "replace")).get_all("Requires-Dist", []):
            project = _PROJECT.match(str(required).strip())
            if project is not None:
                yield from sorted(tops.get(canonicalize_name(project[0]), ()))


def _site(graph: Graph, path: bytes) -> bytes | None:
    """The directory of the search path that a file lies below, the longest."""
    found = [each for each in graph.resolver.search.directories if path.startswith(each + b"/")]
    return max(found, key=len, default=None)


def _infos(graph: Graph, site: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in graph.resolver.tree.children(site):
        if name.endswith(b".dist-info"):
            project = name.removesuffix(b".dist-info").rpartition(b"-")[0].decode("utf-8", "replace")
            found[canonicalize_name(project)] = site + b"/" + name
    return found


def _tops(graph: Graph, info: bytes) -> set[str]:
    """The top-level names of what a distribution installed."""
    rows = (graph.facts.text(info + b"/RECORD") or b"").decode("utf-8", "replace").splitlines()
    firsts = {row.partition(",")[0].strip('"').partition("/")[0] for row in rows}
    return {first.partition(".")[0] for first in firsts} & graph.tops()
