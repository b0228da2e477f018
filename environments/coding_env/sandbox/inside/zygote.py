"""The process that all sessions are forked from: a small interpreter that knows nothing but this package.

It was started with an empty environment and without the server's packages, runs no code of anybody's, and ends when
the server does.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import sys
import time

from . import confine, frames, keeper, kernel, smolagents_console, worker

MAX_MESSAGE = 1 << 18
"""Bytes of a message between server and zygote."""
_END_S = 4.0  # less than the server waits for this process
_MAX_GROUPS = 2  # one in each hierarchy of the first version of control groups


def remove_folder(folder: str) -> None:
    """Remove the sandbox's folder, with the one in it that nobody may list."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.join(folder, "workspaces"), 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_groups(folders: list[str]) -> None:
    """Remove the sessions' control groups, once the sessions are gone, for a server that was killed."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline:
        left = [folder for folder in folders if os.path.isdir(folder)]
        if not left:
            return
        for folder in left:
            with os.scandir(folder) as entries:
                inside = [entry.path for entry in entries if entry.is_dir()]
            for each in (*inside, folder):
                with contextlib.suppress(OSError):
                    os.rmdir(each)
        time.sleep(0.01)


def main() -> None:
    """Serve the server at the other end of the descriptor that the command line names."""
    server = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    message, groups, _, _ = socket.recv_fds(server, MAX_MESSAGE, _MAX_GROUPS)
    config = frames.Unpacker(MAX_MESSAGE).feed(message)[0]
    # The worker's modules were found by it; nobody who comes later shall look there.
    del sys.path[0]
    if config["executor"] == "smolagents":
        failed = smolagents_console.load([*config["packages"], *config["import_from"]], config["imports"])
        if failed:
            server.send(frames.pack({"failed": failed}))
            os._exit(1)
    report = confine.probe(config, config["uid_base"] if os.geteuid() == 0 else None, groups)
    config["layers"] = report["layers"]
    server.send(frames.pack(report))
    if kernel.IS_LINUX:
        if "files" not in report["layers"]:
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)  # so that a session's processes are below this one
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for sessions here
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(server, MAX_MESSAGE, 4 + _MAX_GROUPS)
        if not message:
            remove_folder(config["folder"])
            _remove_groups(config["groups"])
            os._exit(0)
        request = frames.Unpacker(MAX_MESSAGE).feed(message)[0]
        try:
            session = os.fork()
        except OSError as error:  # too many processes, or too little memory, which others may give back
            keeper.tell_unstarted(descriptors[0], error)
            session = -1
        if session == 0:
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                control = socket.socket(fileno=descriptors[0])
                keeper.keep(control, descriptors[1:4], descriptors[4:], config, request, worker.work)
            finally:
                os._exit(71)
        for descriptor in descriptors:
            os.close(descriptor)
