"""A real small inference server in a process of its own, for tests and benchmarks.

It serves a transformers model on the CPU and speaks, as far as token ids in and out need it:

- vLLM: ``POST /v1/completions`` (``prompt`` as ids, ``return_token_ids``, ``logprobs``), ``POST /v1/chat/completions``
  with tools, ``GET /v1/models``, ``GET /health``, ``POST /pause`` and ``/resume``;
- SGLang: ``POST /generate``, ``/update_weights_from_disk``, ``/pause_generation``, ``/continue_generation``;
- llama.cpp: ``POST /completion``, ``/tokenize``.

Requests that arrive within a few milliseconds are sampled as one batch. A field that it does not know is refused with
422, so a client's wrong name does not go unseen. ``GET /numbers`` counts batches, rows and tokens; ``POST /faults``
makes it fail, drop, delay or hold requests (see ``faults.py``).

From a shell, in the repository::

    python tests/inference_server --model outputs/my_model --port 8000

In a test, from any ``conftest.py`` (test folders are no packages, so the file is loaded by its path)::

    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("inference_server", ROOT / "tests" / "inference_server" / "running.py")
    inference_server = module_from_spec(spec)
    spec.loader.exec_module(inference_server)

    @pytest.fixture(scope="session")
    def inference_server_process(tiny_policy_path):
        with inference_server.InferenceServer(tiny_policy_path) as server:
            yield server      # server.url, server.faults(fail_next=2), server.numbers(), server.kill(), server.start()
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


class InferenceServer:
    """The process. Its port stays the same over `kill` and `start`, and no other process is given it meanwhile.

    Args:
        model: Folder of a transformers model and its tokenizer.
        *options: More arguments of the command line, such as ``"--logprobs-mode", "raw_logprobs"``.
    """

    def __init__(self, model: str | Path, *options: str) -> None:
        self.model = str(model)
        self.url = ""
        self._options = options
        self._port: socket.socket | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self, *, wait: bool = True, timeout_s: float = 240.0) -> InferenceServer:
        """Start the process; with ``wait`` return when it takes requests."""
        self._port = self._port or _kept_port()
        port = self._port.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        command = [sys.executable, str(FOLDER), "--model", self.model, "--port", str(port), *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        if wait:
            self.wait(timeout_s)
        return self

    def wait(self, timeout_s: float = 240.0) -> None:
        """Return when the server takes requests."""
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._call("/health")
                return
            except (OSError, urllib.error.URLError) as error:
                if self._process.poll() is not None:
                    raise RuntimeError(f"The inference server ended with {self._process.returncode}.") from error
                if time.monotonic() > deadline:
                    raise TimeoutError("The inference server was not ready in time.") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None

    def close(self) -> None:
        """End the process, and give the port back."""
        self.kill()
        if self._port is not None:
            self._port.close()
            self._port = None

    def faults(self, **settings: Any) -> None:
        """Set faults, in place of those set before; none: all is well again."""
        self._call("/faults", settings)

    def fault_state(self) -> dict[str, Any]:
        """The faults that are set, the requests held, and all requests so far."""
        return self._call("/faults")

    def numbers(self) -> dict[str, Any]:
        """Batches, rows, tokens, the largest batch, and the weights' version."""
        return self._call("/numbers")

    def post(self, path: str, body: Any) -> Any:
        """One request, as any client's."""
        return self._call(path, body)

    def __enter__(self) -> InferenceServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")


def _kept_port() -> socket.socket:
    """A socket that keeps a free port as long as it is open: the server, which may use its address too, listens there.

    A model loads for seconds before its server listens, and a port that was merely free would be another's by then.
    """
    keeps = socket.socket()
    keeps.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeps.bind(("127.0.0.1", 0))
    return keeps
