"""`RemoteEnv`: a session on an OpenEnv server as a ``gymnasium.Env``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium
import numpy
from gymnasium.utils import EzPickle

from openenv_trl.client.generic import GenericEnvClient
from openenv_trl.errors import ConfigurationError
from openenv_trl.gymnasium.by_space import AnySpace
from openenv_trl.gymnasium.dialect import Dialect, Outcome, Wishes
from openenv_trl.gymnasium.server_schema import schema_of_server


class RemoteEnv(gymnasium.Env[Any, Any], EzPickle):
    """One session on an OpenEnv server, of this package or the public one, used as a Gymnasium environment.

    On a server of `GymnasiumEnvironment` it is the environment that runs there: the same spaces, and for equal seeds
    and actions the same observations, rewards and infos, to the last bit. On any other server the spaces are derived
    from its JSON Schemas: an action of one field is that field's space, one of several a Dict; an observation likewise.
    What cannot be derived is said, and may be given.

    A call that fails raises: no reward and no observation is made up. A lost session stays lost; make another
    environment.

    Args:
        base_url: The server's address. None where the provider starts it.
        provider: Starts the server, and stops it with `close`; as `EnvClient` takes it.
        action_space: In place of the one that the server's schema describes.
        observation_space: Likewise.
        to_action: A function from a value of ``action_space`` to the action's fields.
        to_observation: A function from the observation's fields to a value of ``observation_space``.
        fields: The fields of the observation to show; all if None.
        missing_reward: The reward of a step for which the server gives none; by default that is an error.
        render_mode: What `render` returns: the mode that the server's environment was made with.
        message_timeout_s: Seconds for a reply.
        wait_for_slot_s: Seconds to wait for a session where the server has none free.
        wire: "auto", "native" or "openenv"; as `EnvClient`.
        headers: Sent with every request.

    Raises:
        ConfigurationError: The spaces can neither be derived nor were they given; the text says what to pass.
        ConnectionFailedError: No server answered at the address.

    Example:
        >>> env = RemoteEnv("http://localhost:8000")
        >>> observation, info = env.reset(seed=7)
        >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
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
        wishes = Wishes(action_space, observation_space, to_action, to_observation, fields, missing_reward)
        settings: dict[str, Any] = {
            "message_timeout_s": message_timeout_s,
            "wait_for_slot_s": wait_for_slot_s,
            "wire": wire,
            "headers": headers,
        }
        own = {"provider": provider, "render_mode": render_mode, **vars(wishes), **settings}
        EzPickle.__init__(self, base_url, **own)
        self._client = GenericEnvClient(base_url, provider=provider, **settings).sync()
        try:
            self._dialect = Dialect(schema_of_server(self._client, provider, headers), wishes)
            self.render_mode = checked_render_mode(render_mode, self._dialect)
        except BaseException:
            self._client.close()
            raise
        self.action_space = self._dialect.action_space
        self.observation_space = self._dialect.observation_space
        self.metadata = environment_metadata(self._dialect)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. The first one opens the session.

        Args:
            seed: Decides all that is random in this episode and in those after it that are begun without a seed.
            options: Given to the environment; on a server that knows nothing of Gymnasium, the arguments of its reset.

        Raises:
            OpenEnvError: As `EnvClient.reset`: the session is lost, the server is full, the environment raised.
        """
        super().reset(seed=seed)
        arguments = self._dialect.reset_arguments(seed, options, self.np_random)
        return self._dialect.beginning(self._client.reset(**arguments))

    def step(self, action: Any) -> Outcome:
        """Take one action.

        Raises:
            ActionValidationError: It does not fit; the episode stands.
            OpenEnvError: As `EnvClient.step`: the session is lost, the episode is over, the environment raised.
            ProtocolError: The server gave no reward, or an observation that its schema does not describe.
        """
        return self._dialect.outcome(self._client.step(self._dialect.action(action)))

    def render(self) -> Any:
        """Return the frame that the server's environment renders: an array of pixels, or text. None without a mode."""
        return None if self.render_mode is None else frame_of(self._client.state())

    def close(self) -> None:
        """End the session, and the server where a provider has started it. A second time does nothing."""
        self._client.close()

    def __str__(self) -> str:
        """What is played, and where."""
        name = self._dialect.facts.get("env_id", "an environment")
        return f"<RemoteEnv of {name} at {self._client.base_url}>"


def checked_render_mode(wanted: str | None, dialect: Dialect) -> str | None:
    """Return the mode, which must be the server's own.

    Raises:
        ConfigurationError: It is another.
    """
    served = dialect.facts.get("render_mode")
    if wanted is not None and wanted != served:
        raise ConfigurationError(
            f"render_mode={wanted!r}: the server's environment was made with {served!r}. Serve it with that mode, as "
            f"'gymnasium:CartPole-v1?render_mode={wanted}' does, or leave render_mode out here."
        )
    return wanted


def environment_metadata(dialect: Dialect) -> dict[str, Any]:
    """Return ``metadata`` of a Gymnasium environment, with the modes in which the server renders."""
    mode, fps = dialect.facts.get("render_mode"), dialect.facts.get("render_fps")
    modes = [mode] if mode in ("rgb_array", "ansi") else []
    return {"render_modes": modes} | ({} if fps is None else {"render_fps": fps})


def frame_of(state: Mapping[str, Any]) -> Any:
    """Return the frame in a state that a server of `GymnasiumEnvironment` has sent; None where it has none."""
    frame = state.get("frame")
    return frame if frame is None or isinstance(frame, str) else numpy.array(frame, numpy.uint8)
