"""The version of this program."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("imgdiff-oci")
except PackageNotFoundError:  # a checkout that was never installed
    VERSION = "0+unknown"
