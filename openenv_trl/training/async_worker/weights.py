"""New weights for an inference server by way of a shared folder: a ``weight_transfer`` for ``AsyncGRPOTrainer``.

TRL's own streams them into vLLM over NCCL, which needs GPUs on both sides and vLLM in the trainer's environment. This
one needs a folder that both processes see, and a server with SGLang's route: it saves a checkpoint (the parameters as
safetensors, beside the model's configuration) and asks for ``POST /update_weights_from_disk``, between
``/pause_generation`` and ``/continue_generation``.

Source: the routes as SGLang's manual "SGLang for RL Systems" documents them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import httpx

from openenv_trl.errors import ConfigurationError, PolicyError

logger = logging.getLogger("openenv_trl.training.async_worker")

_NOT_WEIGHTS = ("*.json", "*.jinja", "*.txt", "*.model")


class DiskWeightTransfer:
    """Saves the weights and has servers load them.

    Args:
        server_urls: The inference servers; all get the same weights.
        folder: A folder that they see under the same path. Holds the two newest checkpoints.
        model_path: The model that is trained: its configuration and tokenizer files are copied into each checkpoint.
        pause: What becomes of generations that are under way: SGLang's modes. "retract" puts them back into the line,
            to go on with the new weights; "in_place" freezes them; "abort" ends them, and they are tried again.
        timeout_s: Seconds for one request; loading a large model takes long.
        ready_timeout_s: Seconds to wait for the servers before the first transfer.
        headers: HTTP headers of the requests, such as an authorization.

    Raises:
        ConfigurationError: There is no server, or no model at the path.
    """

    def __init__(
        self,
        server_urls: str | list[str],
        folder: str | Path,
        model_path: str | Path,
        *,
        pause: Literal["retract", "in_place", "abort"] = "retract",
        timeout_s: float = 600.0,
        ready_timeout_s: float = 240.0,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.server_urls = [server_urls] if isinstance(server_urls, str) else list(server_urls)
        if not self.server_urls:
            raise ConfigurationError("server_urls is empty: give the address of the inference server.")
        if not Path(model_path, "config.json").is_file():
            raise ConfigurationError(
                f"model_path='{model_path}' must be a folder with the model's config.json, which goes with each "
                "checkpoint. Download the model first (huggingface_hub.snapshot_download)."
            )
        self.folder = Path(folder)
        self.version = 0
        """Checkpoints sent so far."""
        self._model_path = Path(model_path)
        self._mode = pause
        self._ready_timeout_s = ready_timeout_s
        self._client = httpx.Client(timeout=timeout_s, headers=headers)

    def init_weight_transfer(self) -> None:
        """Wait for the servers to answer.

        Raises:
            PolicyError: One did not in time.
        """
        if self._client.is_closed:
            self._client = httpx.Client(timeout=self._client.timeout, headers=self._client.headers)
        deadline = time.monotonic() + self._ready_timeout_s
        for url in self.server_urls:
            while True:
                try:
                    self._client.get(f"{url}/health", timeout=5.0).raise_for_status()
                    break
                except httpx.HTTPError as error:
                    if time.monotonic() > deadline:
                        raise PolicyError(
                            f"The inference server at {url} did not answer within ready_timeout_s="
                            f"{self._ready_timeout_s:g}: {error}. Start it, or see that the address is right."
                        ) from error
                    time.sleep(0.2)

    def pause(self) -> None:
        """Hold generation on all servers."""
        self._post("/pause_generation", {"mode": self._mode})

    def send_weights(self, iterator: Iterator[tuple[str, Any]]) -> None:
        """Save the parameters and have all servers load them.

        Args:
            iterator: Names, as the checkpoint has them, and tensors.
        """
        import torch
        from safetensors.torch import save_file

        target = self.folder / f"version_{self.version + 1:08d}"
        part = target.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for pattern in _NOT_WEIGHTS:
            for file in self._model_path.glob(pattern):
                if not file.name.endswith(".index.json"):
                    shutil.copy(file, part)
        tensors: dict[str, torch.Tensor] = {}
        for name, tensor in iterator:
            tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()
        save_file(tensors, str(part / "model.safetensors"), metadata={"format": "pt"})
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        self.version += 1
        self._post(
            "/update_weights_from_disk",
            {"model_path": str(target.resolve()), "weight_version": str(self.version)},
            self._loaded,
        )
        for old in sorted(self.folder.glob("version_*"))[:-2]:
            shutil.rmtree(old, ignore_errors=True)

    def resume(self) -> None:
        """Let generation go on."""
        self._post("/continue_generation", {})

    def destroy(self) -> None:
        """Close the connections. The checkpoints stay."""
        self._client.close()

    def _post(self, path: str, body: dict[str, Any], check: Callable[[str, Any], None] | None = None) -> None:
        for url in self.server_urls:
            try:
                answer = self._client.post(url + path, json=body)
            except httpx.HTTPError as error:
                raise PolicyError(f"{url}{path} failed: {type(error).__name__}: {error}. Is the server up?") from error
            if answer.status_code != 200:
                raise PolicyError(
                    f"{url}{path} answered {answer.status_code}: {answer.text[:300]}. The server must be SGLang, or "
                    "have its routes; for vLLM leave weight_transfer out, and TRL sends the weights by NCCL."
                )
            if check is not None:
                check(url, answer.json())

    def _loaded(self, url: str, answer: Any) -> None:
        if not answer.get("success"):
            raise PolicyError(
                f"The inference server at {url} did not load the weights: {answer.get('message')}. It must see the "
                f"folder '{self.folder.resolve()}' under that path."
            )
