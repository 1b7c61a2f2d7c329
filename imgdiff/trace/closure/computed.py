"""Import names that reached code puts together from other text: what they can be, by rule.

Where reached code of a top-level package imports by a name that does not fold, the modules of that package are asked
for by every text that could become their name: one that differs in case and separators alone (``"X".lower()``,
"hidden-module", CamelCase for snake_case), one that holds a module's name or a piece of it and stands in the module
that imports (slices, strips, ``replace``), the name of a class where code makes text of it, and, where the importing
code lists a directory or decodes its text, whatever lies in its own package.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from imgdiff.model import HOLE, Scope
from imgdiff.trace.closure.reaching import Reaching
from imgdiff.trace.graph.blocks import Block, Unit
from imgdiff.trace.graph.calls import Use
from imgdiff.trace.graph.graph import Graph

_CASES = frozenset({"lower", "upper", "title", "capitalize", "casefold", "swapcase", "sub", "subn"})
_NAMED = frozenset({"__name__", "__qualname__", "name", "_name_", "__members__", "_member_names_"})
_LISTS = frozenset({"listdir", "scandir", "iterdir", "glob", "iglob", "rglob", "walk", "fwalk", "contents"})
_DEEP = frozenset({"walk", "fwalk", "rglob"})
_PLACES = frozenset({"__file__", "__path__", "__spec__", "submodule_search_locations", "files", "contents", "getfile"})
_DECODES = frozenset(
    {"b64decode", "standard_b64decode", "urlsafe_b64decode", "b32decode", "b16decode", "b85decode", "a85decode",
     "decodebytes", "decodestring", "a2b_hex", "a2b_base64", "unhexlify", "fromhex", "chr", "reversed", "reverse",
     "decode", "decompress", "translate", "maketrans", "to_bytes", "bytearray", "bytes", "rot13", "rot_13"}
)  # fmt: skip
_MIN_PIECE = 4  # characters of a text before a piece of it can be a module's name, or it a piece of one
_MAX_TEXT = 200  # characters of a text that can become a module's name
_SEPARATORS = str.maketrans("", "", "_-. /:\t\n")
_TOKEN = re.compile(r"\w+")
_LIST = re.compile(r"[\w.,:;|/\s-]+")  # words and what parts them
_FIRST = re.compile(r"([^\W\d][\w-]*)[./:]")
_SPACE = re.compile(r"\s")
_NONE: list[str] = []
_PIECE = re.compile(r"[\w.]*")


@functools.lru_cache(maxsize=500_000)  # the same texts stand in many blocks, and in both images
def squash(text: str) -> str:
    """Return a text without case and separators: what "Hidden-Module" and hidden_module share."""
    return text.casefold().translate(_SEPARATORS)


class _Index:
    """The modules below one top-level package, by what a text can say of their names."""

    def __init__(self, graph: Graph, top: str) -> None:
        self.names = [top, *graph.below(top)]
        self.squashed: dict[str, list[str]] = {}
        self.lasts: dict[str, list[str]] = {}
        for name in self.names:
            tail = name
            while tail:
                self.squashed.setdefault(squash(tail), []).append(name)
                tail = tail.partition(".")[2]
            if name != top:
                self.lasts.setdefault(name.rpartition(".")[2].casefold(), []).append(name)
        self._starts: dict[str, list[str]] = {}
        for last in self.lasts:
            for at in range(1, len(last)):
                self._starts.setdefault(last[:at], []).append(last)
        self._patterns: dict[str, list[str]] = {}
        self._alike: dict[str, list[str]] = {}

    def alike(self, text: str) -> list[str]:
        """Return the modules whose name, or the end of it, a text is but for case and separators."""
        known = self._alike.get(text)
        if known is None:
            known = self._alike[text] = self.squashed.get(squash(text), _NONE)
        return known

    def trimmed(self, word: str) -> Iterator[str]:
        """Yield the modules whose last part is left when something is cut off either end of a word."""
        folded = word.casefold()
        for size in range(_MIN_PIECE, len(folded)):
            yield from self.lasts.get(folded[:size], ())
            yield from self.lasts.get(folded[-size:], ())

    def joined(self, words: Iterable[str]) -> Iterator[str]:
        """Yield the modules whose last part is made of two of the words."""
        folded = {word.casefold() for word in words}
        for start in sorted(folded & self._starts.keys()):
            for last in self._starts[start]:
                if last[len(start) :] in folded:
                    yield from self.lasts[last]

    def fitting(self, pattern: str) -> list[str]:
        """Return the modules whose name, or the end of it, fits a pattern that fixes four letters of it."""
        known = self._patterns.get(pattern)
        if known is None:
            pieces = pattern.casefold().split(HOLE)
            known = self._patterns[pattern] = []
            if max(len(squash(piece)) for piece in pieces) >= _MIN_PIECE and all(map(_PIECE.fullmatch, pieces)):
                regex = re.compile(r"(?:.*\.)?" + r"[\w.]*".join(map(re.escape, pieces)))
                known += [name for name in self.names if regex.fullmatch(name.casefold())]
        return known


class Computed:
    """What one closure knows of import names that are computed."""

    def __init__(self, indexes: dict[str, _Index] | None = None) -> None:
        self._indexes: dict[str, _Index] = {} if indexes is None else indexes  # shared by all closures of a graph
        self._new: list[Block] = []
        self._by_top: dict[str, list[Block]] = {}
        self._by_unit: dict[Unit, list[Block]] = {}
        self._tops: set[str] = set()
        self._named: set[str] = set()  # tops whose code makes text of names
        self._calls = 0  # how many unbounded calls have been looked at
        self._importing: dict[Unit, dict[Use, None]] = {}
        self._whole: set[tuple[Unit, str, Use]] = set()
        self._helpers: dict[tuple[Unit, Use], None] = {}  # functions that list a directory and import what lies there
        self._others: dict[str, list[str]] | None = None  # top-level names without case and separators

    def fork(self) -> Computed:
        """Return an independent copy."""
        twin = Computed(self._indexes)
        twin._new = list(self._new)
        twin._by_top = {top: list(blocks) for top, blocks in self._by_top.items()}
        twin._by_unit = {unit: list(blocks) for unit, blocks in self._by_unit.items()}
        twin._tops, twin._named, twin._calls = set(self._tops), set(self._named), self._calls
        twin._importing = {unit: dict(uses) for unit, uses in self._importing.items()}
        twin._whole, twin._others, twin._helpers = set(self._whole), self._others, dict(self._helpers)
        return twin

    def saw(self, block: Block) -> None:
        """Take note of reached code."""
        self._new.append(block)

    def waits(self, reach: Reaching) -> bool:
        """Tell whether there is anything to look at."""
        return bool(reach.dynamic) and (bool(self._new) or self._calls < len(reach.unbounded))

    def match(self, reach: Reaching) -> None:
        """Add what the names can be, for all code and calls that are new."""
        new, self._new = self._new, []
        for block in new:
            self._by_top.setdefault(block.unit.top, []).append(block)
            self._by_unit.setdefault(block.unit, []).append(block)
        calls, self._calls = reach.unbounded[self._calls :], len(reach.unbounded)
        fresh = {unit for unit, _ in calls if unit.top not in reach.standard} - self._importing.keys()
        for unit, use in calls:
            if unit.top not in reach.standard:
                self._importing.setdefault(unit, {})[use] = None
        for block in new:
            if block.unit in self._importing and block.unit not in fresh:
                self._near(reach, block)
        for unit in sorted(fresh, key=_name):
            for block in self._by_unit.get(unit, ()):
                self._near(reach, block)
        self._hand_over(reach, new, self._helpers)
        changed = {unit for unit, _ in calls} | {block.unit for block in new}
        for unit in sorted(changed & self._importing.keys(), key=_name):
            self._packages(reach, unit)
        self._alike(reach, new)

    def _index(self, reach: Reaching, top: str) -> _Index:
        if top not in self._indexes:
            self._indexes[top] = _Index(reach.graph, top)
        return self._indexes[top]

    # The same name in other letters ---------------------------------------------------------------------------------

    def _alike(self, reach: Reaching, new: list[Block]) -> None:
        tops = {unit.top for unit in self._importing}
        by_top: dict[str, list[Block]] = {}
        for block in new:
            by_top.setdefault(block.unit.top, []).append(block)
        for top in sorted(tops):
            index = self._index(reach, top)
            blocks = by_top.get(top, []) if top in self._tops else self._by_top.get(top, [])
            for block in blocks:
                if not block.bare:
                    self._texts(reach, block, index)
            if top not in self._named and any(_makes_text(block) for block in blocks):
                self._named.add(top)
                blocks = self._by_top.get(top, [])
            if top in self._named:
                for block in blocks:
                    names = [name for name in block.refs if name[:1].isupper()]
                    self._hit(reach, block, index, names)
        self._tops |= tops

    def _texts(self, reach: Reaching, block: Block, index: _Index) -> None:
        texts = (*block.words, *(text for text in block.texts if len(text) <= _MAX_TEXT))
        # What ends in a separator is a piece of an f-string, "ApiServer_" of a process's title; never a whole name.
        self._hit(reach, block, index, (text for text in texts if text[-1:] not in "_-."))

    def _hit(self, reach: Reaching, block: Block, index: _Index, texts: Iterable[str]) -> None:
        for text in texts:
            for name in index.alike(text):
                reach.word(block, name)

    # Pieces of a name, in the module that imports -------------------------------------------------------------------

    def _near(self, reach: Reaching, block: Block) -> None:
        index = self._index(reach, block.unit.top)
        words: set[str] = set(block.words)
        for text in block.texts:
            if len(text) <= _MAX_TEXT and (_LIST.fullmatch(text) or not _SPACE.search(text)):
                tokens = _TOKEN.findall(text)
                self._hit(reach, block, index, tokens)
                words.update(tokens)
        for word in sorted(words):
            for name in index.trimmed(word):
                reach.word(block, name)
        self._elsewhere(reach, block, words)
        self._hit(
            reach, block, index, (text[::-1] for text in (*words, *block.texts) if _MIN_PIECE <= len(text) <= _MAX_TEXT)
        )
        for name in sorted(index.joined(words)):
            reach.word(block, name)
        for pattern in sorted(block.patterns):
            for name in index.fitting(pattern):
                reach.word(block, name)

    def _elsewhere(self, reach: Reaching, block: Block, words: Iterable[str]) -> None:
        """Other top-level modules whose names differ in case and separators, and what a text names below them."""
        if self._others is None:
            self._others = {}
            for top in sorted(reach.graph.tops()):
                self._others.setdefault(squash(top), []).append(top)
        for text in (*words, *block.texts):
            if len(text) > _MAX_TEXT:
                continue
            for top in self._others.get(squash(text), ()):
                reach.word(block, top)
            match = _FIRST.match(text)
            for top in self._others.get(squash(match[1]), ()) if match is not None else ():
                if top != block.unit.top:
                    self._hit(reach, block, self._index(reach, top), (text,))

    # Whatever lies there --------------------------------------------------------------------------------------------

    def _packages(self, reach: Reaching, unit: Unit) -> None:
        """The package of code that lists directories, or decodes what it imports."""
        scopes = [scope for block in self._by_unit.get(unit, ()) for scope in block.scopes]
        lists = {scope.qualname or None for scope in scopes if not _LISTS.isdisjoint(scope.names)}
        body = frozenset[str]().union(*(scope.names for scope in scopes if not scope.qualname))
        here = any(
            not _PLACES.isdisjoint(scope.names | body)
            for scope in scopes
            if not _LISTS.isdisjoint(scope.names) or not _PLACES.isdisjoint(scope.names)
        )
        for use in self._importing[unit]:
            own = [scope for scope in scopes if (scope.qualname or None) == use.function or not scope.qualname]
            if lists and here:
                self._all(reach, unit, self._listed(reach, unit, scopes), use)
            elif use.function in lists and (unit, use) not in self._helpers:
                self._helpers[unit, use] = None
                self._hand_over(reach, self._by_top.get(unit.top, ()), [(unit, use)])
            if any(not _DECODES.isdisjoint(scope.names | scope.strings) or _speaks(scope) for scope in own):
                self._all(reach, unit, reach.graph.resolver.submodules(unit.package), use)

    def _hand_over(self, reach: Reaching, blocks: Iterable[Block], helpers: Iterable[tuple[Unit, Use]]) -> None:
        """Functions that list the directory that they are given: who calls one may hand its own."""
        for block in blocks if helpers else ():
            if _PLACES.isdisjoint(block.refs):
                continue
            for unit, use in helpers:
                caller, name = block.unit, (use.function or "").rpartition(".")[2]
                if caller.top == unit.top and caller is not unit and name in block.refs:
                    self._all(reach, caller, self._listed(reach, caller, block.scopes), use)

    def _listed(self, reach: Reaching, unit: Unit, scopes: Iterable[Scope]) -> Sequence[str]:
        """What lies in a module's own package, and in the packages in there that it names."""
        graph = reach.graph
        names = frozenset[str]().union(*(scope.names | scope.strings | scope.patterns for scope in scopes))
        if not _DEEP.isdisjoint(names) or any("**" in text for text in names):
            return graph.below(unit.package)
        names |= {part for text in names if "/" in text for part in text.split("/")}
        inside = [name for name in graph.below(unit.package) if name.rpartition(".")[2] in names]
        packages = [unit.package, *inside]
        return [name for package in packages for name in graph.resolver.submodules(package)]

    def _all(self, reach: Reaching, unit: Unit, names: Iterable[str], use: Use) -> None:
        if unit.package:
            for name in names:
                if (unit, name, use) not in self._whole:
                    self._whole.add((unit, name, use))
                    reach.follow(unit, name, "dynamic", use.line, use.function)


def _makes_text(block: Block) -> bool:
    return any(_speaks(scope) for scope in block.scopes)


def _speaks(scope: Scope) -> bool:
    """Tell whether code makes other text of the name of a class, function or member."""
    return not _CASES.isdisjoint(scope.names) and not _NAMED.isdisjoint(scope.names)


def _name(unit: Unit) -> str:
    return unit.name
