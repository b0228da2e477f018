"""A launcher as accelerate's and torchrun's are: starts a child in a session of its own, and only waits for it.

Usage: launcher.py EXIT_CODE   (the exit code of the child, which says its pid and waits to be ended when it is "wait")
"""

from __future__ import annotations

import os
import subprocess
import sys

CHILD = "import os, signal, sys; print('child', os.getpid(), flush=True); {}"
END = "signal.pause()" if sys.argv[1] == "wait" else f"sys.exit({sys.argv[1]})"

print("launcher", os.getpid(), flush=True)
sys.exit(subprocess.run([sys.executable, "-c", CHILD.format(END)], start_new_session=True, check=False).returncode)
