"""`RemoteVecEnv`: sessions on OpenEnv servers as a vector environment of Stable-Baselines3, stepped at the same time.

Needs the package ``stable-baselines3``. (``DummyVecEnv`` over `RemoteEnv` needs nothing of this, and steps one session
after the other.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from gymnasium.vector.utils import concatenate, create_empty_array

from openenv_trl.errors import ConfigurationError
from openenv_trl.gymnasium.dialect import Wishes
from openenv_trl.gymnasium.remote_env import checked_render_mode, environment_metadata
from openenv_trl.gymnasium.remote_sessions import RemoteSessions

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ConfigurationError(
        "openenv_trl.gymnasium.stable_baselines needs Stable-Baselines3: pip install stable-baselines3."
    ) from error


class RemoteVecEnv(VecEnv):
    """Sessions on an OpenEnv server as Stable-Baselines3's ``VecEnv``.

    An episode that is over is begun anew in the same step, as Stable-Baselines3 expects: its last observation is
    ``infos[i]["terminal_observation"]``, and ``infos[i]["TimeLimit.truncated"]`` says whether it was cut off.

    Args:
        base_url: The server's address, or those of several servers, over which the sessions are spread.
        num_envs: Sessions.
        provider: Starts the server, where there is no ``base_url``.
        render_mode: As `RemoteEnv`.
        **arguments: As `RemoteEnv`: ``action_space``, ``to_observation``, ``wire`` and the others.

    Raises:
        ConfigurationError: The spaces can neither be derived nor were they given.
        ConnectionFailedError: No server answered at the address.
        TypeError: There is no such argument.

    Example:
        >>> model = PPO("MlpPolicy", VecMonitor(RemoteVecEnv("http://localhost:8000", num_envs=16)))
    """

    def __init__(
        self,
        base_url: str | Sequence[str] | None = None,
        num_envs: int = 1,
        *,
        provider: Any = None,
        render_mode: str | None = None,
        **arguments: Any,
    ) -> None:
        wishes = Wishes(**{name: arguments.pop(name) for name in list(arguments) if name in Wishes.__annotations__})
        self._sessions = RemoteSessions(num_envs, base_url, provider, wishes, arguments)
        dialect = self._sessions.dialect
        try:
            self._render_mode = checked_render_mode(render_mode, dialect)
        except ConfigurationError:
            self._sessions.close()
            raise
        self.metadata = environment_metadata(dialect)
        self._actions: Any = None
        self._space = dialect.observation_space
        super().__init__(num_envs, self._space, dialect.action_space)  # pyright: ignore[reportUnknownMemberType]

    def reset(self) -> Any:
        """Begin an episode in each session, with the seeds of `seed` and the options of `set_options`, if any."""
        # SB3 keeps options for each environment, and sets them all alike but where one is told otherwise.
        shown: list[Any] = [None] * self.num_envs
        for options in self._different_options():
            chosen = [mine == options for mine in self._options]
            seeds = [None if seed is None else int(seed) for seed in self._seeds]
            for index, beginning in enumerate(self._sessions.reset(seeds, options or None, chosen)):
                if beginning is not None:
                    shown[index], self.reset_infos[index] = beginning
        self._reset_seeds()
        self._reset_options()
        return self._batched(shown)

    def step_async(self, actions: Any) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Take the steps, all at the same time. Raises what `RemoteVectorEnv.step` does."""
        moves = self._sessions.step(self._actions, [False] * self.num_envs, resets_at_end=True)
        shown: list[Any] = []
        infos: list[dict[str, Any]] = []
        rewards, dones = numpy.zeros(self.num_envs, numpy.float32), numpy.zeros(self.num_envs, numpy.bool_)
        for index, moved in enumerate(moves):
            assert moved.outcome is not None, "no session was to be reset in place of a step"
            observation, rewards[index], terminated, truncated, info = moved.outcome
            info["TimeLimit.truncated"] = truncated and not terminated
            dones[index] = terminated or truncated
            if moved.beginning is not None:
                info["terminal_observation"] = observation
                observation, self.reset_infos[index] = moved.beginning
            shown.append(observation)
            infos.append(info)
        return self._batched(shown), rewards, dones, infos

    def close(self) -> None:
        """End the sessions, and the server where a provider has started it."""
        self._sessions.close()

    def get_images(self) -> Any:
        """Return the frame of each session."""
        return self._sessions.frames()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the vector's own for each session: no other reaches the server."""
        own = {"render_mode": self._render_mode, "metadata": getattr(self, "metadata", {}), "spec": None}
        if attr_name not in own:
            raise AttributeError(f"The environments are on a server, and have no attribute '{attr_name}' here.")
        return [own[attr_name] for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: the environments are on a server."""
        raise AttributeError(f"The environments are on a server: '{attr_name}' cannot be set in them.")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Refused: the environments are on a server."""
        raise AttributeError(f"The environments are on a server: '{method_name}' cannot be called in them.")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Whether the environments are wrapped here: they are not."""
        return [False for _ in self._get_indices(indices)]

    def _different_options(self) -> list[dict[str, Any]]:
        different: list[dict[str, Any]] = []
        for options in self._options:
            if options not in different:
                different.append(options)
        return different

    def _batched(self, shown: Sequence[Any]) -> Any:
        return concatenate(self._space, shown, create_empty_array(self._space, self.num_envs))
