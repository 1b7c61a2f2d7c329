"""What other tools think a program can import, from the same roots; ``trust.py`` runs it where they are installed.

    python others.py TOOL < {"paths": [...], "roots": [...], "script": null} > {"files": [...], "seconds": ..., ...}

``modulefinder`` is the standard library's; ``modulegraph`` is PyInstaller's own (``PyInstaller.lib.modulegraph``),
without its hooks; ``grimp`` builds the graph of all packages with an ``__init__.py`` and goes up from the roots,
or from what a root outside of them imports. The
Python that runs it must be of the version of the one whose packages are looked at: all three parse them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path


def modulefinder(paths: list[str], roots: list[str], script: str | None) -> set[str]:
    from modulefinder import ModuleFinder

    finder = ModuleFinder(paths)
    if script is not None:
        finder.run_script(script)
    for root in roots:
        finder.import_hook(root)
    files = (getattr(module, "__file__", None) for module in finder.modules.values())
    return {file for file in files if file}


def modulegraph(paths: list[str], roots: list[str], script: str | None) -> set[str]:
    from PyInstaller.lib.modulegraph.modulegraph import ModuleGraph  # type: ignore[import-not-found,import-untyped,unused-ignore]

    graph = ModuleGraph(paths)
    if script is not None:
        graph.add_script(script)
    for root in roots:
        graph.import_hook(root)
    return {node.filename for node in graph.iter_graph() if node.filename and Path(node.filename).is_file()}


def grimp(paths: list[str], roots: list[str], script: str | None) -> set[str]:
    import grimp as library  # type: ignore[import-not-found,import-untyped,unused-ignore]

    sys.path[:0] = paths
    places: dict[str, Path] = {}
    for path in reversed(paths):
        if path.endswith(("site-packages", "dist-packages")):
            places.update({each.parent.name: each.parent for each in Path(path).glob("*/__init__.py")})
    graph = library.build_graph(*sorted(places), cache_dir=None)
    alone = [Path(path, f"{root}.py") for root in roots if root not in graph.modules for path in paths]
    for file in [each for each in (*alone, *([Path(script)] if script else ())) if each.is_file()]:
        roots = [*roots, *_imports(file)]
    names: set[str] = set()
    for root in roots:
        if root in graph.modules:
            names |= {root, *graph.find_upstream_modules(root)}
    files = set()
    for name in names:
        first, _, rest = name.partition(".")
        stem = places[first].joinpath(*rest.split(".")) if rest else places[first]
        files |= {str(each) for each in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")) if each.is_file()}
    return files


def _imports(script: Path) -> list[str]:
    import ast

    found = []
    for node in ast.walk(ast.parse(script.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


TOOLS: dict[str, Callable[[list[str], list[str], str | None], set[str]]] = {
    "modulefinder": modulefinder,
    "grimp": grimp,
    "modulegraph": modulegraph,
}


def main() -> None:
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(20_000)
    asked = json.load(sys.stdin)
    start = time.process_time()
    files = TOOLS[sys.argv[1]](asked["paths"], asked["roots"], asked["script"])
    spent = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    json.dump({"files": sorted(files), "seconds": spent, "peak": peak}, sys.stdout)


if __name__ == "__main__":
    main()
