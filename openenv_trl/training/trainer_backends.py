"""Generation by a ``GRPOTrainer``'s own means: all that this package relies on inside TRL, and checks before use.

TRL has one private method for its four backends (transformers, continuous batching, vLLM in this process, a vLLM
server). Its form is checked here, and what it gives, since nothing of it is promised.

Source: ``GRPOTrainer._generate_single_turn`` of TRL 1.15 and 1.16.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from openenv_trl.errors import ConfigurationError, PolicyError

Generate = Callable[[list[list[int]], list[int], int], tuple[list[list[int]], "list[list[float] | None] | None"]]
"""Prompts as token ids, each one's limit of new tokens, and the longest of all processes, to completion ids and their
log-probs (None if there are none, of a row or of all)."""

_PARAMETERS = ("prompt_ids", "images", "multimodal_fields", "num_generations")


class TrainerBackend(str, Enum):
    """How a trainer generates."""

    TRANSFORMERS = "transformers"
    CONTINUOUS_BATCHING = "transformers_continuous_batching"
    VLLM_COLOCATE = "vllm_colocate"
    VLLM_SERVER = "vllm_server"

    @property
    def gives_logprobs(self) -> bool:
        """Whether completions come with the sampler's log-probs."""
        return self in (TrainerBackend.VLLM_COLOCATE, TrainerBackend.VLLM_SERVER)


def trainer_backend(trainer: Any) -> TrainerBackend:
    """The backend that a trainer is set to."""
    if getattr(trainer, "use_vllm", False):
        mode = getattr(trainer, "vllm_mode", getattr(getattr(trainer, "args", None), "vllm_mode", "colocate"))
        return TrainerBackend.VLLM_SERVER if mode == "server" else TrainerBackend.VLLM_COLOCATE
    if getattr(trainer, "use_transformers_continuous_batching", False):
        return TrainerBackend.CONTINUOUS_BATCHING
    return TrainerBackend.TRANSFORMERS


def trainer_generate(trainer: Any) -> Generate:
    """Generation by a trainer, for batches of prompts that have each its own limit.

    Transformers stops each row at its limit; the other backends know one limit for a batch, which is then the longest,
    and what is beyond a row's own is cut off.

    Raises:
        ConfigurationError: The trainer has no such method, or one of another form than is known.
    """
    _check(trainer)
    backend = trainer_backend(trainer)

    def generate(
        prompts: list[list[int]], limits: list[int], longest: int
    ) -> tuple[list[list[int]], list[list[float] | None] | None]:
        own_limits = backend is TrainerBackend.TRANSFORMERS and min(limits) < longest
        with _new_tokens_limited(trainer, longest), _rows_limited(trainer, limits if own_limits else None):
            found: Any = trainer._generate_single_turn(prompts, None, {}, 1)
        return _checked(found, limits, backend)

    return generate


def trainer_stop_ids(trainer: Any) -> list[int]:
    """The token ids at which the trainer's generation stops."""
    ids = getattr(trainer, "eos_token_ids", None)
    if ids is not None:
        return [int(i) for i in ids]
    tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
    return [int(tokenizer.eos_token_id)]


def trainer_lockstep(trainer: Any) -> Callable[[int], list[int]] | None:
    """The gathering that keeps ranks in step, where generation is a collective call; None where it is not.

    It is one where several processes share a vLLM server or a tensor-parallel vLLM, and where the model's weights are
    sharded over the processes (DeepSpeed ZeRO-3, FSDP).
    """
    accelerator = trainer.accelerator
    if accelerator.num_processes == 1:
        return None
    args = trainer.args
    if getattr(args, "use_vllm", False):
        collective = args.vllm_mode == "server" or getattr(args, "vllm_tensor_parallel_size", 1) > 1
    else:
        plugin = getattr(accelerator.state, "deepspeed_plugin", None)
        collective = (plugin is not None and plugin.zero_stage == 3) or bool(getattr(trainer, "is_fsdp_enabled", False))
    if not collective:
        return None

    def gather(count: int) -> list[int]:
        from accelerate.utils import gather_object

        return [int(value) for value in gather_object([count])]

    return gather


def _check(trainer: Any) -> None:
    """Refuse a trainer whose generation is not of the form that is known."""
    method = getattr(trainer, "_generate_single_turn", None)
    if method is None:
        raise _unknown(trainer, "it has no _generate_single_turn")
    parameters = list(inspect.signature(method).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)  # a wrapper that passes on what it is given
    names = tuple(p.name for p in positional[: len(_PARAMETERS)])
    needed = [
        p.name
        for p in (*positional[len(_PARAMETERS) :], *(p for p in parameters if p.kind is p.KEYWORD_ONLY))
        if p.default is p.empty
    ]
    if (names != _PARAMETERS and not open_ended) or needed:
        given = ", ".join(p.name for p in parameters)
        raise _unknown(trainer, f"its _generate_single_turn takes ({given}), not ({', '.join(_PARAMETERS)})")
    holder, name = _limit_of(trainer)
    if not hasattr(holder, name):
        raise _unknown(trainer, f"its {type(holder).__name__} has no {name}")


def _unknown(trainer: Any, problem: str) -> ConfigurationError:
    try:
        installed = f"trl {version('trl')} is installed"
    except PackageNotFoundError:
        installed = "trl is not installed"
    return ConfigurationError(
        f"{type(trainer).__name__} cannot generate for a rollout: {problem}. Use the GRPOTrainer of trl>=1.15,<1.17 "
        f"({installed}), or generate with a server: VllmPolicy, SglangPolicy."
    )


def _checked(
    found: Any, limits: Sequence[int], backend: TrainerBackend
) -> tuple[list[list[int]], list[list[float] | None] | None]:
    """What the trainer gave, cut to each row's limit, if it is one completion for each prompt."""
    if not isinstance(found, tuple) or len(cast("tuple[Any, ...]", found)) != 2:
        raise PolicyError(f"The trainer's generation ({backend.value}) gave {found!r:.80}, not ids and log-probs.")
    ids, logprobs = cast("tuple[Any, Any]", found)
    if len(ids) != len(limits) or (logprobs is not None and len(logprobs) != len(limits)):
        raise PolicyError(
            f"The trainer's generation ({backend.value}) gave {len(ids)} completions for {len(limits)} prompts. "
            "Its own log says why; continuous batching leaves out what failed, often for want of memory."
        )
    # What stands beyond a row's own limit is padding, which may look like an end token.
    rows = [[int(token) for token in row[:limit]] for row, limit in zip(ids, limits, strict=True)]
    if logprobs is None:
        return rows, None
    # vLLM gives None for a token that it has no number for: then the row has none that could be used.
    given = [
        None if any(value is None for value in row[:limit]) else [float(value) for value in row[:limit]]
        for row, limit in zip(logprobs, limits, strict=True)
    ]
    return rows, given


def _limit_of(trainer: Any) -> tuple[Any, str]:
    if getattr(trainer, "use_vllm", False):
        return getattr(trainer, "vllm_generation", None), "max_completion_length"
    return getattr(trainer, "generation_config", None), "max_new_tokens"


@contextmanager
def _new_tokens_limited(trainer: Any, max_new_tokens: int) -> Generator[None]:
    """Let one generation make at most so many tokens: the trainer's own limit covers a whole episode."""
    holder, name = _limit_of(trainer)
    before = getattr(holder, name)
    setattr(holder, name, max_new_tokens if before is None else min(before, max_new_tokens))
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextmanager
def _rows_limited(trainer: Any, limits: list[int] | None) -> Generator[None]:
    """Let each row of one ``model.generate`` stop at its own limit; with None, as it is.

    TRL hands no criteria on, so they are given to the model that it will call.
    """
    if limits is None:
        yield
        return
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    plain, own = model.generate, "generate" in vars(model)

    def generate(*arguments: Any, **settings: Any) -> Any:
        settings["stopping_criteria"] = [*(settings.get("stopping_criteria") or ()), _RowLimits(limits)]
        return plain(*arguments, **settings)

    model.generate = generate
    try:
        yield
    finally:
        if own:
            model.generate = plain
        else:
            del model.generate


class _RowLimits:
    """A stopping criterion of transformers: each row at its own number of new tokens."""

    def __init__(self, limits: Sequence[int]) -> None:
        self._limits = limits
        self._width: int | None = None

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import torch

        if self._width is None:
            self._width = input_ids.shape[1] - 1  # first asked after the first new token
        written = input_ids.shape[1] - self._width
        return torch.tensor([written >= limit for limit in self._limits], device=input_ids.device)
