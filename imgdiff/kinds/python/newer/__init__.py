"""Sources whose grammar is newer than that of the Python that runs imgdiff.

What is newer is written in older words, line for line, and then parsed by the host's own parser, so that one grammar
and one extractor judge all sources: what no Python 3 would take, this one does not take either. Known are type
parameters, their defaults and ``type`` statements (PEP 695, 696), f-strings of any nesting (PEP 701), template strings
(PEP 750), ``except A, B:`` (PEP 758), unpacking in comprehensions (PEP 798) and ``lazy import`` (PEP 810).
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings

from imgdiff.kinds.python.newer._restore import restore
from imgdiff.kinds.python.newer._rewrite import Rewriter
from imgdiff.kinds.python.newer._tokens import MisfitError, tokens
from imgdiff.model import Unreadable

__all__ = ["MAX_SIZE", "NEWEST", "VERSION", "parse"]

VERSION = 1
"""Of what is known of newer grammars: what could not be read is cached too."""
NEWEST = "3.15"
"""The Python whose grammar is known."""
MAX_SIZE = 4 * 1024 * 1024
"""Bytes of a source that are rewritten at most."""


def parse(source: bytes, *, every: bool = False) -> ast.Module | Unreadable:
    """Return the syntax tree of a source that the host's ``ast.parse`` refuses; Unreadable where no grammar fits.

    The tree is the host's, with the lines of the source. Newer nodes are those of ``_nodes``; a template string is
    read as an f-string: what it is made into is not known, and a pattern names more. ``every``: rewrite f-strings
    that the host could parse as well (for tests).
    """
    if len(source) > MAX_SIZE:
        return Unreadable(
            f"The Python that runs imgdiff can't parse this source, and it is larger than {MAX_SIZE} bytes."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _parse(_decode(source), every)
        except MisfitError as error:
            return _misfit(error.line)
        except SyntaxError as error:
            return _misfit(error.lineno)
        except (ValueError, LookupError, OverflowError):
            return _misfit(None)
        except (RecursionError, MemoryError):
            return Unreadable("The source nests too deeply.")


def _misfit(line: int | None) -> Unreadable:
    where = f" (line {line})" if line else ""
    return Unreadable(f"No grammar up to Python {NEWEST} fits this source{where}.")


def _decode(source: bytes) -> str:
    """Return the text as Python reads it (PEP 263), lines ended by ``\\n``."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    text = source.decode(encoding)
    if "\0" in text:
        raise MisfitError(text.count("\n", 0, text.index("\0")) + 1)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parse(text: str, every: bool) -> ast.Module:
    rewriter = Rewriter(text, every=every)
    older = rewriter.run(tokens(text))
    tree = ast.parse(older)
    restore(tree, rewriter.found)
    return tree
