"""Whose everything is: a merged file system in, its owners, their claims and what does not fit out. Pure."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from imgdiff.model import Attribution, Distribution, FileEntry, Side, Texts, Tree
from imgdiff.owners import FINDERS, Ledger, Records, check_integrity, open_ledger, versionless_path

__all__ = ["Records", "Roots", "attribute", "owner_root", "owner_roots"]


def attribute(tree: Tree, texts: Texts, side: Side, records: Records | None = None) -> Attribution:
    """Return whose every regular file and symlink of the tree is.

    ``texts`` has the content of the small files that match ``owners.KEPT_PATTERNS``. Every regular file and symlink
    has at least one claim. ``records`` keeps what was made of RECORDs: give both images of a pair the same one, and
    what they share is made once. What could not be read is in ``blindspots``; nothing raises, whatever the
    image holds.
    """
    ledger = Ledger(tree, texts, side, records)
    open_ledger(ledger)
    for find in FINDERS:
        find(ledger)
    check_integrity(ledger)
    return Attribution(
        owners=tuple(ledger.owners),
        claims=ledger.claims,
        distributions=tuple(ledger.distributions),
        environments=ledger.environments,
        integrity=tuple(sorted(ledger.integrity, key=lambda note: (note.code, note.path or b"", note.message))),
        blindspots=tuple(sorted(ledger.blindspots, key=lambda spot: (spot.path or b"", spot.what, spot.reason))),
    )


# --------------------------------------------------------------------------------------------------------------------
# Root hashes of owners
# --------------------------------------------------------------------------------------------------------------------

# What the installer makes, so that two installs of one wheel have one root.
_MADE_BY_INSTALLER = frozenset({b"RECORD", b"INSTALLER", b"REQUESTED", b"direct_url.json", b"uv_cache.json"})
_ESCAPED = re.compile(rb"[\\\n\r]")  # by sha256sum, in a path
_SCRIPT_GROUPS = frozenset({"console_scripts", "gui_scripts"})


def owner_root(attribution: Attribution, tree: Tree, owner_index: int) -> str:
    r"""Return the root hash of one owner as 64 hexadecimal digits; empty where it can't be told (no files, or one whose
    content could not be read).

    The SHA-256 of the owner's files as lines ``HEX  PATH\n`` (format and escapes of sha256sum), sorted by bytes of the
    path. A symlink counts by its text. For a wheel: the existing files that its RECORD lists, as RECORD spells them,
    the version taken out of its dist-info's name, without what the installer makes: RECORD, INSTALLER, REQUESTED,
    direct_url.json, uv_cache.json in the dist-info, console and GUI scripts, ``__pycache__``. For any other owner: all
    its files by their path relative to it. In site-packages, for the wheel ``vllm``::

        set -- vllm-[0-9]*.dist-info; d=$(printf %s "$1" | sed 's/[.+]/\\&/g')
        n=$(sed -n '/^\[\(console\|gui\)_scripts\]/,/^\[/s/^\([^=[]*[^=[ ]\) *=.*/\1/p' \
          "$1/entry_points.txt" 2>/dev/null | paste -sd'|' | sed 's/[.+]/\\&/g')
        sed -E 's/\r$//; t r; :r; s/^"(.*)",[^,]*,[^,]*$/\1/; t q; s/,[^,]*,[^,]*$//; b; :q; s/""/"/g' "$1/RECORD" |
          grep -Ev "(^|/)__pycache__/|^$d/(RECORD|INSTALLER|REQUESTED|direct_url.json|uv_cache.json)$" |
          grep -Ev "^(\.\./)+bin/(${n:-/})(-?[0-9]+(\.[0-9]+)*)?$" | sort -u | while IFS= read -r f; do
            if [ -L "$f" ]; then printf '%s  %s\n' "$(readlink -n "$f" | sha256sum | cut -c1-64)" "$f"
            elif [ -f "$f" ]; then sha256sum "$f"; fi
          done | sed "s|  $1/|  ${1%%-[0-9]*}.dist-info/|" | LC_ALL=C sort -k2 | sha256sum
    """
    return _roots(attribution, tree, [owner_index])[owner_index]


# By the dist-infos of a wheel's owner: its distributions, what stands at the paths that they list, and the root hash.
Roots = dict[tuple[bytes, ...], tuple[list[Distribution], list[FileEntry | None], str]]


def owner_roots(attribution: Attribution, tree: Tree, known: Roots | None = None) -> dict[int, str]:
    """Return :func:`owner_root` of every owner, by its index. ``known`` keeps the roots of wheels: give both images of
    a pair the same one, and what is equal in both is hashed once."""
    return _roots(attribution, tree, range(len(attribution.owners)), known)


def _roots(attribution: Attribution, tree: Tree, wanted: Iterable[int], known: Roots | None = None) -> dict[int, str]:
    indexes = list(wanted)
    recorded: dict[int, list[Distribution]] = defaultdict(list)
    for distribution in attribution.distributions:
        if attribution.owners[distribution.owner].kind == "wheel" and distribution.recorded:
            recorded[distribution.owner].append(distribution)
    others = [index for index in indexes if index not in recorded]
    files = _files_of(attribution, frozenset(others))
    roots = {}
    for index in indexes:
        if index in recorded:
            roots[index] = _recorded_root(tree, recorded[index], known)
        else:
            roots[index] = _root(tree, files.get(index, []))
    return roots


def _recorded_root(tree: Tree, distributions: list[Distribution], known: Roots | None) -> str:
    if known is None:
        return _root(tree, _recorded_files(distributions))
    key = tuple(distribution.info for distribution in distributions)
    entries = [tree.entries.get(path) for each in distributions for path, _, _ in each.recorded]
    held = known.get(key)
    if held is not None and entries == held[1] and all(map(_alike, distributions, held[0])):
        return held[2]
    root = _root(tree, _recorded_files(distributions))
    known[key] = distributions, entries, root
    return root


def _alike(a: Distribution, b: Distribution) -> bool:
    """Tell whether all is equal that :func:`_recorded_files` looks at, the info being the same."""
    return a.site == b.site and a.entry_points == b.entry_points and a.recorded == b.recorded


def _files_of(attribution: Attribution, wanted: frozenset[int]) -> dict[int, list[tuple[bytes, bytes]]]:
    """By owner: (path, relative path) of every file it claims."""
    files: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    for path, claims in attribution.claims.items():
        for claim in claims:
            if claim.owner in wanted:
                files[claim.owner].append((path, claim.relative))
    return files


def _recorded_files(distributions: Iterable[Distribution]) -> Iterator[tuple[bytes, bytes]]:
    """(path, path as RECORD spells it without the version) of what the wheel itself brought."""
    for distribution in distributions:
        folder = distribution.info.rpartition(b"/")[2]
        script = _script_pattern(distribution)
        for path, spelled, _ in distribution.recorded:
            if b"__pycache__/" in spelled and (spelled.startswith(b"__pycache__/") or b"/__pycache__/" in spelled):
                continue
            if spelled.startswith(b"../../") and path.startswith(distribution.site + b"/"):
                continue  # moved by pip after RECORD was written (--target): not where RECORD says
            first, _, rest = spelled.partition(b"/")
            if (first == folder and rest in _MADE_BY_INSTALLER) or (script is not None and script.fullmatch(spelled)):
                continue
            yield path, versionless_path(spelled, folder)


def _script_pattern(distribution: Distribution) -> re.Pattern[bytes] | None:
    names = [name for group, name, _ in distribution.entry_points if group in _SCRIPT_GROUPS]
    if not names:
        return None
    # pip writes its own scripts once more with the version behind the name: pip3.12.
    either = b"|".join(re.escape(name.encode("utf-8", "surrogateescape")) for name in names)
    return re.compile(rb"(?:\.\./)+bin/(?:" + either + rb")(?:-?\d+(?:\.\d+)*)?")


def _root(tree: Tree, files: Iterable[tuple[bytes, bytes]]) -> str:
    lines: dict[tuple[bytes, bytes], bytes] = {}
    for path, relative in files:
        entry = tree.entries.get(path)
        if entry is None or entry.type not in ("file", "symlink"):
            continue
        digest = _content(entry)
        if digest is None:
            return ""
        escaped, mark = relative, b""
        if _ESCAPED.search(relative) is not None:
            escaped = relative.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
            mark = b"\\"
        lines[escaped, path] = b"%s%s  %s\n" % (mark, digest.hex().encode(), escaped)
    if not lines:
        return ""
    return hashlib.sha256(b"".join(lines[key] for key in sorted(lines))).hexdigest()


def _content(entry: FileEntry) -> bytes | None:
    if entry.type == "symlink":
        return hashlib.sha256(entry.link_target or b"").digest()
    return entry.digest
