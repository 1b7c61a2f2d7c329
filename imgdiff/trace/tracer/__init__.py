"""The trace of one image, role by role."""

from imgdiff.trace.tracer.tracer import Tracer

__all__ = ["Tracer"]
