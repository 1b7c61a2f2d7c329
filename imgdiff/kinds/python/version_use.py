"""Where one function of a source takes a version, read from its syntax tree: what is logged decides nothing.

Only what is proven is left out: a variable of another module, and a value that goes to a log or to the ``--version`` of
argparse, which ends the process. Everything else is named with its line and its text, ``print`` too: what stands on
stdout can be read by who redirected it, or by the process that started this one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

import msgspec

from imgdiff.kinds._facts import parse
from imgdiff.kinds.python.delta import MAX_SOURCE, VERSION_NAMES

METADATA_CALLS = frozenset(
    {"version", "distribution", "metadata", "requires", "files", "from_name", "get_distribution", "require",
     "packages_distributions"}
)  # fmt: skip
_LOG = frozenset({"debug", "info", "warning", "error", "critical", "exception"})
_LOGGERS = frozenset({"getLogger", "init_logger", "get_logger"})
_LOOKS_ANYWHERE = frozenset({"exec", "eval", "globals", "locals", "vars"})
_ASKS_METADATA = frozenset({"importlib.metadata", "importlib_metadata", "pkg_resources"})
_SAYS_VERSION = re.compile(r"version|(?:^|_)ver(?:_|$|\d)", re.I)
_REQUIRED = re.compile(r"\s*([A-Za-z0-9_](?:[\w.-]*\w)?)\s*(?:$|[\[<>=!~;(@])", re.ASCII)  # a name, or PEP 508's form
_MAX_TEXT = 60

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Taken(msgspec.Struct, frozen=True):
    """A place that takes the version: its line, and the code that does something with it. ``maybe``: a name that only
    sounds like it."""

    line: int
    text: str
    maybe: bool = False


class _Binding(msgspec.Struct, frozen=True):
    """What binds a name: an import of ``module`` (None: relative), or of ``original`` from it; else neither."""

    kind: str  # "import", "from", "none", "argument" or "other"
    module: str | None = None
    original: str = ""


def takes(source: bytes, function: str | None, names: Collection[str]) -> tuple[Taken, ...] | None:
    """Return where this function (None: the module's body) takes the version of a distribution, by line, what
    only sounds like it last.

    ``names`` are those of the distribution and of its import packages. Nothing is returned where it provably takes
    none, or only logs it; None where that can't be told.
    """
    tree = parse(source) if len(source) <= MAX_SOURCE else None
    if tree is None:
        return None
    try:
        chain = _chain(tree, function)
        return None if chain is None else _Reading(tree, chain, names).run()
    except RecursionError:
        return None


def _chain(tree: ast.Module, function: str | None) -> list[_Function] | None:
    """Return the functions from the outermost to the one of this qualified name; None if it is not just one."""
    found: list[list[_Function]] = [[]] if function is None else []
    pending: list[tuple[ast.AST, str, list[_Function]]] = [(tree, "", [])]
    while pending and function is not None:
        node, prefix, chain = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                if prefix + child.name == function:
                    found.append([*chain, child])
                pending.append((child, f"{prefix}{child.name}.<locals>.", [*chain, child]))
            elif isinstance(child, ast.ClassDef):
                pending.append((child, f"{prefix}{child.name}.", chain))
            else:
                pending.append((child, prefix, chain))
    return found[0] if len(found) == 1 else None


class _Reading:
    """One function, with the scopes around it."""

    def __init__(self, tree: ast.Module, chain: Sequence[_Function], names: Collection[str]) -> None:
        self._tree = tree
        self._inside = bool(chain)
        self._names = {_normal(name) for name in names}
        self._tops = {name.replace("-", "_") for name in names} | set(names)
        self._nodes = list(_own(chain[-1].body if chain else tree.body))
        self._parents = {child: node for node in self._nodes for child in ast.iter_child_nodes(node)}
        scopes = [_bindings(each.body, each.args) for each in reversed(chain)]
        self._scopes = [*scopes, _bindings(tree.body, None)]
        for node in ast.walk(tree):
            if isinstance(node, ast.Global | ast.Nonlocal):
                for name in node.names:
                    for scope in self._scopes:
                        scope.setdefault(name, []).append(_Binding("other"))
        self._held: set[str] = set()  # local names that hold the version
        self._taken: dict[Taken, None] = {}

    def run(self) -> tuple[Taken, ...] | None:
        """Return the places, or None where what the code looks at can't be told."""
        if any(self._hides(node) for node in self._nodes) or any(
            isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
            for node in ast.walk(self._tree)
        ):
            return None
        for node in self._nodes:
            if isinstance(node, ast.expr) and self._gives(node):
                self._follow(node)
            if isinstance(node, ast.ImportFrom):
                self._imported(node)
        done: set[str] = set()
        while self._held - done:
            name = min(self._held - done)
            done.add(name)
            self._loads(name)
        return tuple(sorted(self._taken, key=lambda taken: (taken.maybe, taken.line, taken.text)))

    def _hides(self, node: ast.AST) -> bool:
        """Tell whether a node can give a version by a name that does not stand in the code as one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in VERSION_NAMES:
            return not _is_version_action(self._parents.get(node))
        if isinstance(node, ast.Name) and node.id in self._tops:  # the package, or what took its name
            return any(each.kind not in ("import", "from", "none") for each in self._bound(node.id))
        if isinstance(node, ast.Name) and node.id in _LOOKS_ANYWHERE:
            return True
        if isinstance(node, ast.MatchClass) and node.kwd_attrs:  # case Module(__version__=name)
            return True
        if isinstance(node, ast.Attribute) and node.attr in ("__dict__", "modules"):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            return len(node.args) < 2 or not isinstance(node.args[1], ast.Constant)
        return False

    # ----------------------------------------------------------------------------------------------------------------
    # What gives the version
    # ----------------------------------------------------------------------------------------------------------------

    def _gives(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Attribute):
            called = self._is_called(node)
            return _says_version(node.attr) and _loads(node) and not called and not self._of_another(node)
        if isinstance(node, ast.Name):
            if not _loads(node) or self._is_called(node):
                return False
            kept = _says_version(node.id) or any(_says_version(each.original) for each in self._bound(node.id))
            return kept and not self._from_another(node.id) and not self._is_own(node.id)
        return isinstance(node, ast.Call) and self._asks(node)

    def _is_called(self, node: ast.expr) -> bool:
        """Tell whether this is the function of a call that is looked at as one."""
        parent = self._parents.get(node)
        return isinstance(parent, ast.Call) and parent.func is node and self._callee(parent) in METADATA_CALLS

    def _callee(self, call: ast.Call) -> str:
        if isinstance(call.func, ast.Attribute):
            return call.func.attr
        if isinstance(call.func, ast.Name):
            originals = {each.original for each in self._bound(call.func.id) if each.kind == "from"}
            return min(originals & METADATA_CALLS, default=call.func.id)
        return ""

    def _asks(self, call: ast.Call) -> bool:
        """Tell whether a call can give the version: it asks for metadata, or is told the distribution's name."""
        told = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(isinstance(each, ast.Constant) and self._is_ours(each.value) for each in told):
            return True
        if self._callee(call) not in METADATA_CALLS:
            return False
        first = call.args[0] if call.args else None
        other = isinstance(first, ast.Constant) and isinstance(first.value, str)
        return not (other and self._is_of_metadata(call.func))

    def _is_of_metadata(self, function: ast.expr) -> bool:
        """Tell whether a function is one that looks up a distribution's metadata by name: another of its name can be
        told anything."""
        dotted = _dotted(function)
        top = dotted.partition(".")[0]
        bound = [each for each in self._bound(top) if each.kind != "none"]
        origins = set()
        for each in bound:
            whole = each.module if each.kind == "import" else f"{each.module}.{each.original}"
            if each.kind not in ("import", "from") or each.module is None:
                return False
            origins.add(f"{whole}{dotted[len(top) :]}".rpartition(".")[0])
        return bool(origins) and origins <= _ASKS_METADATA

    def _is_ours(self, value: object) -> bool:
        """Tell whether a text names the distribution: its own name or package, or a requirement (``dep[x]>=1``)."""
        required = _REQUIRED.match(value) if isinstance(value, str) else None
        if not isinstance(value, str):
            return False
        named = required is not None and _normal(required[1]) in self._names
        return named or value.partition(".")[0] in self._tops

    def _bound(self, name: str) -> list[_Binding]:
        return next((scope[name] for scope in self._scopes if name in scope), [])

    def _of_another(self, node: ast.Attribute) -> bool:
        """Tell whether this is a variable of a module that is imported whole and is none of the distribution's."""
        dotted = _dotted(node.value)
        top = dotted.partition(".")[0]
        bound = [each for each in self._bound(top) if each.kind != "none"]
        if not dotted or not bound or any(each.kind != "import" for each in bound):
            return False
        if not all(self._is_foreign(each) for each in bound):
            return False
        # ``import a.b`` binds a: that a.b is a module, and no name that a holds, must be said by an import
        return dotted == top or any(each.original == dotted for each in bound)

    def _from_another(self, name: str) -> bool:
        bound = [each for each in self._bound(name) if each.kind != "none"]
        return bool(bound) and all(each.kind in ("from", "import") and self._is_foreign(each) for each in bound)

    def _is_foreign(self, bound: _Binding) -> bool:
        """Tell whether an import is one of another distribution's, and gives nothing that asks for metadata."""
        modules = {bound.module, bound.original, f"{bound.module}.{bound.original}"}
        return (
            bound.module is not None
            and bound.module.partition(".")[0] not in self._tops
            and _ASKS_METADATA.isdisjoint(modules - {None})
        )

    def _is_own(self, name: str) -> bool:
        """Tell whether a name holds nothing but what this function gives it: that is followed where it is given."""
        bound = self._scopes[0].get(name, []) if self._inside else []
        return bool(bound) and all(each.kind in ("other", "none") for each in bound)

    def _imported(self, node: ast.ImportFrom) -> None:
        """Take an import of the version as a place where others can read it, where it is no local name."""
        for alias in node.names if node.module not in _ASKS_METADATA else ():  # a function, not what it gives
            name = alias.asname or alias.name
            if alias.name in VERSION_NAMES and not self._from_another(name) and not self._is_local(node, name):
                self._take(node, node)

    # ----------------------------------------------------------------------------------------------------------------
    # Where it goes
    # ----------------------------------------------------------------------------------------------------------------

    def _loads(self, name: str) -> None:
        for node in self._nodes:
            if isinstance(node, ast.Name) and node.id == name and _loads(node):
                self._follow(node)

    def _follow(self, node: ast.expr) -> None:
        """Follow a value up to what is done with it."""
        start = node
        while True:
            parent = self._parents.get(node)
            if isinstance(parent, ast.keyword):
                call = self._parents.get(parent)
                if isinstance(call, ast.Call) and parent.arg == "version" and _is_version_call(call):
                    return
                self._take(start, call or node)
                return
            if isinstance(parent, ast.Call) and parent.func is not node and self._logs(parent):
                return
            if isinstance(parent, ast.FormattedValue) and parent.value is node:
                joined = self._parents.get(parent)
                if isinstance(joined, ast.JoinedStr):
                    node = joined
                    continue
            if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
                target = parent.targets[0]
                if isinstance(target, ast.Name) and self._is_local(parent, target.id):
                    self._held.add(target.id)
                    return
            self._take(start, parent or node)
            return

    def _is_local(self, node: ast.stmt, name: str) -> bool:
        """Tell whether a name that a statement binds is seen by this function alone, and by none inside it."""
        if not self._inside:
            return False
        parent = self._parents.get(node)
        while parent is not None:
            if isinstance(parent, ast.ClassDef):
                return False
            parent = self._parents.get(parent)
        declared = {
            each for other in self._nodes if isinstance(other, ast.Global | ast.Nonlocal) for each in other.names
        }
        inner = [each for each in self._nodes if isinstance(each, (*_FUNCTIONS, ast.Lambda))]
        seen = {each.id for function in inner for each in ast.walk(function) if isinstance(each, ast.Name)}
        return name not in declared and name not in seen

    def _logs(self, call: ast.Call) -> bool:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _LOG:
            return False
        base = call.func.value
        if not isinstance(base, ast.Name) or any(base.id in scope for scope in self._scopes[:-1]):
            return False
        if [each.module for each in self._bound(base.id) if each.kind == "import"] == ["logging"]:
            return len(self._bound(base.id)) == 1
        made = [each for each in self._tree.body if isinstance(each, ast.Assign) and _binds(each, base.id)]
        return len(made) == len(self._bound(base.id)) == 1 and _makes_logger(made[0].value)

    def _take(self, start: ast.expr | ast.stmt, shown: ast.AST) -> None:
        while isinstance(shown, ast.FormattedValue | ast.JoinedStr | ast.Attribute | ast.Subscript):
            above = self._parents.get(shown)
            if above is None or isinstance(above, ast.If | ast.While | ast.With):
                break
            shown = above
        if isinstance(shown, ast.If | ast.While | ast.IfExp | ast.Assert):
            shown = shown.test
        elif isinstance(shown, ast.For | ast.AsyncFor):
            shown = shown.iter
        elif not isinstance(shown, ast.expr | ast.stmt | ast.keyword):
            shown = start
        text = " ".join(ast.unparse(shown).split())
        text = text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 4] + " ..."
        self._taken[Taken(start.lineno, text, self._only_sounds(start))] = None

    def _only_sounds(self, node: ast.expr | ast.stmt) -> bool:
        if isinstance(node, ast.Attribute):
            return node.attr not in VERSION_NAMES
        if not isinstance(node, ast.Name) or node.id in self._held or node.id in VERSION_NAMES:
            return False
        return not any(each.original in VERSION_NAMES for each in self._bound(node.id))


# --------------------------------------------------------------------------------------------------------------------
# Helpers
# --------------------------------------------------------------------------------------------------------------------


def _own(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the nodes that run with a body, in no order: functions inside it count, their bodies don't."""
    pending: list[ast.AST] = list(body)
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, _FUNCTIONS):
            pending += [*node.decorator_list, node.args]
        else:
            pending += ast.iter_child_nodes(node)


def _bindings(body: Sequence[ast.stmt], arguments: ast.arguments | None) -> dict[str, list[_Binding]]:
    """Return what binds each name of a scope. Class bodies and comprehensions count with what holds them: that adds
    bindings, and so can only make a name less certain."""
    found: dict[str, list[_Binding]] = {}

    def add(name: str, binding: _Binding) -> None:
        found.setdefault(name, []).append(binding)

    nothing: set[ast.expr] = set()
    for node in _own(body):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is None:
            nothing.update(node.targets)
    for node in _own(body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                add(alias.asname or module, _Binding("import", module, alias.name if not alias.asname else ""))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module_name = None if node.level else node.module
                add(alias.asname or alias.name, _Binding("from", module_name, alias.name))
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            add(node.id, _Binding("none" if node in nothing else "other"))
        elif name := _names(node):
            add(name, _Binding("other"))
    for node in ast.walk(arguments) if arguments is not None else ():
        if isinstance(node, ast.arg):
            add(node.arg, _Binding("argument"))
    return found


def _names(node: ast.AST) -> str | None:
    """Return the name that a node binds which is neither an import nor a ``Name``: also a lambda's arguments."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.alias):
        return None
    return getattr(node, "name", None) or getattr(node, "rest", None)


def _normal(name: str) -> str:
    """Return a distribution's name as names are compared (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _says_version(name: str) -> bool:
    return name in VERSION_NAMES or _SAYS_VERSION.search(name) is not None


def _loads(node: ast.Name | ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Load)


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _binds(node: ast.Assign, name: str) -> bool:
    return len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name


def _makes_logger(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] in _LOGGERS


def _is_version_action(node: ast.AST | None) -> bool:
    return isinstance(node, ast.keyword) and node.arg == "action"


def _is_version_call(call: ast.Call) -> bool:
    """Tell whether a call adds argparse's ``--version``, which prints its text and exits."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "add_argument":
        return False
    actions = [each.value for each in call.keywords if each.arg == "action"]
    return len(actions) == 1 and isinstance(actions[0], ast.Constant) and actions[0].value == "version"
