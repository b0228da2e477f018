"""The settings of an asynchronous run that neither TRL nor the environment has: model, inference server, scoring.

Read beside ``EnvironmentArguments`` and ``AsyncGRPOConfig`` by TRL's parser (TRL's ``ModelConfig`` cannot be: both have
a ``dtype``).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.policies import SglangPolicy, TokenServerPolicy, VllmPolicy
from openenv_trl.training.async_worker.served_model import inference_process

_POLICIES: dict[str, type[TokenServerPolicy]] = {"vllm": VllmPolicy, "sglang": SglangPolicy}


@dataclass
class InferenceArguments:
    """The model, the inference server that samples from it, and how groups are scored."""

    model_name_or_path: str = field(metadata={"help": "Folder or hub name of the model."})
    inference_url: str | None = field(default=None, metadata={"help": "Address of a server that runs already."})
    inference_command: str | None = field(
        default=None, metadata={"help": "Command line that starts one, with {model} and {port}."}
    )
    inference_kind: str = field(default="vllm", metadata={"help": "How it is spoken to: 'vllm' or 'sglang'."})
    weight_folder: str | None = field(
        default=None,
        metadata={"help": "Send weights through this folder (SGLang's route). None: TRL sends them to vLLM by NCCL."},
    )
    scale_rewards: str = field(default="group", metadata={"help": "'group' or 'none': see AsyncRolloutSettings."})
    keep_equal_groups: bool = field(
        default=True, metadata={"help": "Train on groups whose rewards are all equal: see AsyncRolloutSettings."}
    )

    def __post_init__(self) -> None:
        if self.inference_kind not in _POLICIES:
            raise ConfigurationError(f"inference_kind={self.inference_kind!r} must be one of {sorted(_POLICIES)}.")
        if (self.inference_url is None) == (self.inference_command is None):
            raise ConfigurationError(
                "Give inference_url (a server that runs already) or inference_command (one to start), and not both."
            )

    @contextmanager
    def server(self, model: str) -> Generator[str]:
        """The address of the server, which ends with the block where it was started here.

        Args:
            model: The model that it serves.
        """
        if self.inference_url is not None:
            yield self.inference_url
        elif self.inference_command is not None:
            with inference_process(self.inference_command, model=model) as url:
                yield url

    def policy(self, url: str) -> TokenServerPolicy:
        """A policy that samples from the server.

        Args:
            url: Its address.
        """
        return _POLICIES[self.inference_kind](url, vocabulary_size=_vocabulary_size(self.model_name_or_path))


def _vocabulary_size(model: str) -> int | None:
    """How many token ids the model has; None where its configuration cannot be read, or does not say."""
    from transformers import AutoConfig

    reader: Any = AutoConfig
    try:
        size: Any = getattr(reader.from_pretrained(model).get_text_config(), "vocab_size", None)
    except (OSError, ValueError):
        return None  # whoever loads the model says why
    return size if isinstance(size, int) else None
