"""Plays many episodes at once and brings back a trajectory for each, whatever happens to the environments.

Failures of environments end only their own episode; they are tried again in fresh sessions and, if they still fail,
come back as trajectories without a reward. A task that its environment refuses does so too, untried. Mistakes of the
user's, such as nothing but refused tasks, and a policy that cannot generate, are raised at once.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import anyio

from openenv_trl.errors import ConfigurationError, DeadlineExceededError, ProtocolError, SessionStateError
from openenv_trl.rollout.actions import ActionInterface, ToolActions
from openenv_trl.rollout.attempts import Attempts
from openenv_trl.rollout.batching import BatchedPolicy, BatchSettings
from openenv_trl.rollout.bias_report import BiasReport, bias_report
from openenv_trl.rollout.chat_conversation import ChatConversation
from openenv_trl.rollout.conversation import Conversation, TokenConversation
from openenv_trl.rollout.dialogue_template import DialogueTemplate
from openenv_trl.rollout.episode import EpisodeSetting
from openenv_trl.rollout.first_error import first_error_alone
from openenv_trl.rollout.limits import RolloutLimits
from openenv_trl.rollout.metrics import rollout_metrics, warn_of_group_mismatches
from openenv_trl.rollout.observer import RolloutObserver, observed
from openenv_trl.rollout.policy import MessagePolicy, Policy, SamplingParameters
from openenv_trl.rollout.refusals import NothingButRefusals, RefusalWatch
from openenv_trl.rollout.running import Run
from openenv_trl.rollout.session import SessionLease, SessionSource
from openenv_trl.rollout.strategies import HedgeSlowCalls, RolloutStrategies
from openenv_trl.rollout.task import Message, Task
from openenv_trl.rollout.text_rules import PlainTextRules
from openenv_trl.rollout.tokenizer import ChatTokenizer
from openenv_trl.rollout.trajectory import Trajectory

logger = logging.getLogger("openenv_trl.rollout")

_MAX_CONCURRENT_EPISODES = 256


class RolloutEngine:
    """Plays episodes over a pool of sessions.

    Args:
        pool: Where sessions come from, such as a `SessionPool` or a `ReplicaPool`.
        tokenizer: A tokenizer with a chat template; None where all policies take and give messages.
        actions: How the model acts. None: the environment's own tools, discovered from the first session; where it
            offers none, one tool "act" made of the action schema, which needs ``fetch_schema``.
        limits: How far an episode may go.
        strategies: What is done when an episode fails or is slow.
        batching: When a batch goes to the policy.
        max_concurrent_episodes: Episodes open at once; a good value is the number of sessions that the servers allow.
            None: as many as the pool has at most, where it says so (``max_sessions``), otherwise 256.
        fetch_schema: ``openenv_trl.client.fetch_schema``: given a server's address, its schemas.
        fetch_promises: ``openenv_trl.client.fetch_promises``: given a server's address, what its environment
            declares of itself. Hedging needs it, unless its settings say whether episodes can be repeated.
        task_key: Tells tasks apart in the bias report, such as by a level's name; by their seeds if None.
        chat_template: A template to use in place of the tokenizer's own.
        chat_template_kwargs: More arguments for the template, such as ``{"enable_thinking": False}``.
        observation_separator: What stands between the prompt's last user message and the first observation.
        thoughts: Whether the model is shown its own earlier thoughts: see `DialogueTemplate`. TRL trains on all that
            was sampled with "keep" only.

    Raises:
        ConfigurationError: The chat template cannot carry such dialogues.

    Example:
        >>> engine = RolloutEngine(pool, tokenizer, limits=RolloutLimits(max_turns=8), fetch_schema=fetch_schema)
        >>> trajectories = await engine.run(tasks, policy)
    """

    def __init__(
        self,
        pool: SessionSource,
        tokenizer: ChatTokenizer | None,
        *,
        actions: ActionInterface | None = None,
        limits: RolloutLimits | None = None,
        strategies: RolloutStrategies | None = None,
        batching: BatchSettings | None = None,
        max_concurrent_episodes: int | None = None,
        fetch_schema: Callable[[str], Awaitable[dict[str, Any]]] | None = None,
        fetch_promises: Callable[[str], Awaitable[dict[str, Any]]] | None = None,
        task_key: Callable[[Task], str] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        observation_separator: str = "\n\n",
        thoughts: Literal["keep", "template"] = "keep",
    ) -> None:
        if max_concurrent_episodes is None:
            max_concurrent_episodes = int(getattr(pool, "max_sessions", _MAX_CONCURRENT_EPISODES))
        if max_concurrent_episodes < 1:
            raise ConfigurationError(f"max_concurrent_episodes={max_concurrent_episodes} must be at least 1.")
        self.limits = limits or RolloutLimits()
        self.strategies = strategies or RolloutStrategies()
        self._pool = pool
        self._tokenizer = tokenizer
        self._batching = batching or BatchSettings()
        self._max_concurrent_episodes = max_concurrent_episodes
        self._fetch_schema = fetch_schema
        self._template_settings: dict[str, Any] = {
            "chat_template": chat_template,
            "chat_template_kwargs": chat_template_kwargs,
            "thoughts": thoughts,
        }
        self._observation_separator = observation_separator
        self._metrics: dict[str, float] = {}
        self._refusals = RefusalWatch()
        self._reached = False
        self._fetch_promises = fetch_promises
        self._task_key = task_key
        self._last_report: BiasReport | None = None
        self._counts: dict[str, int] = {}
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
        if self._tokenizer is None:
            raise ConfigurationError(
                "The engine has no tokenizer, so only policies that take and give messages (such as ChatPolicy) can "
                "play. Give it the tokenizer of the policy's model: RolloutEngine(pool, tokenizer)."
            )
        if self._template is None:
            raise SessionStateError("The tools are not known yet: await engine.prepare() first.")
        return self._template

    @property
    def metrics(self) -> dict[str, float]:
        """Numbers of the last run: those of `rollout_metrics`, of its bias report, and of its hedges."""
        return dict(self._metrics)

    @property
    def has_played(self) -> bool:
        """Whether the environment has ever played a task for this engine."""
        return self._refusals.has_played

    @property
    def counts(self) -> dict[str, int]:
        """What happened in the last run beside its episodes: "hedges", "hedges_won" and "hedge_mismatches"."""
        return dict(self._counts)

    @property
    def last_report(self) -> BiasReport | None:
        """What the last run kept and dropped; None before the first."""
        return self._last_report

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
            await self._check_repeatable(lease.base_url)
            healthy = True
        finally:
            await self._release(lease, healthy)
        self._reached = True

    async def run(
        self,
        tasks: Sequence[Task],
        policy: Policy | MessagePolicy | BatchedPolicy,
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
            on_trajectory: Called with each trajectory that will be returned, as soon as that is certain: where nothing
                is over-sampled or refilled, in the order they finish.
            observer: Hears what each episode does meanwhile, such as a `RolloutWatch`.

        Returns:
            One trajectory for each task, in the tasks' order. Those that failed say so by their ``end_reason``. With
            over-sampling or refilling it may be that of another episode of the same group.

        Raises:
            PolicyError: The policy raised, or gave no proper completions.
            ConfigurationError: A setting cannot work; the other episodes are cancelled. Or the environment refused all
                tasks, and this engine has not played one before; the text has its words.
        """
        if not tasks:
            return []
        await self.prepare()
        shared = isinstance(policy, BatchedPolicy)
        batched = policy if shared else BatchedPolicy(policy, sampling or SamplingParameters(), self._batching)

        in_messages = batched.speaks_messages
        template = None if in_messages else self.template

        def converse(messages: list[Message]) -> Conversation:
            tries = self.limits.max_generation_attempts
            if template is None:
                return ChatConversation(self.actions, batched, messages, max_generation_attempts=tries)
            return TokenConversation(template, self.actions, batched, messages, max_generation_attempts=tries)

        setting = EpisodeSetting(
            rules=template or PlainTextRules(),
            token_exact=not in_messages,
            actions=self.actions,
            limits=self.limits,
            converse=converse,
            refusals=self._refusals,
            observation_separator=self._observation_separator,
            observer=observer,
            tool_errors=self.strategies.tool_errors,
        )
        attempts = Attempts(self._pool, self.limits, self.strategies)
        run = Run(
            tasks,
            setting,
            attempts,
            self.strategies,
            batched,
            max_concurrent_episodes=self._max_concurrent_episodes,
            on_trajectory=on_trajectory,
        )
        with self._refusals.run() as watched:
            with observed(observer, run.episodes), first_error_alone():
                async with anyio.create_task_group() as service:
                    if not shared:
                        service.start_soon(batched.serve)
                    await run.play(self.limits.batch_timeout_s)
                    service.cancel_scope.cancel()
            result = run.result()
            trajectories = result.trajectories
            refused = self._refused(trajectories, watched)
        self._last_report = bias_report(trajectories, result.left_out, task_key=self._task_key)
        tools = [tool.name for tool in self.actions.tools]
        numbers = rollout_metrics(trajectories, batch_sizes=() if shared else batched.batch_sizes, tools=tools)
        self._counts = dict(attempts.counts)
        counts = {name: float(count) for name, count in self._counts.items()}
        self._metrics = numbers | self._last_report.metrics() | counts
        if refused is not None:
            raise refused
        if self._last_report.dropped:
            logger.info("%s", self._last_report)
        warn_of_group_mismatches(trajectories)
        return trajectories

    def _refused(self, trajectories: Sequence[Trajectory], run: object) -> NothingButRefusals | None:
        try:
            self._refusals.ended(((each.end_reason, each.error) for each in trajectories), run)
        except NothingButRefusals as error:
            error.trajectories = trajectories
            return error
        return None

    async def _check_repeatable(self, base_url: str) -> None:
        """Refuse to hedge an environment whose episodes cannot be repeated.

        Raises:
            ConfigurationError: It does not declare that, or nobody can ask it.
        """
        hedge = self.strategies.straggler
        if not isinstance(hedge, HedgeSlowCalls) or hedge.repeatable:
            return
        way_out = (
            "Set REPEATABLE = True on the environment's class if equal seeds and actions give equal observations and "
            "nothing outside is changed, or take another straggler strategy."
        )
        if hedge.repeatable is False:
            raise ConfigurationError(f"Hedging needs an environment whose episodes can be repeated. {way_out}")
        if self._fetch_promises is None:
            raise ConfigurationError(
                "Whether this environment's episodes can be repeated, which hedging needs, is not known: pass "
                "fetch_promises=openenv_trl.client.fetch_promises, or say it: HedgeSlowCalls(repeatable=True)."
            )
        try:
            promises = await self._fetch_promises(base_url)
        except ProtocolError as error:
            raise ConfigurationError(
                f"The server at {base_url} does not say whether its environment's episodes can be repeated, which "
                "hedging needs. Say it in its place: repeatable: true in the straggler strategy."
            ) from error
        if promises.get("repeatable") is not True:
            raise ConfigurationError(f"The environment at {base_url} cannot be hedged: it is not REPEATABLE. {way_out}")

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

    def _make_template(self, actions: ActionInterface) -> DialogueTemplate | None:
        if self._tokenizer is None:
            return None
        return DialogueTemplate(
            self._tokenizer, actions.tools, answer_role=actions.answer_role, **self._template_settings
        )
