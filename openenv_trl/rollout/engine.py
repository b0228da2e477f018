"""Plays many episodes at once and brings back a trajectory for each, whatever happens to the environments.

Failures of environments end only their own episode; they are tried again in fresh sessions and, if they still fail,
come back as trajectories without a reward. Mistakes of the user's, and a policy that cannot generate, are raised at
once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import anyio

from openenv_trl.errors import ConfigurationError, DeadlineExceededError, SessionStateError
from openenv_trl.rollout.actions import ActionInterface, ToolActions
from openenv_trl.rollout.batching import BatchedPolicy, BatchSettings
from openenv_trl.rollout.conversation import Conversation, TokenConversation
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.episode import Episode, EpisodeSetting
from openenv_trl.rollout.failures import FINAL, EpisodeFailed, failure_of
from openenv_trl.rollout.first_error import first_error_alone
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.metrics import rollout_metrics, warn_of_group_mismatches
from openenv_trl.rollout.observer import Phase, RolloutObserver, observed
from openenv_trl.rollout.policy import Policy, SamplingParameters
from openenv_trl.rollout.refusals import RefusalWatch
from openenv_trl.rollout.session import SessionLease, SessionSource
from openenv_trl.rollout.task import Message, Task
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.rollout.trajectory import EndReason, Trajectory


class RolloutEngine:
    """Plays episodes over a pool of sessions.

    Args:
        pool: Where sessions come from, such as a `SessionPool`.
        tokenizer: A tokenizer with a chat template.
        actions: How the model acts. None: the environment's own tools, discovered from the first session; where it
            offers none, one tool "act" made of the action schema, which needs ``fetch_schema``.
        limits: How far an episode may go.
        batching: When a batch goes to the policy.
        max_concurrent_episodes: Episodes open at once; a good value is the number of sessions that the servers allow.
        fetch_schema: ``openenv_trl.client.fetch_schema``: given a server's address, its schemas.
        chat_template: A template to use in place of the tokenizer's own.
        chat_template_kwargs: More arguments for the template, such as ``{"enable_thinking": False}``.
        observation_separator: What stands between the prompt's last user message and the first observation.

    Raises:
        ConfigurationError: The chat template cannot carry such dialogues.

    Example:
        >>> engine = RolloutEngine(pool, tokenizer, limits=RolloutLimits(max_turns=8), fetch_schema=fetch_schema)
        >>> trajectories = await engine.run(tasks, policy)
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
        if max_concurrent_episodes < 1:
            raise ConfigurationError(f"max_concurrent_episodes={max_concurrent_episodes} must be at least 1.")
        self.limits = limits or RolloutLimits()
        self._pool = pool
        self._tokenizer = tokenizer
        self._batching = batching or BatchSettings()
        self._max_concurrent_episodes = max_concurrent_episodes
        self._fetch_schema = fetch_schema
        self._template_settings: dict[str, Any] = {
            "chat_template": chat_template,
            "chat_template_kwargs": chat_template_kwargs,
        }
        self._observation_separator = observation_separator
        self._metrics: dict[str, float] = {}
        self._refusals = RefusalWatch()
        self._reached = False
        self._actions = actions
        self._template = None if actions is None else self._make_template(actions)

    @property
    def actions(self) -> ActionInterface:
        """How the model acts; known after `prepare` where it was not given."""
        if self._actions is None:
            raise SessionStateError("The actions are not known yet: await engine.prepare() first.")
        return self._actions

    @property
    def template(self) -> DialogueTemplate:
        """The chat template in pieces; known after `prepare` where no actions were given."""
        if self._template is None:
            raise SessionStateError("The tools are not known yet: await engine.prepare() first.")
        return self._template

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of the last run, by `rollout_metrics`."""
        return dict(self._metrics)

    async def prepare(self) -> None:
        """Open the first session, discover the tools, check the template. Call it early to fail early.

        `run` calls it too; it does its work once.

        Raises:
            ConnectionFailedError: No server answered.
            ConfigurationError: The environment offers no tools and no ``fetch_schema`` was given, or the chat
                template cannot carry such dialogues.
        """
        if self._reached:
            return
        lease: SessionLease = await self._pool.acquire(self.limits.connect_timeout_s)
        healthy = False
        try:
            if self._actions is None:
                actions = await self._discover(lease)
                self._template = self._make_template(actions)
                self._actions = actions
            healthy = True
        finally:
            await self._release(lease, healthy)
        self._reached = True

    async def run(
        self,
        tasks: Sequence[Task],
        policy: Policy | BatchedPolicy,
        sampling: SamplingParameters | None = None,
        *,
        on_trajectory: Callable[[Trajectory], None] | None = None,
        observer: RolloutObserver | None = None,
    ) -> list[Trajectory]:
        """Play one episode for each task, all at once.

        Args:
            tasks: What to play.
            policy: Who plays. A `BatchedPolicy` that its owner serves is used as it is, so that runs of several engines
                share their batches.
            sampling: How it samples.
            on_trajectory: Called with each trajectory as it is finished, in the order they finish.
            observer: Hears what each episode does meanwhile, such as a `RolloutWatch`.

        Returns:
            One trajectory for each task, in the tasks' order. Those that failed say so by their ``end_reason``.

        Raises:
            PolicyError: The policy raised, or gave no proper completions.
            ConfigurationError: A setting cannot work; the other episodes are cancelled.
        """
        if not tasks:
            return []
        await self.prepare()
        shared = isinstance(policy, BatchedPolicy)
        batched = policy if shared else BatchedPolicy(policy, sampling or SamplingParameters(), self._batching)

        def converse(messages: list[Message]) -> Conversation:
            return TokenConversation(
                self.template,
                self.actions,
                batched,
                messages,
                max_generation_attempts=self.limits.max_generation_attempts,
            )

        setting = EpisodeSetting(
            template=self.template,
            actions=self.actions,
            limits=self.limits,
            converse=converse,
            refusals=self._refusals,
            observation_separator=self._observation_separator,
            observer=observer,
        )
        episodes = [Episode(task, setting, index) for index, task in enumerate(tasks)]
        began = anyio.current_time()
        finished: dict[int, Trajectory] = {}

        def finish(index: int, reason: EndReason, error: str | None = None) -> None:
            trajectory = episodes[index].trajectory(reason, anyio.current_time() - began, error)
            finished[index] = trajectory
            if observer is not None:
                observer.episode_finished(index, trajectory, anyio.current_time())
            if on_trajectory is not None:
                on_trajectory(trajectory)

        turnstile = anyio.Semaphore(self._max_concurrent_episodes)

        async def play(index: int) -> None:
            async with turnstile:
                episodes[index].started_s = anyio.current_time() - began
                if observer is not None:
                    observer.episode_started(index, anyio.current_time())
                with batched.episode():
                    reason, error = await self._play(episodes[index])
            finish(index, reason, error)

        with observed(observer, len(tasks)), first_error_alone():
            async with anyio.create_task_group() as service:
                if not shared:
                    service.start_soon(batched.serve)
                with anyio.move_on_after(self.limits.batch_timeout_s):
                    async with anyio.create_task_group() as group:
                        for index in range(len(episodes)):
                            group.start_soon(play, index)
                service.cancel_scope.cancel()
            for index in range(len(episodes)):
                if index not in finished:
                    text = f"the run took longer than batch_timeout_s={self.limits.batch_timeout_s:g}"
                    finish(index, EndReason.BATCH_TIMEOUT, text)
        trajectories = [finished[index] for index in range(len(episodes))]
        self._metrics = rollout_metrics(trajectories, batch_sizes=() if shared else batched.batch_sizes)
        warn_of_group_mismatches(trajectories)
        return trajectories

    async def _play(self, episode: Episode) -> tuple[EndReason, str | None]:
        """All attempts at one episode: how it ended, and what went wrong if something did."""
        limits = self.limits
        with anyio.CancelScope() as scope:
            while True:
                try:
                    return await self._attempt(episode, scope), None
                except EpisodeFailed as failure:
                    if episode.attempts >= limits.max_attempts or failure.reason in FINAL:
                        return failure.reason, str(failure)
                    episode.failures.append(f"{failure.reason.value}: {failure}")
                    episode.enter(Phase.WAITING)
                    await anyio.sleep(limits.retry_delay_s * 2 ** (episode.attempts - 1))
        return EndReason.EPISODE_TIMEOUT, f"the episode took longer than episode_timeout_s={limits.episode_timeout_s:g}"

    async def _attempt(self, episode: Episode, scope: anyio.CancelScope) -> EndReason:
        episode.attempts += 1
        episode.session_in_call = False
        began = anyio.current_time()
        try:
            lease: SessionLease = await self._pool.acquire(self.limits.connect_timeout_s)
        except ConfigurationError:
            raise
        except Exception as error:  # boundary: connecting may be anyone's code
            raise failure_of(error, "connect") from error
        finally:
            episode.waiting_s += anyio.current_time() - began
        if episode.attempts == 1:
            scope.deadline = anyio.current_time() + self.limits.episode_timeout_s
        episode.base_url = lease.base_url
        failed = False
        try:
            return await episode.play(lease.session)
        except EpisodeFailed:
            failed = True
            raise
        finally:
            await self._release(lease, not failed and not episode.session_in_call)

    async def _release(self, lease: SessionLease, healthy: bool) -> None:
        # Also while being cancelled: a lease that is not given back is lost to everyone.
        with anyio.CancelScope(shield=True):
            await self._pool.release(lease, healthy=healthy)

    async def _discover(self, lease: SessionLease) -> ActionInterface:
        timeout_s = self.limits.reset_timeout_s
        try:
            with anyio.fail_after(timeout_s):
                tools = await lease.session.list_tools()
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"The environment at {lease.base_url} did not list its tools within reset_timeout_s={timeout_s:g}."
            ) from error
        if tools:
            return ToolActions(tools)
        if self._fetch_schema is None:
            raise ConfigurationError(
                f"The environment at {lease.base_url} offers no tools. Pass "
                "fetch_schema=openenv_trl.client.fetch_schema, so that its action schema can be offered as one, or say "
                "how the model acts: actions=TextActions(...)."
            )
        schema = await self._fetch_schema(lease.base_url)
        return ToolActions.from_schema(schema["action"])

    def _make_template(self, actions: ActionInterface) -> DialogueTemplate:
        return DialogueTemplate(
            self._tokenizer, actions.tools, answer_role=actions.answer_role, **self._template_settings
        )
