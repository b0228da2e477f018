"""Plays many episodes at once and brings back a trajectory for each, whatever happens to the environments.

Failures of environments end only their own episode; they are tried again in fresh sessions and, if they still
fail, come back as trajectories without a reward. Mistakes of the user's, and a policy that cannot generate,
are raised at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from openenv_trl.rollout.actions import ActionInterface
from openenv_trl.rollout.batching import BatchSettings
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.policy import Policy, SamplingParameters
from openenv_trl.rollout.session import SessionSource
from openenv_trl.rollout.task import Task
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.rollout.trajectory import Trajectory


class RolloutEngine:
    """Plays episodes over a pool of sessions.

    Args:
        pool: Where sessions come from, such as a `SessionPool`.
        tokenizer: A tokenizer with a chat template.
        actions: How the model acts. None: the environment's own tools, discovered from the first session;
            where it offers none, one tool "act" made of the action schema, which needs ``fetch_schema``.
        limits: How far an episode may go.
        batching: When a batch goes to the policy.
        max_concurrent_episodes: Episodes open at once; a good value is the number of sessions that the
            servers allow.
        fetch_schema: ``openenv_trl.client.fetch_schema``: given a server's address, its schemas.
        chat_template: A template to use in place of the tokenizer's own.
        chat_template_kwargs: More arguments for the template, such as ``{"enable_thinking": False}``.
        observation_separator: What stands between the prompt's last user message and the first observation.

    Raises:
        ConfigurationError: The chat template cannot carry such dialogues.
    """

    def __init__(
        self,
        pool: SessionSource,
        tokenizer: ChatTokenizer,
        *,
        actions: ActionInterface | None = None,
        limits: RolloutLimits | None = None,
        batching: BatchSettings | None = None,
        max_concurrent_episodes: int = 256,
        fetch_schema: Callable[[str], Awaitable[dict[str, Any]]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        observation_separator: str = "\n\n",
    ) -> None:
        raise NotImplementedError

    @property
    def actions(self) -> ActionInterface:
        """How the model acts; known after `prepare`."""
        raise NotImplementedError

    @property
    def template(self) -> DialogueTemplate:
        """The chat template in pieces; known after `prepare`."""
        raise NotImplementedError

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of the last run, by `rollout_metrics`, batch sizes and group mismatches included."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Open the first session, discover the tools, check the template. Call it early to fail early.

        Raises:
            ConnectionFailedError: No server answered.
            ConfigurationError: The environment offers no tools and no ``fetch_schema`` was given, or the chat
                template cannot carry such dialogues.
        """
        raise NotImplementedError

    async def run(
        self,
        tasks: Sequence[Task],
        policy: Policy,
        sampling: SamplingParameters | None = None,
        *,
        on_trajectory: Callable[[Trajectory], None] | None = None,
    ) -> list[Trajectory]:
        """Play one episode for each task, all at once.

        Args:
            tasks: What to play.
            policy: Who plays.
            sampling: How it samples.
            on_trajectory: Called with each trajectory as it is finished, in the order they finish.

        Returns:
            One trajectory for each task, in the tasks' order. Those that failed say so by their
            ``end_reason``.

        Raises:
            PolicyError: The policy raised, or gave no proper completions.
            ConfigurationError: A setting cannot work; the other episodes are cancelled.
        """
        raise NotImplementedError
