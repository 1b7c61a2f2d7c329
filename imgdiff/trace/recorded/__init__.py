"""Recordings of runs, joined with the static trace (docs/traces.md)."""

from imgdiff.trace.recorded.joined import Joined, Traced

__all__ = ["Joined", "Traced"]
