"""`RemoteVectorEnv`: sessions on OpenEnv servers as one ``gymnasium.vector.VectorEnv``, stepped at the same time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.gymnasium.by_space import AnySpace
from openenv_trl.gymnasium.dialect import Wishes
from openenv_trl.gymnasium.remote_env import checked_render_mode, environment_metadata
from openenv_trl.gymnasium.remote_sessions import Beginning, RemoteSessions
from openenv_trl.gymnasium.space_values import shortened

Batch = tuple[Any, Any, Any, Any, dict[str, Any]]


class RemoteVectorEnv(VectorEnv[Any, Any, Any]):
    """Sessions on an OpenEnv server as one vector environment.

    A step's calls all go out together, so that it takes about as long as the slowest of them. Observations, rewards,
    ends and infos are those of Gymnasium's ``SyncVectorEnv`` over as many `RemoteEnv`, in each autoreset mode.

    Args:
        base_url: The server's address, or those of several servers, over which the sessions are spread. None where the
            provider starts it.
        num_envs: Sessions.
        autoreset_mode: What becomes of an episode that is over: Gymnasium's ``AutoresetMode``, or its value.
        provider: As `RemoteEnv`, like all that follow.
        action_space: Of one session.
        observation_space: Of one session.
        to_action: Of one session.
        to_observation: Of one session.
        fields: The fields of the observation to show; all if None.
        missing_reward: The reward of a step for which the server gives none; by default that is an error.
        render_mode: What `render` returns.
        message_timeout_s: Seconds for a reply.
        wait_for_slot_s: Seconds to wait for a session where the server has none free.
        wire: "auto", "native" or "openenv".
        headers: Sent with every request.

    Raises:
        ConfigurationError: The spaces can neither be derived nor were they given; the text says what to pass. Or the
            servers' spaces differ; it names the address.
        ConnectionFailedError: No server answered at the address.

    Example:
        >>> envs = RemoteVectorEnv("http://localhost:8000", num_envs=16)
        >>> observations, infos = envs.reset(seed=7)
        >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    """

    single_action_space: AnySpace
    single_observation_space: AnySpace
    action_space: AnySpace
    observation_space: AnySpace

    def __init__(
        self,
        base_url: str | Sequence[str] | None = None,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        provider: Any = None,
        action_space: AnySpace | None = None,
        observation_space: AnySpace | None = None,
        to_action: Callable[[Any], Mapping[str, Any]] | None = None,
        to_observation: Callable[[dict[str, Any]], Any] | None = None,
        fields: Sequence[str] | None = None,
        missing_reward: float | None = None,
        render_mode: str | None = None,
        message_timeout_s: float = 60.0,
        wait_for_slot_s: float = 0.0,
        wire: Literal["auto", "native", "openenv"] = "auto",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        wishes = Wishes(action_space, observation_space, to_action, to_observation, fields, missing_reward)
        settings: dict[str, Any] = {
            "message_timeout_s": message_timeout_s,
            "wait_for_slot_s": wait_for_slot_s,
            "wire": wire,
            "headers": headers,
        }
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.num_envs = num_envs
        self._sessions = RemoteSessions(num_envs, base_url, provider, wishes, settings)
        dialect = self._sessions.dialect
        try:
            self.render_mode = checked_render_mode(render_mode, dialect)
        except ConfigurationError:
            self._sessions.close()
            raise
        self.metadata = environment_metadata(dialect) | {"autoreset_mode": self.autoreset_mode}
        self.single_action_space, self.single_observation_space = dialect.action_space, dialect.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._shown: list[Any] = [None] * num_envs
        self._over = numpy.zeros(num_envs, numpy.bool_)

    def reset(  # pyright: ignore[reportIncompatibleMethodOverride] - as SyncVectorEnv's
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each session. The first time opens the sessions.

        Args:
            seed: For one number, each session gets one of its own, counted up from it; or one for each.
            options: As `RemoteEnv.reset`. A ``reset_mask`` among them, an array of truth values, says which sessions
                are reset.

        Raises:
            OpenEnvError: As `RemoteEnv.reset`.
        """
        seeds = self._seeds(seed)
        rest = dict(options or {})
        chosen = self._mask(rest.pop("reset_mask", None))
        beginnings = self._sessions.reset(seeds, None if options is None else rest, chosen)
        infos: dict[str, Any] = {}
        for index, beginning in enumerate(beginnings):
            if beginning is not None:
                self._over[index] = False
                infos = self._shows(beginning, infos, index)
        return self._batched(), infos

    def step(self, actions: Any) -> Batch:
        """Take one step in each session, all at the same time.

        Raises:
            ActionValidationError: Not one action for each session, or one that its space does not contain; none has
                moved.
            OpenEnvError: As `RemoteEnv.step`, of the first session whose call failed. The others have moved: reset all.
        """
        disabled = self.autoreset_mode is AutoresetMode.DISABLED
        if disabled and self._over.any():
            ended = numpy.flatnonzero(self._over).tolist()
            raise SessionStateError(
                f"The episodes of the environments {ended} are over. With autoreset disabled, reset them first: "
                "options={'reset_mask': ...}.",
                phase="step",
            )
        to_reset = self._over.tolist() if self.autoreset_mode is AutoresetMode.NEXT_STEP else [False] * self.num_envs
        at_end = self.autoreset_mode is AutoresetMode.SAME_STEP
        moves = self._sessions.step(self._each(actions), to_reset, resets_at_end=at_end)
        rewards = numpy.zeros(self.num_envs, numpy.float64)
        terminations, truncations = numpy.zeros((2, self.num_envs), numpy.bool_)
        infos: dict[str, Any] = {}
        for index, moved in enumerate(moves):
            if moved.outcome is not None:
                observation, rewards[index], terminations[index], truncations[index], info = moved.outcome
                if moved.beginning is None:
                    infos = self._shows((observation, info), infos, index)
                else:
                    infos = self._add_info(infos, {"final_obs": observation, "final_info": info}, index)
            if moved.beginning is not None:
                infos = self._shows(moved.beginning, infos, index)
        self._over = terminations | truncations
        return self._batched(), rewards, terminations, truncations, infos

    def render(self) -> tuple[Any, ...] | None:
        """Return the frame of each session; None without a mode."""
        return None if self.render_mode is None else tuple(self._sessions.frames())

    def close_extras(self, **kwargs: Any) -> None:
        """End the sessions, and the server where a provider has started it."""
        del kwargs
        self._sessions.close()

    def _each(self, actions: Any) -> list[Any]:
        try:
            return list(iterate(self.action_space, actions))
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ActionValidationError(
                f"actions={shortened(actions)} cannot be taken apart into those of {self.num_envs} environments: give "
                f"a value of {self.action_space}. No environment moved."
            ) from error

    def _shows(self, beginning: Beginning, infos: dict[str, Any], index: int) -> dict[str, Any]:
        self._shown[index], info = beginning
        return self._add_info(infos, info, index)

    def _batched(self) -> Any:
        empty = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, self._shown, empty)

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        seeds: list[int | None] = []
        seeds += range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        if len(seeds) != self.num_envs:
            raise ConfigurationError(f"{len(seeds)} seeds for {self.num_envs} environments: give one for each.")
        return seeds

    def _mask(self, mask: Any) -> list[bool]:
        if mask is None:
            return [True] * self.num_envs
        given = numpy.asarray(mask)
        if given.shape != (self.num_envs,) or given.dtype != numpy.bool_ or not given.any():
            raise ConfigurationError(
                f"options['reset_mask'] must be an array of {self.num_envs} truth values, at least one of them true."
            )
        return given.tolist()
