"""The supervisor as it runs where Linux's means are missing: no pidfd, no prctl. Pipe and parent's id must do."""

import os
import runpy
import sys
from pathlib import Path

del os.pidfd_open
sys.platform = "darwin"
package = Path(__file__).parents[2] / "openenv_trl"
runpy.run_path(str(package / "providers" / "supervisor.py"), run_name="__main__")
