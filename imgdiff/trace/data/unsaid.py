"""Whether anything in an image could put the name of an entry point into ENV.

Where ENV alone gives a name (see ``from_env``), what is in the image can lead to an entry point in two ways. Something
says its name: the image's ENV and command line, data, a string of reached code. Or something says the name of the
variable: code that does could write any text to it. Where neither is said, in whole or put together of the strings of
one module, only ENV of a run can name the entry point. Code that puts another object in the place of ``os.environ`` or
of the function that selects could do all of it; so could code whose strings can't be read.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from imgdiff.model import ElfFacts, FactSource
from imgdiff.trace.closure.reach import Reach
from imgdiff.trace.data.from_env import MIN_PIECE, Told, encodings, last, made_of
from imgdiff.trace.graph.blocks import Block, Unit
from imgdiff.trace.graph.narrowing import parsed

_WRITERS = frozenset({"environ", "environb", "putenv", "setenv", "unsetenv"})
_CONVERSION = re.compile(r"%[-+ #0-9.*']*(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcspn]")  # of C's printf
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SET = re.compile(r"\w+=[\w.,:;@/ -]*")  # NAME=VALUE of env, with nothing that a shell would work out
# Another object in the place of one of these gives any name. (An object's own attribute of that name is none.)
_PLACES = frozenset({"environ", "environb", "getenv", "entry_points", "EntryPoints", "_Environ"})
_PARTS = frozenset({"environ", "EntryPoints", "_Environ"})  # their methods can be replaced
_PUT = frozenset({"setattr", "__setattr__", "patch", "object"})
_PUTS = re.compile(
    rb"\.\s*(?:environb?|getenv|entry_points|EntryPoints|_Environ)\b[\w.\s)]*(?:[,:][^=\n]*)?=(?!=)"
    rb"|\b(?:environ|EntryPoints|_Environ)\s*\.[\w.\s]*=(?!=)|\b(?:for|as|del)\s[^\n]*\.\s*(?:environ|getenv|entry_points)\b"
    rb"|(?:setattr__|setattr|patch|object)\s*\([^)]{0,200}[\"'](?:[\w.]+\.)?(?:environb?|getenv|entry_points|EntryPoints)[\"']"
)
_PLACES_FOLDED = (b"environ", b"getenv", b"entry_points", b"entrypoints")


class _Needle:
    """A text that is looked for in others: where no letter or digit is before or behind it, read backwards, encoded."""

    def __init__(self, text: str) -> None:
        self.text, self.folded = text, text.casefold()
        encoded = encodings(text)
        self.hints = (self.folded, *(each.casefold() for each in encoded))  # in a folded text that has it
        self.pattern = "|".join((rf"(?<![^\W_]){re.escape(text)}(?![^\W_])", *map(re.escape, encoded)))
        self.regex = re.compile(self.pattern, re.IGNORECASE)
        self.forms = frozenset({text, text.lower(), text.upper(), text.capitalize(), text.title()})


class _Said(NamedTuple):
    """What a block says: the variable, names of entry points, and pieces of either."""

    key: bool
    names: frozenset[str]
    pieces: frozenset[str]


_NOTHING = _Said(False, frozenset(), frozenset())


class Wanted:
    """A variable of ENV, and the names that are looked for, with what each source of the image was found to do."""

    def __init__(self, told: Told, names: Iterable[str], homes: Collection[bytes]) -> None:
        """``names`` are those of the entry points; ``homes`` the files that are known to do no more with the
        variable than to read it."""
        self.homes = homes
        self.keys = [_Needle(each) for each in sorted(told.keys | told.names)]
        self.names = {name: _Needle(name) for name in sorted(set(names))}
        self.needles = [*self.keys, *self.names.values()]
        self.any = re.compile("|".join(each.pattern for each in self.needles), re.IGNORECASE)
        self._keys = re.compile(
            rb"\b(?:" + b"|".join(re.escape(each.text.encode()) for each in self.keys) + rb")\b", re.I
        )
        names_ = b"|".join(re.escape(name.encode()) for name in self.names)
        self._bytes = re.compile(rb"(?:\bbr?|\brb)[\"']+[^\"'\n]*(?:" + names_ + rb")", re.I)
        self._longest = max(len(each.text) for each in self.needles)
        self._parts = {
            each.folded[start:end]
            for each in self.needles
            for start in range(len(each.folded))
            for end in range(start + MIN_PIECE, len(each.folded) + 1)
        }
        self._sources: dict[bytes, bool] = {}
        self._libraries: dict[bytes, tuple[bool, frozenset[str]]] = {}
        self._blocks: dict[Block, _Said] = {}

    def said_by(self, block: Block) -> _Said:
        """Return what a block says; most say nothing."""
        known = self._blocks.get(block)
        if known is None:
            known = self._blocks[block] = self._said_by(block)
        return known

    def _said_by(self, block: Block) -> _Said:
        texts = (*block.words, *block.texts, *block.patterns)
        pieces = {text.casefold() for text in texts if len(text) <= self._longest} & self._parts
        hits = [needle.text for needle in self.needles if not needle.forms.isdisjoint(block.refs)]
        key, names = self.find((*hits, *texts))
        return _Said(key, names, frozenset(pieces)) if key or names or pieces else _NOTHING

    def find(self, texts: Iterable[str]) -> tuple[bool, frozenset[str]]:
        """Return whether one of these texts says the variable, and which names they say."""
        every = list(texts)
        together = "\n".join(every).casefold()
        if not any(form in together for each in self.needles for form in each.hints):
            return False, _NOTHING.names
        found = [text for text in every if self.any.search(text) is not None]
        key = any(each.regex.search(text) for each in self.keys for text in found)
        return key, frozenset(name for name, each in self.names.items() if any(map(each.regex.search, found)))

    def said_by_library(self, path: bytes, facts: ElfFacts) -> tuple[bool, frozenset[str]]:
        """Return the same of the strings of an extension module. Cython and Rust put theirs end to end: there a name is
        looked for inside of other text."""
        known = self._libraries.get(path)
        if known is None:
            key, names = self.find(facts.identifiers)
            together = "\n".join(_CONVERSION.sub("\0", text) for text in facts.strings)
            key |= any(form in together for each in self.keys for form in each.forms)
            inside = {name for name, each in self.names.items() if any(form in together for form in each.forms)}
            known = self._libraries[path] = key, names | inside
        return known

    def opens(self, path: bytes, facts: FactSource) -> bool:
        """Tell whether a source does what could make ENV give any text: it says the variable, has a name in bytes, or
        puts something in the place of what is asked."""
        known = self._sources.get(path)
        if known is None:
            text = facts.text(path)
            known = self._sources[path] = text is None or self._opens(path, text)
        return known

    def _opens(self, path: bytes, text: bytes) -> bool:
        folded = text.lower()
        said = any(each.folded.encode() in folded for each in self.keys) and self._keys.search(text)
        if said and path not in self.homes:
            return True
        if any(each.folded.encode() in folded for each in self.names.values()) and self._bytes.search(text):
            return True
        if not any(each in folded for each in _PLACES_FOLDED) or _PUTS.search(text) is None:
            return False
        module = parsed(text)
        return module is None or any(_puts(node) for node in ast.walk(module))


class Unsaid:
    """What one closure says of what is wanted. It only ever grows."""

    def __init__(self, reach: Reach, wanted: Wanted) -> None:
        self._reach, self._wanted = reach, wanted
        self._blocks = 0
        self._units: set[Unit] = set()
        self._files: set[bytes] = set()
        self._heard: set[str] = set()
        self._pieces: dict[Unit, set[str]] = {}
        self._writing: set[Unit] = set()
        self._any_name = False
        self._said: set[str] = set()

    def says(self, name: str) -> bool:
        """Tell whether anything that this closure reaches could make ENV give this name."""
        if not self._any_name:
            self._look()
        return self._any_name or name in self._said

    def _look(self) -> None:
        reach = self._reach
        blocks = list(itertools.islice(reach.done, self._blocks, None))
        self._blocks = len(reach.done)
        changed = dict.fromkeys(block.unit for block in blocks)
        for block in blocks:
            self._block(block)
        for unit in changed:
            self._together(unit)
        for unit in reach.level.keys() - self._units:
            self._units.add(unit)
            self._unit(unit)
        for path in reach.data_words.keys() - self._files:
            self._files.add(path)
            self._data(*reach.data_words[path])
        for text in reach.heard - self._heard:
            self._heard.add(text)
            self._hear(text)
        # What stands in a file that was not kept can get into ENV where its readers write there.
        unread = any(not top or any(unit.top == top for unit in self._writing) for top in reach.unread)
        self._any_name |= unread or bool(reach.packed)

    def _note(self, texts: Iterable[str]) -> None:
        key, names = self._wanted.find(texts)
        self._any_name |= key
        self._said |= names

    def _block(self, block: Block) -> None:
        if not _WRITERS.isdisjoint(block.refs):
            self._writing.add(block.unit)
        said = self._wanted.said_by(block)
        self._said |= said.names
        if block.unit.path not in self._wanted.homes:  # what these do with the variable is known
            self._any_name |= said.key
            if said.pieces:
                self._pieces.setdefault(block.unit, set()).update(said.pieces)

    def _together(self, unit: Unit) -> None:
        """Note what can be put together of the strings of a module, or is a part of a name in humps (``OneTwo``)."""
        pieces = self._pieces.get(unit, set())
        self._any_name |= any(made_of(each.folded, pieces) for each in self._wanted.keys)
        if unit not in self._writing:
            return
        self._said.update(name for name, each in self._wanted.names.items() if made_of(each.folded, pieces))
        for block in unit.blocks():
            for text in itertools.chain(block.words, block.texts, block.refs) if block in self._reach.done else ():
                folded = text.casefold()
                for name, needle in self._wanted.names.items():
                    if needle.folded in folded and _in_humps(needle.folded, text):
                        self._said.add(name)

    def _unit(self, unit: Unit) -> None:
        if unit.path is None:
            return
        facts = self._reach.graph.facts
        if unit.kind == "extension":
            found = facts.elf(unit.path)
            if isinstance(found, ElfFacts):
                key, names = self._wanted.said_by_library(unit.path, found)
                self._any_name |= key
                self._said |= names
        elif unit.kind in ("source", "bytecode"):
            self._any_name |= unit.kind == "bytecode" or self._wanted.opens(unit.path, facts)

    def _data(self, dotted: frozenset[str], single: frozenset[str]) -> None:
        for needle in self._wanted.needles:
            if not needle.forms.isdisjoint(single) or any(needle.folded in word.casefold() for word in dotted):
                self._note((needle.text,))

    def _hear(self, text: str) -> None:
        """What code makes of the command line or ENV is a piece of it, wherever it cuts."""
        folded = text.casefold()
        self._said.update(name for name, each in self._wanted.names.items() if each.folded in folded)
        self._any_name |= any(each.regex.search(text) for each in self._wanted.keys) and _SET.fullmatch(text) is None
        self._any_name |= _PUTS.search(text.encode("utf-8", "surrogateescape")) is not None  # the code of -c


def _in_humps(name: str, text: str) -> bool:
    """Tell whether whole words of a text in camel case make a name."""
    words = [each.casefold() for each in _HUMP.findall(text)]
    starts = itertools.accumulate((len(each) for each in words), initial=0)
    joined, edges = "".join(words), set(starts)
    at = joined.find(name)
    while at >= 0:
        if at in edges and at + len(name) in edges:
            return True
        at = joined.find(name, at + 1)
    return False


def _puts(node: ast.AST) -> bool:
    """Tell whether a node puts another object into the place of what is asked."""
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        return (node.attr in _PLACES and not own) or last(node.value) in _PARTS
    if isinstance(node, ast.Call) and last(node.func) in _PUT:
        texts = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
        return any(isinstance(text, str) and text.rpartition(".")[2] in _PLACES for text in texts)
    return False
