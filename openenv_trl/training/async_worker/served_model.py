"""An inference server as a child process, for as long as a run lasts: ``vllm serve ...``, SGLang, or any other.

It ends with the block, and also when this process is killed: it runs under the same supervisor as environment servers.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

import httpx

from openenv_trl.errors import ConfigurationError, ServerStartError
from openenv_trl.providers import supervisor

_GRACE_S = 10.0
_POLL_S = 0.2


@contextmanager
def inference_process(command: str, *, model: str, start_timeout_s: float = 600.0) -> Generator[str]:
    """Start an inference server and wait until it answers ``GET /health``.

    Args:
        command: The command line, with ``{model}`` and ``{port}`` where those belong.
        model: The model's folder or name.
        start_timeout_s: Seconds that it may take to be ready: large models load slowly.

    Yields:
        Its address.

    Raises:
        ConfigurationError: The command has no ``{port}``, or its program is not there.
        ServerStartError: It ended before it was ready, or was not ready in time. What it wrote is above.

    Example:
        >>> with inference_process("vllm serve {model} --port {port} --logprobs-mode processed_logprobs", model=path):
        ...     trainer.train()
    """
    if "{port}" not in command:
        raise ConfigurationError(f"inference_command={command!r} needs {{port}} where the server's port belongs.")
    port = _free_port()
    words = [word.replace("{model}", model).replace("{port}", str(port)) for word in shlex.split(command)]
    if words[0] in ("python", "python3"):
        words[0] = sys.executable
    url = f"http://127.0.0.1:{port}"
    with open(os.devnull, "wb") as nobody:  # the supervisor's reports
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", supervisor.__file__),
                *(str(os.getpid()), str(_GRACE_S), str(nobody.fileno()), ""),
                *words,
            ],
            stdin=subprocess.PIPE,
            pass_fds=(nobody.fileno(),),
            start_new_session=True,
        )
    try:
        _wait(process, url, words[0], start_timeout_s)
        yield url
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S + 5.0)
        if process.poll() is None:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _wait(process: subprocess.Popen[bytes], url: str, program: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    with httpx.Client(timeout=5.0, trust_env=False) as client:
        while True:
            with suppress(httpx.HTTPError):
                if client.get(f"{url}/health").status_code == 200:
                    return
            if process.poll() is not None:
                raise ServerStartError(
                    f"The inference server ({program}) ended with exit code {process.returncode} before it was ready. "
                    "Its own message is above; see that inference_command is right."
                )
            if time.monotonic() > deadline:
                raise ServerStartError(
                    f"The inference server at {url} did not answer /health within {timeout_s:g} s. Give it longer, or "
                    "see what it is doing."
                )
            time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
