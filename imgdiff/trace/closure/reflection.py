"""Modules and classes that reached code looks through by names that no text tells.

``vars(m)``, ``m.__dict__``, ``dir(m)``, ``inspect.getmembers(m)``, ``globals()`` and ``getattr(m, name)`` can give each
function of what they are given: these count as referred to, and no others of their names. What ``m`` is folds, or it is
a module that reached code hands on as it is: to a function, in a table or attribute, by returning it. Who looks through
it then is not asked. A class brings its bases, a method's own object (``getattr(self, name)``) those who inherit too.
"""

from __future__ import annotations

from itertools import islice

from imgdiff.model import HOLE_NAME
from imgdiff.trace.closure.reaching import Reaching
from imgdiff.trace.graph.blocks import Block, Unit
from imgdiff.trace.graph.graph import Graph

_Thing = tuple[Unit, str]  # a module and "", or the name of a class in it
_OWN = ("?self", "?cls")
_MAX_STEPS = 8  # of modules that import a name from one another
_NO_BLOCKS: list[Block] = []


class _Kin:
    """What all closures of one graph share: which classes there are, their functions and their bases."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.above: dict[_Thing, dict[_Thing, None]] = {}  # class -> its bases
        self.below: dict[_Thing, dict[_Thing, None]] = {}
        self.log: list[tuple[_Thing, _Thing]] = []  # class and base, in the order in which they were found
        self._related: set[Unit] = set()
        self._classes: dict[Unit, frozenset[str]] = {}
        self._blocks: dict[Unit, dict[str, list[Block]]] = {}
        self._named: dict[str, tuple[_Thing, ...]] = {}  # by absolute name
        self._widened = 0

    def renew(self) -> None:
        """Forget what names led to where packages have become wider since."""
        if self._widened != len(self.graph.widened):
            self._widened = len(self.graph.widened)
            self._named.clear()
            related, self._related = self._related, set()
            for unit in related:
                self.relate(unit)

    def relate(self, unit: Unit) -> None:
        """Know the bases of the classes of a module."""
        if unit in self._related or unit.facts is None:
            return
        self._related.add(unit)
        for name, base in unit.facts.bases:
            for thing in self.things(unit, base)[0]:
                class_ = unit, name
                if thing[1] and thing != class_ and thing not in self.above.setdefault(class_, {}):
                    self.above[class_][thing] = None
                    self.below.setdefault(thing, {})[class_] = None
                    self.log.append((class_, thing))

    def classes(self, unit: Unit) -> frozenset[str]:
        """Return the classes of a module that have functions or bases."""
        if unit.facts is None:
            return frozenset()
        found = self._classes.get(unit)
        if found is None:
            owners = {_owner(scope.qualname) for scope in unit.facts.scopes[1:] if "." in scope.qualname}
            found = self._classes[unit] = frozenset(owners.union(name for name, _ in unit.facts.bases)) - {""}
        return found

    def blocks(self, unit: Unit, owner: str) -> list[Block]:
        """Return the blocks of a module that hold functions of a class, or ("") of the module itself."""
        found = self._blocks.get(unit)
        if found is None:
            found = self._blocks[unit] = {}
            for block in unit.gated:
                for name in dict.fromkeys([_owner(scope.qualname) for scope in block.scopes]):
                    found.setdefault(name, []).append(block)
        return found.get(owner, _NO_BLOCKS)

    def things(self, unit: Unit, name: str, steps: int = _MAX_STEPS) -> tuple[tuple[_Thing, ...], bool]:
        """Return the module or class that a dotted name is in a module, with the modules whose names a module takes
        over by ``from x import *``; and whether all was known that can decide it."""
        if name == HOLE_NAME:
            return self._with_starred(unit)
        if name.startswith("."):
            stripped = name.lstrip(".")
            absolute = self.graph.absolute(unit, stripped, len(name) - len(stripped))
            return ((), True) if absolute is None else self._by_name(absolute)
        if name in self.classes(unit):
            return ((unit, name),), True
        found, known = self._by_name(name)
        first = name.partition(".")[0]
        for alias, origin in unit.facts.aliases if unit.facts is not None and steps else ():
            if alias == first and origin.partition(".")[0] != first:  # it is bound more than once
                more, sure = self.things(unit, origin + name[len(first) :], steps - 1)
                found, known = (*found, *more), known and sure
        return found, known

    def _by_name(self, absolute: str) -> tuple[tuple[_Thing, ...], bool]:
        found = self._named.get(absolute)
        if found is not None:
            return found, True
        name, rest = absolute, ""
        unit = self.graph.unit(name)
        while unit is None and "." in name:
            name, _, last = name.rpartition(".")
            rest = f"{last}.{rest}" if rest else last
            unit = self.graph.unit(name)
        if unit is None:
            found, known = (), True
        elif rest:
            found, known = self._member(unit, rest, _MAX_STEPS)
        else:
            found, known = self._with_starred(unit)
        if known:
            self._named[absolute] = found
        return found, known

    def _member(self, unit: Unit, name: str, steps: int) -> tuple[tuple[_Thing, ...], bool]:
        """What a name is in a module: a class there, or what the module imports under it."""
        if name in self.classes(unit):
            return ((unit, name),), True
        if unit.facts is None or not steps:
            return (), unit.prepared
        found: list[_Thing] = []
        known = True
        first, _, rest = name.partition(".")
        for each in unit.facts.scopes[0].imports if unit.facts.scopes else ():
            if first not in each.names and each.names != ("*",):
                continue
            base = self.graph.absolute(unit, each.module, each.level)
            inner = None if base is None else self.graph.unit(base)
            child = None if base is None or not rest else self.graph.unit(f"{base}.{first}")
            if child is not None:
                more, sure = self._member(child, rest, steps - 1)
            elif inner is not None and inner is not unit:
                more, sure = self._member(inner, name, steps - 1)
            else:
                continue
            found += more
            known = known and sure
        return tuple(found), known

    def _with_starred(self, unit: Unit) -> tuple[tuple[_Thing, ...], bool]:
        seen: dict[Unit, None] = {unit: None}
        stack = [unit]
        while stack:
            current = stack.pop()
            for each in current.facts.scopes[0].imports if current.facts is not None and current.facts.scopes else ():
                base = self.graph.absolute(current, each.module, each.level) if each.names == ("*",) else None
                inner = None if base is None else self.graph.unit(base)
                if inner is not None and inner not in seen:
                    seen[inner] = None
                    stack.append(inner)
        return tuple([(each, "") for each in seen]), all(each.prepared for each in seen)


class Reflection:
    """What one closure looks through."""

    def __init__(self, kin: _Kin) -> None:
        self._kin = kin
        self._asked: dict[tuple[Unit, str, str], None] = {}  # module, dotted name, class around: not yet looked for
        self._handed: dict[tuple[Unit, str], None] = {}
        self._seen_handed: set[tuple[Unit, str]] = set()
        self._seen_asked: set[tuple[Unit, str, str]] = set()
        self._through: dict[_Thing, bool] = {}  # what is looked through; whether by those who inherit too
        self._closed: dict[_Thing, None] = {}  # what of it is not reached
        self._any = False  # reached code looks through what it is given
        self._entered = 0  # how many of the reached modules have been seen
        self._logged = 0
        self._widened = 0
        self._state = (0, 0, 0, 0)

    @classmethod
    def of(cls, graph: Graph) -> Reflection:
        """Start for a graph."""
        return cls(_Kin(graph))

    def fork(self) -> Reflection:
        """Return an independent copy."""
        twin = Reflection(self._kin)
        for name, value in vars(self).items():
            vars(twin)[name] = type(value)(value) if isinstance(value, dict | set) else value
        return twin

    def saw(self, block: Block) -> None:
        """Take note of reached code."""
        for scope in block.scopes:
            if scope.reflects or scope.handed:
                for name in scope.reflects:
                    if name == "?":
                        self._any = True
                        continue
                    ask = block.unit, name, _owner(scope.qualname) if name in _OWN else ""
                    if ask not in self._seen_asked:
                        self._seen_asked.add(ask)
                        self._asked[ask] = None
                for name in scope.handed:
                    if (block.unit, name) not in self._seen_handed:
                        self._seen_handed.add((block.unit, name))
                        self._handed[block.unit, name] = None

    def _now(self, reach: Reaching) -> tuple[int, int, int, int]:
        handed = len(self._seen_handed) if self._any else 0
        return len(self._seen_asked), handed, len(reach.level), len(reach.graph.widened)

    def waits(self, reach: Reaching) -> bool:
        """Tell whether there is anything to look at."""
        return self._state != self._now(reach)

    def match(self, reach: Reaching) -> None:
        """Reach the functions of what is looked through, as far as it is reached itself."""
        kin = self._kin
        kin.renew()
        for unit in islice(reach.level, self._entered, None):
            kin.relate(unit)
        self._entered = len(reach.level)
        if self._widened != len(reach.graph.widened):
            self._widened = len(reach.graph.widened)
            self._asked.update(dict.fromkeys(self._seen_asked))
            self._handed.update(dict.fromkeys(self._seen_handed))
        for thing in [thing for thing in self._closed if thing[0] in reach.level]:
            del self._closed[thing]
            self._open(reach, *thing)
        for class_, base in islice(kin.log, self._logged, None):
            if self._through.get(base):
                self._look(reach, class_, True)
            if class_ in self._through:
                self._look(reach, base, False)
        self._logged = len(kin.log)
        for ask in list(self._asked):
            self._answer(reach, *ask)
        for unit, name in list(self._handed) if self._any else ():
            things, known = kin.things(unit, name)
            if known:
                del self._handed[unit, name]
            for thing in things:
                if not thing[1]:
                    self._look(reach, thing, False)
        self._state = self._now(reach)

    def _answer(self, reach: Reaching, unit: Unit, name: str, around: str) -> None:
        if name in _OWN:
            del self._asked[unit, name, around]
            if around:
                self._look(reach, (unit, around), True)
            return
        things, known = self._kin.things(unit, name)
        if known:
            del self._asked[unit, name, around]
        if not things and not _imports(unit, name):
            self._any = True
        for thing in things:
            self._look(reach, thing, False)

    def _look(self, reach: Reaching, thing: _Thing, heirs: bool) -> None:
        """Count a module or class as looked through, a class with its bases and, where asked for, its heirs."""
        stack = [(thing, heirs)]
        while stack:
            thing, heirs = stack.pop()
            known = self._through.get(thing)
            if known or (known is False and not heirs):
                continue
            self._through[thing] = heirs
            if known is None:
                if thing[0] in reach.level:
                    self._open(reach, *thing)
                else:
                    self._closed[thing] = None
                stack += [(base, False) for base in self._kin.above.get(thing, ())]
            if heirs:
                stack += [(class_, True) for class_ in self._kin.below.get(thing, ())]

    def _open(self, reach: Reaching, unit: Unit, owner: str) -> None:
        for block in self._kin.blocks(unit, owner):
            reach.run_block(block)
        for name in () if owner else unit.lazy:
            reach.ask_lazy(unit, name)


def _imports(unit: Unit, name: str) -> bool:
    """Tell whether a dotted name is what a module imports, so that it is nothing else."""
    if unit.facts is None or name.startswith("."):
        return True
    first = name.partition(".")[0]
    return first in unit.facts.binds and any(
        first in (each.module.partition(".")[0], *each.names) for scope in unit.facts.scopes for each in scope.imports
    )


def _owner(qualname: str) -> str:
    """Return the name of the class that a function, or the function around it, belongs to."""
    return qualname.partition(".<locals>")[0].rpartition(".")[0].rpartition(".")[2]
