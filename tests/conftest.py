"""Settings for every test: hypothesis without deadlines, since no test asserts on time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("imgdiff", deadline=None)
settings.load_profile("imgdiff")
