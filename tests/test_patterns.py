"""The patterns of the package must mean the same on every Python that it runs on, 3.11.0 too."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest

import imgdiff

# Before CPython 3.11.5 "(...)*+" takes what "(...)*" would not (gh-106052); "(?>(...)*)" is right on all.
POSSESSIVE_GROUP = re.compile(r"(?<!\\)(?:\\\\)*\)(?:[*+?]|\{\d*,?\d*\})\+")


def patterns() -> Iterator[tuple[str, str]]:
    for module in pkgutil.walk_packages(imgdiff.__path__, "imgdiff."):
        if ".mounted." in module.name or module.name.endswith(".__main__"):
            continue  # the recorder's own runs where it is mounted
        for name, value in vars(importlib.import_module(module.name)).items():
            yield from ((f"{module.name}.{name}", text) for text in texts(value))


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, re.Pattern):
        yield value.pattern if isinstance(value.pattern, str) else value.pattern.decode("latin-1")
    elif isinstance(value, (tuple, list, set, frozenset)):
        for each in value:
            yield from texts(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)


def test_no_group_is_possessive() -> None:
    found = dict(patterns())
    assert len(found) > 50
    assert [name for name, text in found.items() if POSSESSIVE_GROUP.search(text)] == []


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("(ab?c)*+", True),
        (r"\)*+", False),
        (r"(a\\)++", True),
        ("(?>(?:a)*)", False),
        ("a*+", False),
        ("(a){2,}+", True),
    ],
)
def test_a_possessive_group_is_seen(text: str, bad: bool) -> None:
    assert bool(POSSESSIVE_GROUP.search(text)) is bad
