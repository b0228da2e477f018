"""A real inference server over a tiny model, and the same model in this process to check its numbers with."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch

from openenv_trl.rollout import SamplingParameters
from openenv_trl.training.tiny_policy import make_tiny_policy
from openenv_trl.types import Tool

torch.set_num_threads(1)

_SPEC = spec_from_file_location("inference_server", Path(__file__).parents[2] / "inference_server" / "running.py")
assert _SPEC is not None
assert _SPEC.loader is not None
inference_server: Any = module_from_spec(_SPEC)
_SPEC.loader.exec_module(inference_server)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights."""
    path = tmp_path_factory.mktemp("served_policy")
    texts = ["Your hand: 10, 6. Sum 16, no usable ace. The dealer shows 7.", "Play."] * 8
    make_tiny_policy(path, texts, [Tool(name="hit"), Tool(name="stand")], layers=1, hidden_size=32)
    return path


@pytest.fixture(scope="session")
def model(model_path: Path) -> Any:
    """The weights that the server has, scaled so that no distribution is flat."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()


@pytest.fixture(scope="session")
def served_tokenizer(model_path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_path)


@pytest.fixture(scope="session")
def running_server(model_path: Path) -> Iterator[Any]:
    server = inference_server.InferenceServer(model_path)
    try:
        yield server.start(timeout_s=400)
    finally:
        server.close()


@pytest.fixture
def server(running_server: Any) -> Iterator[Any]:
    """The server, with all well before and after the test."""
    running_server.faults()
    yield running_server
    running_server.faults()


@pytest.fixture(scope="session")
def raw_server(model_path: Path) -> Iterator[Any]:
    """One whose log-probs are of the raw logits, as vLLM's are by default."""
    server = inference_server.InferenceServer(model_path, "--logprobs-mode", "raw_logprobs")
    try:
        yield server.start(timeout_s=400)
    finally:
        server.close()


@pytest.fixture
def unused_tcp_port() -> Iterator[int]:
    """A port that nothing listens on, and that is kept for the test: no other process is given it."""
    with socket.socket() as keeps:
        keeps.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the test itself may listen there
        keeps.bind(("127.0.0.1", 0))
        yield int(keeps.getsockname()[1])


@pytest.fixture
def prompts(served_tokenizer: Any) -> list[list[int]]:
    texts = ["Play.", "Your hand: 10, 6.", "Sum 16, no usable ace. The dealer shows 7. Play. Play."]
    return [served_tokenizer.encode(text) for text in texts]


@pytest.fixture
def forward_logprobs(model: Any) -> Callable[..., list[float]]:
    def logprobs(prompt: list[int], ids: list[int], sampling: SamplingParameters) -> list[float]:
        """The log-prob of each id in a forward pass over the whole, of the distribution that these parameters make."""
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
        logits = logits / sampling.temperature
        if sampling.top_k:
            kth = logits.topk(sampling.top_k).values[:, -1:]
            logits = logits.masked_fill(logits < kth, -torch.inf)
        if sampling.top_p < 1.0:
            ordered, order = logits.sort(descending=True)
            before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            drop = torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, before >= sampling.top_p)
            logits = logits.masked_fill(drop, -torch.inf)
        if sampling.min_p:
            probabilities = logits.softmax(-1)
            logits = logits.masked_fill(
                probabilities < sampling.min_p * probabilities.max(-1, keepdim=True).values, -torch.inf
            )
        found = logits.log_softmax(-1).gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)
        return found.tolist()

    return logprobs
