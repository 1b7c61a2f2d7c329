"""Begins imgdiff's recording, then makes way for the image's own sitecustomize, as if this file had not been here.

Any Python from 2.7 on reads this file without a word; those before 3.8 have no audit events and are not recorded.
"""

import os
import sys


def _begin():  # type: ignore[no-untyped-def]  # noqa: ANN202  Python 2 reads this
    here = __file__.rpartition("/")[0]
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        if sys.version_info >= (3, 8) and os.environ.get("IMGDIFF_RECORD"):
            loaded = list(sys.modules.items())
            import imgdiff_recorder

            imgdiff_recorder.begin(here, [(name, module) for name, module in loaded if name != __name__])
    except Exception:  # noqa: S110 -- what is wrong with the recorder is no concern of the program
        pass
    finally:
        sys.dont_write_bytecode = before
        for name in [name for name in sys.modules if name.startswith("imgdiff_recorder")]:
            del sys.modules[name]
        sys.path[:] = [entry for entry in sys.path if entry != here]
        sys.path_importer_cache.pop(here, None)


_begin()  # type: ignore[no-untyped-call]  # as above
_this = sys.modules.pop(__name__)  # kept: Python 2 empties a module that nobody holds
import sitecustomize  # noqa: E402, F401  the one behind this; if there is none, Python learns so in the usual way
