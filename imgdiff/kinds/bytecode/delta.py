"""What differs between two ``.pyc`` files, and between a ``.pyc`` and the source that runs in its place."""

from __future__ import annotations

from typing import Any

from imgdiff.kinds.bytecode._header import HEADER_SIZE, Header, HeaderError, UnknownMagicError, read_header
from imgdiff.kinds.bytecode.compilers import CompileError, Compilers
from imgdiff.kinds.bytecode.equality import CodeDifference, differences
from imgdiff.kinds.bytecode.marshal_reader import MarshalError, load
from imgdiff.model import Delta

SAME_BODY = "Only the header of the bytecode differs: the bodies behind it are equal."
SAME_CODE = "The code objects are equal by type and value; only positions, file names, references or the header differ."
MAX_NAMES = 50
"""Qualified names that a detail lists at most, for each list."""


def delta(a: bytes, b: bytes) -> Delta:
    """Compare two whole ``.pyc`` files that Python would both run (whether it does is not asked here).

    Noise with a proof, else code: what can't be read or is of two minors is code, and the reason says so.
    """
    headers = _header(a), _header(b)
    header_a, header_b = headers
    if isinstance(header_a, str) or isinstance(header_b, str):
        reasons = [f"in {side} {header}" for side, header in zip("ab", headers, strict=True) if isinstance(header, str)]
        return Delta("code", f"The bytecode can't be compared: {'; '.join(reasons)}.")
    detail: dict[str, Any] = {"python": {"a": header_a.python, "b": header_b.python}}
    if header_a.magic != header_b.magic:
        what = f"Python {header_a.python} and {header_b.python}"
        what += "" if header_a.minor != header_b.minor else f" (magic numbers {header_a.magic} and {header_b.magic})"
        return Delta("code", f"The bytecode is for different Pythons: {what}.", detail)
    if a[HEADER_SIZE:] == b[HEADER_SIZE:]:
        return Delta("noise", SAME_BODY, detail)
    return compare_bodies(a[HEADER_SIZE:], b[HEADER_SIZE:], header_b.minor, detail)


def _header(data: bytes) -> Header | str:
    try:
        return read_header(data)
    except HeaderError as error:
        return str(error)


def compare_bodies(a: bytes, b: bytes, minor: tuple[int, int], detail: dict[str, Any]) -> Delta:
    """Compare two marshalled code objects of one minor; ``detail`` is carried on."""
    codes = []
    for side, body in (("a", a), ("b", b)):
        try:
            codes.append(load(body, minor))
        except MarshalError as error:
            return Delta("code", f"The bytecode in {side} can't be read: {error}.", detail)
    found = differences(codes[0], codes[1], minor)
    if not found:
        return Delta("noise", SAME_CODE, detail)
    first = found[0]
    what = f"{first.qualname} ({', '.join(first.fields) or first.status})"
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return Delta("code", f"The code objects differ: {what}{more}.", {**detail, **describe(found)})


def describe(found: tuple[CodeDifference, ...]) -> dict[str, Any]:
    """Return the differing code objects as details for the report, bounded."""
    fields = list(dict.fromkeys(field for difference in found for field in difference.fields))
    by_status: dict[str, list[str]] = {"changed": [], "added": [], "removed": []}
    for difference in found:
        by_status[difference.status].append(difference.qualname)
    counts = {f"{status}_count": len(names) for status, names in by_status.items() if len(names) > MAX_NAMES}
    listed = {status: [name[:200] for name in names[:MAX_NAMES]] for status, names in by_status.items() if names}
    return {"functions": {**listed, **counts}, "fields": fields}


def against_source(pyc: bytes, source: bytes, optimize: int, compilers: Compilers, side: str) -> Delta:
    """Compare a ``.pyc`` that Python runs in one image (``side``: "a" or "b") with the source that it runs
    in the other.

    Noise where compiling the source gives equal code; code where it doesn't; code with ``settle`` set where no
    Python of that magic number is at hand.
    """
    other = "b" if side == "a" else "a"
    runs = f"Python runs the bytecode in {side} and the source in {other}"
    try:
        header = read_header(pyc)
    except UnknownMagicError as error:
        return Delta("code", f"{runs}, if it accepts the bytecode: {error}.")
    except HeaderError as error:
        return Delta("code", f"The bytecode in {side} can't be read: {error}.")
    detail: dict[str, Any] = {"python": {side: header.python}}
    try:
        compiled = compilers.compile(source, header.magic, optimize)
    except CompileError as error:
        return Delta("code", f"{runs}, which {error}.", detail)
    if compiled is None:
        return Delta(
            "code",
            f"{runs}; whether they are equal is open, since no Python {header.python} (magic number {header.magic}) "
            "is at hand to compile the source.",
            detail,
            settle=f"Run imgdiff where Python {header.python} is installed, to compile the source and compare.",
        )
    body = pyc[HEADER_SIZE:]
    result = compare_bodies(*((body, compiled) if side == "a" else (compiled, body)), header.minor, detail)
    if result.effect == "noise":
        reason = f"{runs}; compiled by Python {header.python}, the source gives equal code."
    else:
        reason = f"{runs}. {result.reason}"
    return Delta(result.effect, reason, result.detail)
