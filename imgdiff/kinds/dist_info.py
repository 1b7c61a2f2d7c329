"""Files of a dist-info or egg-info directory (PyPA "Recording installed projects", "Core metadata"), ``.pth`` files."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from imgdiff.kinds._lines import MAX_LISTED, MAX_TEXT, count_lines, text
from imgdiff.model import Delta

VERSION = 1

# What installers and resolvers read, and importlib.metadata gives out: no code follows from it but through a
# version, which the verdict looks at.
_METADATA = frozenset(
    {
        "RECORD",
        "INSTALLER",
        "WHEEL",
        "REQUESTED",
        "direct_url.json",
        "uv_cache.json",
        "top_level.txt",
        "METADATA",
        "PKG-INFO",
    }
)
_CORE = frozenset({"METADATA", "PKG-INFO"})


def delta(path: bytes, a: bytes | None, b: bytes | None, *, both: bool = True) -> Delta:
    """Compare one file of a dist-info (or a ``.pth``) in two images; a side that lacks it is None.

    ``both`` says that both images have this distribution's dist-info: only then is a file of it mere metadata.
    """
    name = path.rpartition(b"/")[2].decode("utf-8", "surrogateescape")
    parent = path.rpartition(b"/")[0]
    if name.endswith(".pth"):
        return _steering(a, b, "The lines of a .pth file differ: they extend sys.path or run at start-up.")
    if name == "entry_points.txt":
        return _steering(a, b, "The entry points differ: they decide what is loaded.")
    inside = parent.endswith((b".dist-info", b".egg-info"))
    if not inside or name not in _METADATA:
        return Delta("data", "A file that comes with a distribution's metadata differs.", _lines(a, b))
    if not both:
        return Delta("data", "The distribution's metadata is in one image only.", {"file": name})
    if name in _CORE:
        return _core_metadata(name, a, b)
    return Delta("metadata", f"{name} differs: installers read it.", {"file": name, **_lines(a, b)})


def _lines(a: bytes | None, b: bytes | None) -> dict[str, Any]:
    return {"lines": count_lines(a or b"", b or b"")}


def _steering(a: bytes | None, b: bytes | None, reason: str) -> Delta:
    lines_a, lines_b = Counter((a or b"").splitlines()), Counter((b or b"").splitlines())
    added, removed = sorted((lines_b - lines_a).elements()), sorted((lines_a - lines_b).elements())
    detail: dict[str, Any] = {"lines": {"added": len(added), "removed": len(removed)}}
    for key, lines in (("added", added), ("removed", removed)):
        if lines:
            detail[key] = [text(line) for line in lines[:MAX_LISTED]]
    return Delta("code", reason, detail)


def _core_metadata(name: str, a: bytes | None, b: bytes | None) -> Delta:
    if a is None or b is None:
        return Delta("code", f"{name} is in one image only: without it a distribution has no name.", {"file": name})
    fields_a, fields_b = fields(a), fields(b)
    names = [_project(found) for found in (fields_a, fields_b)]
    differing = sorted(
        field for field in fields_a.keys() | fields_b.keys() if fields_a.get(field) != fields_b.get(field)
    )
    detail: dict[str, Any] = {"file": name, "fields": [field[:MAX_TEXT] for field in differing[:MAX_LISTED]]}
    if "version" in differing:
        detail["version"] = {"a": _single(fields_a, "version"), "b": _single(fields_b, "version")}
    if "requires-dist" in differing:
        required_a, required_b = fields_a.get("requires-dist", Counter()), fields_b.get("requires-dist", Counter())
        detail["requires"] = {
            "added": [line[:MAX_TEXT] for line in sorted((required_b - required_a).elements())[:MAX_LISTED]],
            "removed": [line[:MAX_TEXT] for line in sorted((required_a - required_b).elements())[:MAX_LISTED]],
        }
    if None in names or names[0] != names[1]:
        detail["name"] = {"a": _single(fields_a, "name"), "b": _single(fields_b, "name")}
        return Delta("code", f"{name} names another distribution.", detail)
    what = ", ".join(detail["fields"][:8]) if differing else "layout"
    return Delta("metadata", f"{name} differs in {what}.", detail)


_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*:[ \t]*(.*)\Z", re.DOTALL)


def fields(metadata: bytes) -> dict[str, Counter[str]]:
    """Return the fields of core metadata by lower-case name, each with its values; the text below the headers is
    the field ``description``. Lines that are no field are counted under the empty name."""
    found: dict[str, Counter[str]] = {}
    content = metadata.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    header, _, body = content.partition("\n\n")
    for line in re.split(r"\n(?![ \t])", header):
        match = _FIELD.match(line)
        key, value = (match[1].lower(), match[2].strip()) if match else ("", line)
        if key or value:
            found.setdefault(key, Counter())[value] += 1
    if body.strip():
        found.setdefault("description", Counter())[body.strip()] += 1
    return found


def _single(found: dict[str, Counter[str]], field: str) -> str | None:
    values = sorted(found.get(field, ()))
    return values[0][:MAX_TEXT] if values else None


def _project(found: dict[str, Counter[str]]) -> str | None:
    """Return the one project name, normalised (PEP 503); None if there is none or more than one."""
    values = list(found.get("name", ()))
    return re.sub(r"[-_.]+", "-", values[0]).lower() if len(values) == 1 else None
