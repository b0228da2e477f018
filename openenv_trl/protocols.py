"""What an environment may offer or use beside its contract, known by its methods alone.

Source: ``openenv.core.env_server.interfaces`` of the OpenEnv package, version 0.10.0, for names and behaviour.
"""

from __future__ import annotations

from typing import Any, Protocol, TypedDict, runtime_checkable


class Message(TypedDict):
    """One message of a conversation."""

    role: str
    content: str


@runtime_checkable
class ModelTokenizer(Protocol):
    """What an environment needs of a tokenizer, where it speaks in tokens."""

    def apply_chat_template(
        self, conversation: list[Message], tokenize: bool = True, return_tensors: str | None = None, **kwargs: Any
    ) -> Any:
        """Return a conversation as tokens, or as text where ``tokenize`` is false."""
        ...

    def decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        """Return the text of tokens."""
        ...


@runtime_checkable
class TaskProvider(Protocol):
    """An environment that offers tasks, in splits. Each method may be a coroutine function, or missing."""

    def list_splits(self) -> list[Any]:
        """The parts that the tasks are divided into: names, or mappings with ``name`` and ``type``."""
        ...

    def list_tasks(self, split: str) -> list[Any]:
        """All tasks of a split."""
        ...

    def num_tasks(self, split: str) -> int:
        """How many tasks a split has."""
        ...

    def get_task(self, split: str, index: int) -> Any:
        """One task.

        Raises:
            IndexError: There is none of that index.
        """
        ...

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[Any]:
        """The tasks from ``start`` up to, but not including, ``stop``."""
        ...
