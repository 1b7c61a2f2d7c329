"""What a report for people shows, and in which order; shared by the formats that people read.

Nothing here changes the verdict or a count: ``only`` and ``loaded`` narrow what is shown.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

import msgspec

from imgdiff.model import (
    LEVELS,
    WHEEL_SOURCE,
    Bears,
    ConfigChange,
    Delta,
    Evidence,
    ImageSummary,
    JudgedChange,
    Level,
    OwnerRow,
    Report,
)

_STRENGTH = {level: position for position, level in enumerate(LEVELS)}
LOADED: frozenset[Level] = frozenset({"recorded", "eager", "deferred"})
_WEIGHT: dict[Bears, int] = {"stands": 0, "undecided": 1, "none": 2}

MOST_NAMES = 8  # of functions or keys that are all named

EXIT_CODES = {"identical": 0, "killed": 0, "stands": 1, "undecided": 3}


class View(msgspec.Struct, frozen=True):
    """What a user asked to see. ``only``: owners' names (empty: all). ``verbose``: 0, 1 (all rows, whole chains), 2
    (every file of every group)."""

    only: tuple[str, ...] = ()
    loaded: bool = False
    verbose: int = 0


def identity(image: ImageSummary) -> tuple[str, str] | None:
    """Return by which digest an image is known, and whose that is: its manifest's, its config's, or the wheel's."""
    if image.manifest_digest is not None:
        return "manifest", image.manifest_digest
    if image.config_digest is not None:
        return "config", image.config_digest
    if image.source == WHEEL_SOURCE and image.layers and image.layers[0][1] is not None:
        return "file", image.layers[0][1]
    return None


def safe(text: str) -> str:
    """Return text that moves no cursor and hides nothing: control, format and bidi characters are escaped."""
    if text.isprintable():
        return text
    return "".join(_safe_character(character) for character in text)


def closed(text: str) -> str:
    """Return the start of a sentence that was cut, without what stands behind a parenthesis that it leaves open."""
    opened: list[int] = []
    for position, character in enumerate(text):
        if character == "(":
            opened.append(position)
        elif character == ")" and opened:
            opened.pop()
    return text[: opened[0]].rstrip(" ,;:") if opened and text[: opened[0]].strip() else text


def _safe_character(character: str) -> str:
    if character.isprintable() and unicodedata.category(character) != "Cf":
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def path_text(path: bytes) -> str:
    """Return an absolute path that is safe to show."""
    return safe("/" + path.decode("utf-8", "backslashreplace"))


def number(value: int) -> str:
    """Return a count with thousands separators, or "" for none."""
    return f"{value:,}" if value else ""


def counted(value: int, noun: str) -> str:
    """Return "1 file" or "2 files"."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def share(shown: int, total: int) -> str:
    """Return "8", or "2 of 8" where the view leaves some out."""
    return f"{total:,}" if shown == total else f"{shown:,} of {total:,}"


def mtime_text(files: int) -> str:
    """Return how many files differ in nothing but their modification time."""
    return f"{counted(files, 'file')} {'differs in its' if files == 1 else 'differ in their'} modification time alone"


def narrowing(view: View) -> str:
    """Return a sentence that says what the view leaves out, or ""."""
    said = [*(f"--only {safe(name)}" for name in view.only), *(["--loaded"] if view.loaded else [])]
    return f"Narrowed by {' '.join(said)}; the verdict is of everything." if said else ""


def config_changes(report: Report) -> list[ConfigChange]:
    """Return the differences of the configs, what bears first."""
    return sorted(report.config, key=lambda change: _WEIGHT[change.bears])


class Resolution(msgspec.Struct, frozen=True):
    """A name that leads elsewhere, with all roles of which that is true. ``a`` and ``b`` are paths as shown, ``said``
    is the level, and what a recording settles."""

    what: str
    name: str
    level: Level
    a: str | None
    b: str | None
    said: str
    roles: list[str]


def resolutions(report: Report) -> list[Resolution]:
    """Return the names that resolve differently, each once, those that are loaded most surely first."""
    found: dict[tuple[str, str, Level, str | None, str | None, str], Resolution] = {}
    for item in report.resolution:
        a, b = (None if end is None else path_text(end.path) for end in (item.a, item.b))
        said = item.level if item.settled is None else f"{item.level}, {item.settled}"
        key = item.kind, item.name, item.level, a, b, said
        found.setdefault(key, Resolution(*key, [])).roles.append(item.role)
    return sorted(found.values(), key=lambda each: _STRENGTH[each.level])


def integrity(report: Report) -> list[tuple[str, str, str]]:
    """Return (sides, message, code) of what does not fit inside an image; what is true of one side only comes first."""
    said: dict[tuple[str, str], list[str]] = {}
    for item in report.integrity:
        said.setdefault((item.message, item.code), []).append(item.image)
    lines = [(" and ".join(dict.fromkeys(sides)), message, code_) for (message, code_), sides in said.items()]
    return sorted(lines, key=lambda line: len(line[0]))


class Blind(msgspec.Struct, frozen=True):
    """A blindspot, with the sides and the roles of which it is true."""

    sides: str
    what: str
    path: str | None
    reason: str
    roles: list[str]


def blindspots(report: Report) -> list[Blind]:
    """Return the blindspots, each once; those that block a role come first."""
    said: dict[tuple[str, bytes | None, str, tuple[str, ...]], list[str]] = {}
    for spot in report.blindspots:
        sides = said.setdefault((spot.what, spot.path, spot.reason, tuple(spot.roles)), [])
        sides += [spot.image] if spot.image else []
    found = [
        Blind(" and ".join(dict.fromkeys(sides)), what, None if path is None else path_text(path), reason, list(roles))
        for (what, path, reason, roles), sides in said.items()
    ]
    return sorted(found, key=lambda spot: not spot.roles)


def unresolved(report: Report) -> list[str]:
    """Return the places of reached code that import by a computed name, or run a file by a computed path."""
    lines = []
    for each in report.unresolved_imports:
        sides = "" if len(each.images) == 2 else f"{''.join(each.images)}: "
        function = f" ({safe(each.function)})" if each.function else ""
        roles = "" if set(each.roles) == set(report.roles) else f", by {safe(', '.join(each.roles))}"
        lines.append(f"{sides}{path_text(each.path)}:{each.line}{function}: {each.what} {safe(each.name)}{roles}")
    return lines


def caveats(report: Report) -> list[str]:
    """Return what the verdict doesn't cover, as lines under a title that says so: by weight, what is true of every
    report last. Those on recordings stand under a title of their own."""
    said = set(recordings(report))
    return [text.removeprefix("Not covered: ") for text in report.verdict.caveats if text not in said]


def recordings(report: Report) -> list[str]:
    """Return what is said of the recordings that were given."""
    return [text for run in report.recordings for text in run.said]


def size_text(value: int) -> str:
    """Return a size in the unit that reads best."""
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:,.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:,.1f} {unit}"
        amount /= 1000
    raise AssertionError


def strongest(judged: JudgedChange, roles: Sequence[str]) -> tuple[str, Evidence]:
    """Return the role of these that loads it most surely, and its evidence."""
    return min(((role, judged.load[role]) for role in roles), key=lambda pair: _STRENGTH[pair[1].level])


def shown_changes(report: Report, view: View) -> list[JudgedChange]:
    """Return the changes that the user asked to see: what bears first, then by strength of evidence, then by path."""
    roles = tuple(report.roles)
    claim = report.verdict.claim

    def key(judged: JudgedChange) -> tuple[int, int, int, bytes]:
        weight = min(_WEIGHT[judged.bears[role]] for role in claim)
        other = min(_WEIGHT[judged.bears[role]] for role in roles)
        return weight, other, _STRENGTH[strongest(judged, roles)[1].level], judged.change.path

    return sorted((judged for judged in report.changes if _asked_for(judged, view, roles)), key=key)


def _asked_for(judged: JudgedChange, view: View, roles: Sequence[str]) -> bool:
    if view.only and not {*judged.owner_names_a, *judged.owner_names_b}.intersection(view.only):
        return False
    return not view.loaded or strongest(judged, roles)[1].level in LOADED


def weighs(judged: JudgedChange) -> bool:
    """Tell whether a change bears on any role."""
    return any(weight != "none" for weight in judged.bears.values())


def owner_rows(report: Report, view: View) -> tuple[list[OwnerRow], list[OwnerRow]]:
    """Return the owners that differ (most loaded first) and those that are the same to the byte."""
    rows = [row for row in report.owners if not view.only or row.name in view.only]
    differing = [row for row in rows if differences(row)]
    if view.loaded:
        names = {name for each in shown_changes(report, view) for name in (*each.owner_names_a, *each.owner_names_b)}
        differing = [row for row in differing if row.name in names]
    same = [row for row in rows if not differences(row)]
    differing.sort(key=lambda row: (-row.loaded, row.kind == "unowned", -differences(row), row.name))
    return differing, same


def differences(row: OwnerRow) -> int:
    """Return how many entries of an owner differ in any way."""
    tally = row.tally
    return tally.modified + tally.added + tally.removed + tally.retyped + tally.moved + tally.attributes


def version_text(row: OwnerRow) -> str:
    """Return "1.0" or "1.0 -> 1.1" or "- -> 1.1"."""
    a = None if row.tally.a is None else row.tally.a.version
    b = None if row.tally.b is None else row.tally.b.version
    if a == b and (a is None or (row.tally.a is not None and row.tally.b is not None)):
        return safe(a or "")
    return f"{safe(a or '-')} \u2192 {safe(b or '-')}"


def chain_text(evidence: Evidence) -> str:
    """Return a chain as one line: ``a -> b ~f~> c``, a tilde arrow naming the function that holds a deferred step. A
    last hop that is a path has its file name alone, since the chain stands under that path."""
    parts: list[str] = []
    last = len(evidence.chain) - 1
    for position, hop in enumerate(evidence.chain):
        if position:
            function = evidence.chain[position - 1].function
            inside = hop.edge in ("deferred", "dormant", "dynamic", "lazy", "program") and function
            parts.append(f" ~{safe(function)}~> " if inside and function else " -> ")
        shown = path_text(hop.path.rpartition(b"/")[2]).removeprefix("/") if position == last else path_text(hop.path)
        parts.append(safe(hop.module) if hop.module else shown)
    return "".join(parts)


def chain_steps(evidence: Evidence) -> Iterator[str]:
    """Yield each step of a chain as ``edge module (path:line, function)``."""
    for hop in evidence.chain:
        place = path_text(hop.path) + (f":{hop.line}" if hop.line is not None else "")
        function = f", {safe(hop.function)}" if hop.function else ""
        name = f"{safe(hop.module)} " if hop.module else ""
        yield f"{hop.edge}: {name}({place}{function})"


def effect_text(judged: JudgedChange) -> str:
    """Return "modified, code" and the like."""
    change = judged.change
    if change.delta is None or change.status in ("moved", "attributes"):
        return change.status
    return f"{change.status}, {change.delta.effect}"


def moved_text(judged: JudgedChange) -> str:
    """Return the path, with the old one where it differs."""
    change = judged.change
    if change.path_a is not None and change.path_b is not None and change.path_a != change.path_b:
        return _both(change.path_a.split(b"/"), change.path_b.split(b"/"))
    return path_text(change.path)


def _both(a: list[bytes], b: list[bytes]) -> str:
    """Return two paths as one, as git shows a rename: ``/opt/{x-1.dist-info → x-2.dist-info}/RECORD``."""
    shorter = min(len(a), len(b)) - 1
    head = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    tail = next((i for i in range(shorter - head) if a[-1 - i] != b[-1 - i]), shorter - head)
    middle = [b"/".join(parts[head : len(parts) - tail]) for parts in (a, b)]
    if not head and not tail:
        return f"{path_text(middle[0])} \u2192 {path_text(middle[1])}"
    before, after = (b"/".join(parts) for parts in (a[:head], a[len(a) - tail :]))
    changed = " \u2192 ".join(path_text(each).removeprefix("/") for each in middle)
    return (path_text(before).rstrip("/") if head else "") + "/{" + changed + "}" + (path_text(after) if tail else "")


class Same(msgspec.Struct, frozen=True):
    """Changes that are explained and loaded alike: ``members`` are (paths, what differs, lines of a diff), ``evidence``
    the roles with one thing said of them, and the evidence for it."""

    members: list[tuple[list[str], str, tuple[str, ...]]]
    evidence: list[tuple[list[str], str, Evidence]]


def alike(changes: Sequence[JudgedChange], roles: Sequence[str]) -> list[Same]:
    """Put together changes of one owner whose roles load them alike (a module's source and its bytecode, the files of
    one dist-info), in the order of the first of each."""
    grouped: dict[object, list[JudgedChange]] = {}
    for judged in changes:
        grouped.setdefault((owners_text(judged), tuple(_said(judged, role) for role in roles)), []).append(judged)
    found: list[Same] = []
    for members in grouped.values():
        members.sort(key=lambda judged: judged.change.path.endswith(b".pyc"))  # what a person wrote first
        texts: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for judged in members:
            texts.setdefault((_what(judged), diff_lines(judged)), []).append(moved_text(judged))
        said: dict[str, tuple[list[str], Evidence]] = {}
        for role in roles:
            said.setdefault(_said(members[0], role), ([], members[0].load[role]))[0].append(role)
        evidence = [(names, text, proof) for text, (names, proof) in said.items()]
        found.append(Same([(paths, text, diff) for (text, diff), paths in texts.items()], evidence))
    return found


def owners_text(judged: JudgedChange) -> str:
    """Return the owners' names, b's first."""
    return safe(", ".join(dict.fromkeys((*judged.owner_names_b, *judged.owner_names_a))))


def _what(judged: JudgedChange) -> str:
    delta = judged.change.delta
    reason = "" if delta is None else f": {safe(_named(delta))}"
    return f"{effect_text(judged)} [{owners_text(judged)}]{reason}"


def _named(delta: Delta) -> str:
    """Return the reason; with all functions or keys that differ, where it names just the first of a few."""
    functions, keys = delta.detail.get("functions"), delta.detail.get("keys")
    lists = functions if isinstance(functions, dict) else {"changed": keys}
    named: dict[str, list[str]] = {
        word: names for word in ("changed", "added", "removed") if isinstance(names := lists.get(word), list)
    }
    if delta.detail.get("kind") == "bytecode" or not 1 < sum(map(len, named.values())) <= MOST_NAMES:
        return delta.reason
    said = "; ".join(f"{word} {', '.join(names)}" for word, names in named.items() if names)
    if functions is not None:  # what follows the colon is the first of these, and how many there are
        return f"{delta.reason.partition(':')[0]}: {said}."
    return f"{delta.reason} {said[:1].upper()}{said[1:]}."


def diff_lines(judged: JudgedChange) -> tuple[str, ...]:
    """Return the lines of a change's diff, safe to show, with a last one that says what was left out."""
    diff = {} if judged.change.delta is None else judged.change.delta.detail.get("diff", {})
    left_out = diff.get("left_out", 0)
    more = (f"... and {left_out:,} more lines",) if left_out else ()
    return (*(safe(line.replace("\t", "    ")) for line in diff.get("lines", ())), *more)


def _said(judged: JudgedChange, role: str) -> str:
    evidence, weight = judged.load[role], judged.bears[role]
    why = chain_text(evidence) or safe(evidence.note or "")
    how = f", {evidence.how}" if evidence.how is not None else ""
    bears = "does not bear" if weight == "none" else weight
    recorded = evidence.settled or evidence.disputed
    said = f"{evidence.level}{how} ({bears}{f', {recorded}' if recorded else ''})"
    return said + (f": {why}" if why else "")


def groups(changes: Sequence[JudgedChange], roles: Sequence[str]) -> list[tuple[str, str, list[JudgedChange]]]:
    """Group changes that bear on nobody by (why they don't, owner), largest first."""
    grouped: dict[tuple[str, str], list[JudgedChange]] = {}
    for judged in changes:
        level = strongest(judged, roles)[1].level
        owner = next(iter((*judged.owner_names_b, *judged.owner_names_a)), "unowned")
        grouped.setdefault((_why_not(judged, level), owner), []).append(judged)
    return [
        (why, owner, members)
        for (why, owner), members in sorted(grouped.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _why_not(judged: JudgedChange, level: Level) -> str:
    change = judged.change
    if change.status == "moved":
        return "moved, the bytes are the same"
    if level == "outside":
        return "read by no engine (outside)"
    if level == "unreached":
        return "never loaded (unreached)"
    if change.status == "attributes":
        return "attributes only"
    if change.delta is not None and change.delta.effect in ("noise", "metadata"):
        return f"{change.delta.effect}: {safe(change.delta.reason).rstrip('.')}"
    if any(evidence.settled is not None for evidence in judged.load.values()):
        return "not loaded in the recorded run"
    return f"accepted as {level}"
