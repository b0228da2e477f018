"""The model of the inference server: requests that arrive together are sampled together, on a thread of its own.

Every row of a batch has its own sampling parameters, seed, limit and stop ids. A row's log-probs come in three kinds,
since servers differ: of the raw logits, of the logits divided by the temperature, and of the distribution that was
sampled from, with top-k, top-p and min-p applied. Between two tokens a batch can be frozen, its weights exchanged, and
resumed, as vLLM does with ``POST /pause?mode=keep``: the tokens after that are the new weights' tokens.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

NEVER = torch.finfo(torch.float32).min


@dataclass
class Request:
    """One row to sample."""

    prompt_ids: list[int]
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    answer: Future[Answer] = field(default_factory=Future)


@dataclass
class Answer:
    """What was sampled: ids; the log-prob of each, of each kind; the version of the weights that each came from."""

    ids: list[int]
    raw: list[float]
    scaled: list[float]
    processed: list[float]
    finish_reason: str
    stop_id: int | None
    versions: list[str]


class Aborted(Exception):
    """The request was ended by ``pause?mode=abort``."""


class ModelThread:
    """A model, its tokenizer, and the thread that samples from it.

    Args:
        path: Folder of the model and the tokenizer.
        linger_s: Seconds that the first request of a batch waits for others.
        max_batch: Rows sampled at once; more only where one request has more.
    """

    def __init__(self, path: str, *, linger_s: float = 0.004, max_batch: int = 512) -> None:
        torch.set_num_threads(1)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(path)
        self.model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.max_length = int(self.model.config.max_position_embeddings)
        self.version = "default"
        self.batches = 0
        self.rows = 0
        self.tokens = 0
        self.largest_batch = 0
        self._linger_s = linger_s
        self._max_batch = max_batch
        eos: Any = self.model.generation_config.eos_token_id
        self._eos_ids = frozenset(
            eos if isinstance(eos, list) else [self.tokenizer.eos_token_id if eos is None else eos]
        )
        self._requests: queue.SimpleQueue[list[Request]] = queue.SimpleQueue()
        self._go = threading.Event()
        self._go.set()
        self._abort = False
        self._weights = threading.Lock()
        threading.Thread(target=self._run, name="model", daemon=True).start()

    def submit(self, requests: list[Request]) -> list[Future[Answer]]:
        """Queue rows, which are sampled together; each one's future has its answer."""
        self._requests.put(requests)
        return [request.answer for request in requests]

    @property
    def paused(self) -> bool:
        """Whether nothing is sampled for now."""
        return not self._go.is_set()

    def pause(self, mode: str) -> None:
        """Freeze between two tokens. "abort" ends what is being sampled; "keep" goes on with it after `resume`."""
        self._abort = mode == "abort"
        self._go.clear()
        with self._weights:  # the token that is being computed has come out
            pass

    def resume(self) -> None:
        """Sample again."""
        self._abort = False
        self._go.set()

    def load_weights(self, path: str, version: str | None) -> None:
        """Take over the weights of a checkpoint folder, between two tokens."""
        from safetensors.torch import load_file

        state: dict[str, torch.Tensor] = {}
        for file in sorted(Path(path).glob("*.safetensors")):
            state.update(load_file(str(file)))
        if not state:
            raise FileNotFoundError(f"There are no *.safetensors in '{path}'.")
        with self._weights:
            missing, unexpected = self.model.load_state_dict(state, strict=False)
            tied = {"lm_head.weight"} if self.model.config.tie_word_embeddings else set()
            if set(missing) - tied or unexpected:
                raise KeyError(f"The checkpoint does not fit: missing {missing}, unexpected {unexpected}.")
            self.version = version if version is not None else path

    def _run(self) -> None:
        while True:
            batch = [*self._requests.get()]
            deadline = time.monotonic() + self._linger_s
            while len(batch) < self._max_batch and (left := deadline - time.monotonic()) > 0:
                try:
                    batch += self._requests.get(timeout=left)
                except queue.Empty:
                    break
            batch = [request for request in batch if request.answer.set_running_or_notify_cancel()]
            if not batch:
                continue
            try:
                with torch.inference_mode():
                    self._sample(batch)
            except Exception as error:  # the requests' fault or the model's: those who asked are told
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(error)

    def _sample(self, batch: list[Request]) -> None:
        width = max(len(request.prompt_ids) for request in batch)
        rows = len(batch)
        ids = torch.zeros((rows, width), dtype=torch.long)
        mask = torch.zeros((rows, width), dtype=torch.long)
        for row, request in enumerate(batch):
            ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            mask[row, width - len(request.prompt_ids) :] = 1
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        longest = max(request.max_tokens for request in batch)
        uniforms = torch.stack([_uniforms(request.seed, longest) for request in batch])
        settings = _Settings(batch)
        done = [False] * rows
        answers = [Answer([], [], [], [], "length", None, []) for _ in batch]
        self.batches += 1
        self.rows += rows
        self.largest_batch = max(self.largest_batch, rows)
        cache: Any = None
        for step in range(longest):
            self._go.wait()
            with self._weights:
                version = self.version
                output = self.model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
            cache = output.past_key_values
            chosen, raw, scaled, processed = settings.choose(output.logits[:, -1].float(), uniforms[:, step])
            for row, (token, *logprobs) in enumerate(zip(chosen.tolist(), raw, scaled, processed, strict=True)):
                if done[row]:
                    continue
                answer, request = answers[row], batch[row]
                answer.ids.append(token)
                answer.raw.append(logprobs[0])
                answer.scaled.append(logprobs[1])
                answer.processed.append(logprobs[2])
                answer.versions.append(version)
                self.tokens += 1
                stops = request.stop_ids if request.ignore_eos else request.stop_ids | self._eos_ids
                if token in stops:
                    answer.finish_reason, answer.stop_id = "stop", token
                done[row] = token in stops or len(answer.ids) >= request.max_tokens
                if done[row]:
                    request.answer.set_result(answer)
            if self.paused and self._abort:
                raise Aborted("The request was aborted by a pause.")
            if all(done):
                return
            ids, positions = chosen.unsqueeze(1), positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones((rows, 1), dtype=torch.long)], dim=1)


class _Settings:
    """The sampling parameters of a batch as tensors."""

    def __init__(self, batch: list[Request]) -> None:
        self._greedy = torch.tensor([request.temperature < 1e-5 for request in batch])
        self._temperature = torch.tensor([max(request.temperature, 1e-5) for request in batch]).unsqueeze(1)
        self._temperature[self._greedy] = 1.0
        self._top_k = torch.tensor([request.top_k if request.top_k > 0 else 2**31 for request in batch]).unsqueeze(1)
        self._top_p = torch.tensor([request.top_p for request in batch]).unsqueeze(1)
        self._min_p = torch.tensor([request.min_p for request in batch]).unsqueeze(1)
        self._filters = any(r.top_k > 0 or r.top_p < 1.0 or r.min_p > 0.0 for r in batch)

    def choose(
        self, logits: torch.Tensor, uniform: torch.Tensor
    ) -> tuple[torch.Tensor, list[float], list[float], list[float]]:
        """A token for each row, by the inverse of the cumulative distribution, and its log-prob of each kind."""
        raw = logits.log_softmax(-1)
        scaled = (logits / self._temperature).log_softmax(-1)
        processed = self._filtered(scaled).log_softmax(-1) if self._filters else scaled
        cumulative = processed.exp().cumsum(-1)
        cumulative = cumulative / cumulative[:, -1:]
        chosen = torch.searchsorted(cumulative, uniform.unsqueeze(1), right=True).clamp(max=logits.shape[-1] - 1)
        chosen = torch.where(self._greedy.unsqueeze(1), logits.argmax(-1, keepdim=True), chosen)
        kinds = [kind.gather(1, chosen).squeeze(1).tolist() for kind in (raw, scaled, processed)]
        return chosen.squeeze(1), kinds[0], kinds[1], kinds[2]

    def _filtered(self, logprobs: torch.Tensor) -> torch.Tensor:
        ordered, order = logprobs.sort(dim=-1, descending=True)
        ranks = torch.arange(ordered.shape[-1]).unsqueeze(0)
        keep = ranks < self._top_k
        probabilities = ordered.masked_fill(~keep, NEVER).softmax(-1)
        keep &= probabilities.cumsum(-1) - probabilities < self._top_p
        keep &= ordered >= ordered[:, :1] + self._min_p.clamp(min=1e-30).log()
        keep[:, 0] = True
        return torch.full_like(logprobs, NEVER).scatter(1, order, ordered.masked_fill(~keep, NEVER))


def _uniforms(seed: int | None, count: int) -> torch.Tensor:
    """Random numbers from 0 to 1, one a token: the same ones for the same seed, in whatever batch the row is."""
    if seed is None:
        return torch.rand(count)
    return torch.rand(count, generator=torch.Generator().manual_seed(seed % 2**63))
