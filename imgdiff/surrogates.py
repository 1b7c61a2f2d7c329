"""Lone surrogates: Python and JSON can write them in a string, and no encoding of text holds them."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def encodable(value: T) -> T:
    r"""Return a struct as it is where it can be encoded, else with each lone surrogate written out (``\ud800``)."""
    try:
        msgspec.msgpack.encode(value)
    except UnicodeEncodeError:
        plain = _written_out(msgspec.to_builtins(value, builtin_types=(bytes,)))
        return msgspec.convert(plain, type(value), builtin_types=(bytes,))
    return value


def _written_out(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple | set | frozenset):
        return [_written_out(item) for item in value]
    if isinstance(value, dict):
        return {_written_out(key): _written_out(item) for key, item in value.items()}
    return value
