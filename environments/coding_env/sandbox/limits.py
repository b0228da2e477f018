"""How much a session may use."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """What one session may use. Memory, files and time are counted by the kernel, for each process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run_timeout_s: float = Field(default=10.0, gt=0, le=3600)
    """Seconds that one run may take by the clock. Then it is interrupted, and killed if that does not end it. Ten, so
    that an exercise's tests end well before a training's own deadlines."""
    cpu_s: int = Field(default=120, ge=2)
    """Seconds of processor time of each process, over the whole episode."""
    memory_mb: int = Field(default=512, ge=64)
    """Megabytes of address space of each process."""
    session_memory_mb: int = Field(default=1024, ge=64)
    """Megabytes of memory of all processes of a session and of its files together. Counted where the layer "cgroup" is:
    twice what one process may have, so that one alone never meets it."""
    workspace_mb: int = Field(default=32, ge=1)
    """Megabytes of the workspace, and as many of ``/tmp``; both are in memory. Counted where the layer "files" is."""
    file_mb: int = Field(default=16, ge=1)
    """Megabytes of one file."""
    open_files: int = Field(default=128, ge=64)
    """Files that a process may have open. At least 64: Python opens one or two for each module on its way."""
    processes: int = Field(default=16, ge=1)
    """Processes and threads of a session at once. Where sessions share their user with the server and have no
    namespace of their own, no process can be started at all."""
    output_bytes: int = Field(default=65536, ge=256)
    """Bytes of standard output, and of standard error, that a run returns: the first half and the last half of them."""
    discarded_mb: int = Field(default=64, ge=1)
    """Megabytes of output after which a run is killed instead of read on."""
