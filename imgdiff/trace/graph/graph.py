"""The graph of modules of one image under one search path: what each block of code refers to.

A unit is one module. Its code is cut into blocks that are reached together: the module body, the functions that
count as reached with it, what runs only where it is the main module, and each function that waits for its name.
Everything here depends on the image alone; which blocks a role reaches is the closure's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from imgdiff.kinds import python
from imgdiff.model import (
    HOLE,
    FactSource,
    ModuleFacts,
    Pattern,
    Scope,
    Unreadable,
)
from imgdiff.trace.finder.resolver import Found, FoundKind, Resolver
from imgdiff.trace.graph import calls
from imgdiff.trace.graph.blocks import DOTTED, Block, Unit, fill, harmless
from imgdiff.trace.graph.left_out import Narrowing

_VENDORS = (
    "_vendor",
    "_vendored",
    "vendor",
    "vendored",
    "_vendored_packages",
    "extern",
    "externals",
    "third_party",
    "thirdparty",
)
_ALIASES = {"distutils": "setuptools._distutils"}  # by _distutils_hack, from setuptools 60 on


class Graph:
    """Every module that one search path can reach, made as it is asked for."""

    def __init__(self, resolver: Resolver, facts: FactSource) -> None:
        self.resolver, self.facts = resolver, facts
        self._units: dict[str, Unit | None] = {}
        self._by_path: dict[bytes, Unit] = {}
        self._strings: dict[str, tuple[Unit, ...]] = {}
        self._patterns: dict[tuple[str, bool], tuple[Unit, ...]] = {}
        self._below: dict[str, tuple[str, ...]] = {}
        self._lasts: dict[str, dict[str, list[str]]] = {}
        self._tops: frozenset[str] | None = None
        self.again: dict[str, Unit] = {}  # main modules as spawned children run them
        self.narrowing: Narrowing | None = None  # what assumptions leave out
        self.widened: list[str] = []  # packages that turned out wider, in the order in which that was found

    # Units ----------------------------------------------------------------------------------------------------------

    def unit(self, name: str) -> Unit | None:
        """Return the module of this name, or None if no file or directory gives it."""
        if name in self._units:
            return self._units[name]
        found = self.resolver.find(name)
        unit = None
        if found is not None:
            parent, _, _ = name.rpartition(".")
            unit = Unit(name, found, self.unit(parent) if parent else None)
            if found.path is not None:
                self._by_path.setdefault(found.path, unit)
        self._units[name] = unit
        return unit

    def unit_at(self, path: bytes, name: str | None = None) -> Unit:
        """Return the module that runs this file: as it is imported, else under a name of its own."""
        if path in self._by_path:
            return self._by_path[path]
        for candidate in self.resolver.names_of(path):
            unit = self.unit(candidate)
            if unit is not None and unit.path == path:
                return unit
        kind: FoundKind = "source"
        if path.endswith(b".pyc"):
            kind = "bytecode"
        elif path.endswith(b".so"):
            kind = "extension"
        label = name or "/" + path.decode("utf-8", "backslashreplace")
        unit = self._by_path[path] = Unit(label, Found(label, path, kind), None)
        if name is None:
            unit.package = ""
        return unit

    def unit_of(self, code: str) -> Unit | None:
        """Return the module ``__main__`` that runs the code of ``python -c``, which lies in no file; None if it can't
        be read: a part that only a run can tell is a hole."""
        found = python.facts(code.encode("utf-8", "surrogateescape")) if HOLE not in code else None
        if not isinstance(found, ModuleFacts):
            return None
        unit = Unit("__main__", Found("__main__", None, "source"), None)
        unit.package, unit.prepared, unit.facts = "", True, found
        self._cut(unit, found)
        return unit

    def prepare(self, units: Iterable[Unit]) -> None:
        """Have the facts of these units ready, and their code cut into blocks."""
        fresh = [unit for unit in units if not unit.prepared]
        self.facts.prefetch(
            [unit.path for unit in fresh if unit.path is not None and unit.kind in ("source", "bytecode")]
        )
        for unit in fresh:
            if not unit.prepared:
                unit.prepared = True
                if unit.path is not None and unit.kind in ("source", "bytecode"):
                    found = self.facts.module(unit.path)
                    if isinstance(found, Unreadable):
                        unit.problem = found.reason
                    else:
                        unit.facts = found
                        self._cut(unit, found)

    def _cut(self, unit: Unit, facts: ModuleFacts) -> None:
        main: list[Scope] = []
        always: list[Scope] = []
        groups: dict[str, list[Scope]] = {}
        gated: dict[str, list[Scope]] = {}
        for scope in facts.scopes[1:]:
            root = scope.qualname.partition(".<locals>")[0]
            if root == "<main>" or root.startswith("<main>."):
                main.append(scope)
            else:
                groups.setdefault(root, []).append(scope)
        for root, scopes in groups.items():
            gate = root.rpartition(".")[2]
            registered = any(
                not harmless(decorator) for scope in scopes if scope.qualname == root for decorator in scope.decorators
            )
            if registered or not gate.isidentifier() or (gate.startswith("__") and gate.endswith("__")):
                always += scopes
            else:
                gated.setdefault(gate, []).extend(scopes)
        unit.gated = [Block(unit, "gated", scopes, gate) for gate, scopes in gated.items()]
        unit.body = Block(unit, "body", list(facts.scopes[:1]))
        unit.main = Block(unit, "main", main) if main else None
        unit.always = Block(unit, "always", always) if always else None
        table: dict[str, list[str]] = {}
        for name, module in facts.lazy:
            table.setdefault(name, []).append(module)
        unit.lazy = {name: tuple(modules) for name, modules in table.items()}
        self._widen(unit, facts)

    def _widen(self, unit: Unit, facts: ModuleFacts) -> None:
        """A package whose code changes ``__path__``: its submodules may lie elsewhere on the search path too."""
        body = facts.scopes[0] if facts.scopes else None
        if not unit.found.portions or body is None:
            return
        if body.names.isdisjoint(("__path__", "extend_path", "declare_namespace")):
            return
        tree = self.resolver.tree
        tail = unit.name.replace(".", "/").encode()
        directories = [tree.resolve(tail, directory) for directory in self.resolver.search.directories]
        for pattern in sorted(body.patterns | body.strings):
            filled = fill(pattern, unit)
            if HOLE not in filled:
                directories.append(tree.resolve(filled.encode("utf-8", "surrogateescape"), unit.found.portions[0]))
        kept = tuple(each for each in directories if each and each not in unit.found.portions and tree.is_dir(each))
        if kept:
            self.resolver.widen(unit.name, kept)
            self.widened.append(unit.name)
            for name in [
                each for each, known in self._units.items() if known is None and each.startswith(unit.name + ".")
            ]:
                del self._units[name]

    # Names ----------------------------------------------------------------------------------------------------------

    def absolute(self, unit: Unit, module: str, level: int) -> str | None:
        """Return the absolute name of an import statement's module; None beyond the top-level package."""
        if not level:
            return module
        parts = unit.package.split(".") if unit.package else []
        if level - 1 >= len(parts):
            return None
        base = ".".join(parts[: len(parts) - level + 1])
        return f"{base}.{module}" if module else base

    def nearest(self, name: str, unit: Unit) -> tuple[Unit | None, bool]:
        """Return the module of this name, else a vendored copy (and True), else its nearest existing parent."""
        found = self.unit(name)
        if found is not None:
            return found, False
        for candidate in self._vendored(name, unit):
            found = self.unit(candidate)
            if found is not None:
                return found, True
        while "." in name:
            name = name.rpartition(".")[0]
            found = self.unit(name)
            if found is not None:
                return found, False
        return None, False

    def _vendored(self, name: str, unit: Unit) -> Iterator[str]:
        top, _, rest = name.partition(".")
        if top in _ALIASES:
            yield _ALIASES[top] + (f".{rest}" if rest else "")
        parts = name.split(".")
        for index, part in enumerate(parts[1:-1], 1):
            if part in _VENDORS or part in ("packages", "moves"):
                tail = ".".join(parts[index + 1 :])
                yield from (f"{parts[0]}.{vendor}.{tail}" for vendor in _VENDORS)
                yield tail
        package = unit.package
        while package:
            yield from (f"{package}.{vendor}.{name}" for vendor in _VENDORS)
            package = package.rpartition(".")[0]

    def by_string(self, text: str, package: str) -> tuple[Unit, ...]:
        """Return what a dotted string names: the module itself, or the one that holds the attribute."""
        key = text if not text.startswith(".") else f"{package}|{text}"
        known = self._strings.get(key)
        if known is None:
            known = self._strings[key] = self._by_string(text, package)
        return known

    def _by_string(self, text: str, package: str) -> tuple[Unit, ...]:
        match = DOTTED.fullmatch(text)
        if match is None:
            return ()
        dots, name = match[1], match[2]
        if dots:
            parts = package.split(".") if package else []
            if len(dots) > len(parts):
                return ()
            name = ".".join([*parts[: len(parts) - len(dots) + 1], name])
            unit = self.unit(name)
            return (unit,) if unit is not None else ()
        if "." not in name and ":" not in text:
            return ()
        while name:
            unit = self.unit(name)
            if unit is not None:
                return (unit,)
            name = name.rpartition(".")[0]
        return ()

    def by_pattern(self, pattern: Pattern, loose: bool) -> tuple[Unit, ...]:
        """Return the modules that a pattern with a package as its literal start can name.

        ``loose``: a top-level package alone is enough (the pattern goes to an import, or holds ``__name__``).
        """
        key = (pattern, loose)
        known = self._patterns.get(key)
        if known is None:
            known = self._patterns[key] = self._by_pattern(pattern, loose)
        return known

    def _by_pattern(self, pattern: Pattern, loose: bool) -> tuple[Unit, ...]:
        literal = pattern.partition(HOLE)[0]
        package, dot, _ = literal.rpartition(".")
        if not dot or not all(part.isidentifier() for part in package.split(".")):
            return ()
        if "." not in package and not loose:
            return ()
        found = self.unit(package)
        if found is None or not found.found.portions:
            return ()
        module = pattern.partition(":")[0]
        regex = re.compile("".join(".*" if part == HOLE else re.escape(part) for part in re.split(f"({HOLE})", module)))
        names = self.below(package) if "." in package else self.resolver.submodules(package)
        units = (self.unit(name) for name in names if regex.fullmatch(name))
        exact = tuple(unit for unit in units if unit is not None)
        if exact or HOLE in module.rpartition(".")[2]:
            return exact
        # "pkg.{x}.Class": what stands behind the last dot may be an attribute.
        return self._by_pattern(module.rpartition(".")[0], loose)

    def below(self, package: str) -> tuple[str, ...]:
        """Return the names of all modules below a package."""
        known = self._below.get(package)
        if known is None:
            known = self._below[package] = tuple(self.resolver.below(package))
        return known

    def lasts(self, top: str) -> dict[str, list[str]]:
        """Return the modules below a top-level package by every proper tail of their name."""
        known = self._lasts.get(top)
        if known is None:
            known = {}
            for name in self.below(top):
                tail = name.partition(".")[2]
                while tail:
                    known.setdefault(tail, []).append(name)
                    tail = tail.partition(".")[2]
            self._lasts[top] = known
        return known

    def tops(self) -> frozenset[str]:
        """Return every importable top-level name."""
        if self._tops is None:
            self._tops = self.resolver.top_names()
        return self._tops

    # Calls ----------------------------------------------------------------------------------------------------------

    def called_name(self, use: calls.Use, unit: Unit) -> str | None:
        """Return the absolute pattern that an import call asks for."""
        if use.name is None:
            return None
        name = fill(use.name, unit)
        if not name.startswith("."):
            return name
        package = unit.package if use.package is None else fill(use.package, unit)
        if package == HOLE:
            package = unit.package
        dots = len(name) - len(name.lstrip("."))
        parts = package.split(".")
        if dots > len(parts):
            return None
        return ".".join([*parts[: len(parts) - dots + 1], name[dots:]])

    def by_import_call(self, use: calls.Use, unit: Unit) -> list[Unit]:
        """Return what an import call can load, as far as its argument folds."""
        name = self.called_name(use, unit)
        if name is None:
            return []
        if HOLE in name:
            package = name.partition(HOLE)[0].rpartition(".")[0]
            above = self.unit(package) if package else None  # the parts that are joined may be no more than these
            return [*([above] if above else ()), *self.by_pattern(name, loose=True), *self._by_prefix(name)]
        found, _ = self.nearest(name.partition(":")[0], unit)
        return [] if found is None else [found]

    def _by_prefix(self, pattern: Pattern) -> Iterator[Unit]:
        """``import_module(f"opt_{x}")``: the top-level modules whose names begin so, and what it names below."""
        top, _, rest = pattern.partition(":")[0].partition(".")
        if top.startswith(HOLE) or HOLE not in top:
            return
        regex = re.compile(".*".join(map(re.escape, top.split(HOLE))))
        for name in sorted(self.tops()):
            if regex.fullmatch(name):
                below = self.by_pattern(f"{name}.{rest}", loose=True) if HOLE in rest else ()
                exact = (self.unit(name), self.unit(f"{name}.{rest}") if rest and HOLE not in rest else None)
                yield from (unit for unit in (*exact, *below) if unit is not None)

    def walked(self, use: calls.Use, block: Block) -> list[str]:
        """Return the names that a package walk can yield: the package that it is given, else its own and those that
        the same code imports."""
        packages: list[str] = []
        if use.name is not None:
            name = fill(use.name, block.unit)
            if HOLE not in name and "/" in name:
                packages += self.resolver.names_of(name.strip("/").encode() + b"/__init__.py")
            elif HOLE not in name:
                packages.append(name.rstrip("."))
        if use.package:
            packages.append(fill(use.package, block.unit).rstrip("."))
        packages = [each for each in packages if self.unit(each) is not None]
        if not packages:
            body = block.unit.body
            near = [*block.imports, *(body.imports if body is not None else [])]
            packages = [block.unit.package, *(target.name for target, *_ in near if target.found.portions)]
        names: list[str] = []
        for package in dict.fromkeys(packages):
            if package:
                names += self.below(package) if use.deep else self.resolver.submodules(package)
        return names

    def by_path_call(self, use: calls.Use, unit: Unit) -> list[Unit]:
        """Return what a call loads by path, as far as it folds: the file, else the module that it is named after."""
        if use.path is not None:
            path = fill(use.path, unit)
            if HOLE not in path and path.startswith("/"):
                found = self.resolver.tree.resolve(path.encode("utf-8", "surrogateescape"))
                entry = None if found is None else self.resolver.tree.get(found)
                return [self.unit_at(found)] if found is not None and entry is not None and entry.type == "file" else []
        if use.name is not None and HOLE not in use.name:
            found_unit = self.unit(use.name)
            if found_unit is not None:
                return [found_unit]
        return []
