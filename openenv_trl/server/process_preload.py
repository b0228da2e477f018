"""Imported once by the process that environments' processes are forked from, so that each fork has all it needs.

Only that process may import this module. What to import comes in an environment variable, since the import path of
the server is not known there otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing.spawn
import os
import sys

from openenv_trl.server.process_launcher import PRELOAD_VARIABLE

_wanted = json.loads(os.environ.pop(PRELOAD_VARIABLE, "{}"))
sys.path[:] = _wanted.get("path") or sys.path
# The server's main module too: each fork would import it anew, as a factory may be defined there.
multiprocessing.spawn.prepare(_wanted.get("main") or {})
for _module in _wanted.get("modules", []):
    with contextlib.suppress(ImportError):  # the fork says so again, where somebody listens
        importlib.import_module(_module)
