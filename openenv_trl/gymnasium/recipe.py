"""How a Gymnasium environment is made, and made again for every session and in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec

from openenv_trl.errors import ConfigurationError

AnyEnv = gymnasium.Env[Any, Any]
Makeable = str | EnvSpec | Callable[..., AnyEnv]
"""A registered name (``"CartPole-v1"``, ``"ale_py:ALE/Pong-v5"``), a spec, or what makes one: a function, a class."""


@dataclass(frozen=True)
class Recipe:
    """What is needed to make an environment and to serve it.

    Attributes:
        env: The registered name, the spec, or what makes it.
        make_kwargs: Passed to ``gymnasium.make``, or to what makes it.
        describe: Turns an observation into words; None for words that fit any.
        action_names: Names of a Discrete's actions.
        tool_name: What the tool is called.
        execution: Where the code runs; None for where it fits.
        concurrent: Whether a server may hold several.
    """

    env: Makeable
    make_kwargs: Mapping[str, Any]
    describe: Callable[[Any], str] | None = None
    action_names: tuple[str, ...] = ()
    tool_name: str = "act"
    execution: str | None = None
    concurrent: bool = True

    @property
    def name(self) -> str:
        """The environment's name."""
        if isinstance(self.env, str):
            return self.env.rpartition(":")[2]
        return self.env.id if isinstance(self.env, EnvSpec) else getattr(self.env, "__name__", "environment")

    def make(self) -> AnyEnv:
        """Make an environment.

        Raises:
            ConfigurationError: There is none of that name, it lacks a package, or it does not take these arguments.
        """
        if isinstance(self.env, (str, EnvSpec)):
            wanted = self.make_kwargs.get("render_mode")
            if not isinstance(wanted, (str, type(None))):
                raise ConfigurationError(f"render_mode={wanted!r} is no text: give one such as 'rgb_array', or none.")
            made = self._registered(self.env)
            self._require_mode(made)
            return made
        given = cast("object", self.env)
        if isinstance(given, gymnasium.Env):
            raise ConfigurationError(
                f"{self.name} is one environment, and every session needs one of its own: give its class, or a "
                "function that makes one."
            )
        made = self.env(**self.make_kwargs)
        if not isinstance(cast("object", made), gymnasium.Env):
            raise ConfigurationError(f"{self.name} made {made!r}, which is no gymnasium.Env.")
        return made

    def _require_mode(self, env: AnyEnv) -> None:
        """Gymnasium only warns where the environment has no such mode."""
        modes = env.metadata.get("render_modes")
        wanted = self.make_kwargs.get("render_mode")
        if wanted is None or not modes or wanted in modes or (wanted == "human" and "rgb_array" in modes):
            return
        env.close()
        raise ConfigurationError(
            f"render_mode={wanted!r}: '{self.name}' renders {', '.join(map(repr, modes))}. Choose one, or leave it out."
        )

    def _registered(self, env: str | EnvSpec) -> AnyEnv:
        try:
            return gymnasium.make(env, **self.make_kwargs)
        except gymnasium.error.NamespaceNotFound as error:
            raise ConfigurationError(
                f"Gymnasium cannot make '{self.name}': {_one_line(error)} If it is installed, name the module that "
                "registers it before a colon, as in 'ale_py:ALE/Pong-v5'."
            ) from error
        except (gymnasium.error.Error, ModuleNotFoundError, TypeError) as error:
            raise ConfigurationError(f"Gymnasium cannot make '{self.name}': {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
