"""`GymnasiumEnvironment`: any Gymnasium environment as an OpenEnv environment.

Promises: actions and observations are exactly Gymnasium's, of every space; equal seeds and actions give the episodes
that the environment gives in process; an action outside of its space is refused and the episode stands; an episode
that is over takes no step; what cannot be sent of ``info`` is told in words.
"""

from __future__ import annotations

import copyreg
import os
import pickle
import re
from abc import ABCMeta
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast, get_args

import numpy
from typing_extensions import Self

from openenv_trl.environment import Environment
from openenv_trl.errors import ConfigurationError, SessionStateError
from openenv_trl.gymnasium import wording
from openenv_trl.gymnasium.acting import reset_on_loop, step_on_loop, tool_of
from openenv_trl.gymnasium.by_space import AnySpace, spaces
from openenv_trl.gymnasium.info_values import sendable
from openenv_trl.gymnasium.models import (
    GymnasiumAction,
    GymnasiumObservation,
    GymnasiumState,
    action_class,
    observation_class,
)
from openenv_trl.gymnasium.picture import frame_as_html, is_picture
from openenv_trl.gymnasium.recipe import AnyEnv, Makeable, Recipe
from openenv_trl.gymnasium.space_values import write_value
from openenv_trl.types import EnvironmentMetadata

Execution = Literal["auto", "loop", "thread", "process"]

_QUICK = ("gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
"""Modules whose environments take 10 to 70 microseconds for a step: their hooks run on the server's event loop."""

_MOST_BUTTONS = 24


class _ClassByRecipe(ABCMeta):
    """Classes that travel between processes by the recipe of their environment."""


class GymnasiumEnvironment(
    Environment[GymnasiumAction, GymnasiumObservation, GymnasiumState], metaclass=_ClassByRecipe
):
    """A Gymnasium environment, one episode at a time. `of` makes the class of one, which a server takes.

    Its agent acts by typed actions, whose ``action`` is a value of the action space, or by one tool that takes the
    same. `GymnasiumEnvironment("CartPole-v1")` is an instance of ``GymnasiumEnvironment.of("CartPole-v1")``.

    Args:
        env: As `of`; on a class that `of` has made, nothing.
        **arguments: As `of`.

    Attributes:
        env_id: The environment's name.
        action_cls: The class of actions, for ``create_app``.
        observation_cls: The class of observations.
        action_space: What steps take.
        observation_space: What they show.

    Example:
        >>> CartPole = GymnasiumEnvironment.of("CartPole-v1")
        >>> app = create_app(CartPole, CartPole.action_cls, CartPole.observation_cls, max_concurrent_envs=64)
    """

    SUPPORTS_CONCURRENT_SESSIONS: ClassVar[bool] = True
    EXECUTION: ClassVar[Execution] = "thread"

    env_id: ClassVar[str] = ""
    action_cls: ClassVar[type[GymnasiumAction]] = GymnasiumAction
    observation_cls: ClassVar[type[GymnasiumObservation]] = GymnasiumObservation
    action_space: ClassVar[AnySpace]
    observation_space: ClassVar[AnySpace]
    _recipe: ClassVar[Recipe | None] = None
    _pickled: ClassVar[bytes | None] = None
    _parts: ClassVar[tuple[str, ...]] = ()
    _meanings: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(
        cls,
        env: Makeable,
        /,
        *,
        describe: Callable[[Any], str] | None = None,
        action_names: Sequence[str] = (),
        tool_name: str = "act",
        execution: Execution | None = None,
        concurrent: bool = True,
        **make_kwargs: Any,
    ) -> type[Self]:
        """Return the class of an environment. One environment is made to learn its spaces.

        Args:
            env: A registered name (``"CartPole-v1"``; ``"ale_py:ALE/Pong-v5"`` imports ``ale_py`` first), a spec, or
                a function or class that makes an environment.
            describe: Turns an observation into the words that a language model reads. By default the numbers with
                their names where those are known, or the rendered text with ``render_mode="ansi"``.
            action_names: Names for a Discrete's actions, the smallest first: the tool then takes names, and typed
                actions both.
            tool_name: What the tool is called.
            execution: Where the environment's code runs, as `Environment.EXECUTION` says. By default on the event loop
                for Gymnasium's classic control and toy text without pictures, and in threads for all others.
            concurrent: Whether a server may hold several sessions; False for an environment that keeps something in
                its class, its module or a file.
            **make_kwargs: Passed to ``gymnasium.make``, or to the function.

        Raises:
            ConfigurationError: The environment cannot be made, or a space or name does not do.
        """
        if execution not in (None, *get_args(Execution)):
            raise ConfigurationError(
                f"execution={execution!r}: give one of {', '.join(map(repr, get_args(Execution)))}, or leave it out."
            )
        return cls._of_recipe(
            Recipe(env, make_kwargs, describe, tuple(action_names), tool_name, execution, concurrent), None
        )

    def __new__(cls, env: Makeable | None = None, /, **arguments: Any) -> Self:
        """Make an instance of the class of this environment."""
        if env is not None:
            return object.__new__(cls.of(env, **arguments))
        if cls._recipe is None:
            raise ConfigurationError(
                f"{cls.__name__} needs an environment to serve: GymnasiumEnvironment('CartPole-v1'), or the class that "
                "GymnasiumEnvironment.of('CartPole-v1') returns."
            )
        return object.__new__(cls)

    def __init__(self, env: Makeable | None = None, /, **arguments: Any) -> None:
        super().__init__()
        del env, arguments  # they have decided the class
        self._env: AnyEnv = cast("Recipe", self._recipe).make()
        self._episode_id: str | None = None
        self._seed: int | None = None
        self._episodes_since_seed = 0
        self._step_count = 0
        self._stands: Literal["new", "playing", "over", "closed"] = "new"

    @property
    def env(self) -> AnyEnv:
        """The Gymnasium environment."""
        return self._env

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        options: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> GymnasiumObservation:
        """Begin an episode.

        Args:
            seed: Given to the environment. Without one, its random numbers go on where they are, as Gymnasium's do;
                the first episode of a session then gets a seed from the operating system's entropy.
            episode_id: A name for the episode; made up if None.
            options: The environment's own options.
            **kwargs: Not accepted; any other name is refused.

        Raises:
            ConfigurationError: An unknown argument, or one of a wrong kind.
            SessionStateError: It is closed.
        """
        self._check_reset(seed, options, kwargs)
        if seed is None and self._stands == "new":
            seed = int.from_bytes(os.urandom(6), "big")  # 48 bits: every JSON reader holds them exactly
        self._stands = "over"  # until the environment has begun another
        observation, info = self._env.reset(seed=seed, options=options)
        self._seed, self._episodes_since_seed = (
            (self._seed, self._episodes_since_seed + 1) if seed is None else (seed, 0)
        )
        self._episode_id = os.urandom(16).hex() if episode_id is None else episode_id
        self._step_count, self._stands = 0, "playing"
        return self._shown(observation, info, None, terminated=False, truncated=False)

    def step(self, action: GymnasiumAction, timeout_s: float | None = None, **kwargs: Any) -> GymnasiumObservation:
        """Take one action.

        Raises:
            SessionStateError: No episode is being played: call ``reset`` first.
        """
        return self._act(action.action)

    @property
    def state(self) -> GymnasiumState:
        """The episode, what it takes to play it again, and the frame where the environment renders one."""
        return GymnasiumState(
            episode_id=self._episode_id,
            step_count=self._step_count,
            env_id=self.env_id,
            seed=self._seed,
            episodes_since_seed=self._episodes_since_seed,
            frame=self._frame(),
        )

    def get_metadata(self) -> EnvironmentMetadata:
        """The environment's name and its spaces, in words."""
        shown = f"Actions: {self.action_space}. Observations: {self.observation_space}."
        description = f"The Gymnasium environment {self.env_id}. {shown}"
        return EnvironmentMetadata(name=self.env_id, description=description)

    def render_web(self, observation: dict[str, Any]) -> str | None:
        """The frame as a picture or as text; else the observation's picture, where it is one."""
        frame = self._frame()
        if frame is None and is_picture(observation.get("observation")):
            frame = observation["observation"]
        if isinstance(frame, str):
            frame = wording.rendered_in_plain_text(frame)
        return None if frame is None else frame_as_html(frame, str(observation.get("message", "")))

    def web_actions(self, observation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """A button for each action of a Discrete that is not large, while an episode is being played."""
        del observation
        space: Any = self.action_space
        if self._stands != "playing" or not isinstance(space, spaces.Discrete):
            return []
        numbers = range(int(space.start), int(space.start) + min(int(space.n), _MOST_BUTTONS))
        names = self._meanings or tuple(map(str, numbers))
        return [(name, {"action": number}) for name, number in zip(names, numbers, strict=False)]

    def close(self) -> None:
        """Close the environment. A second time does nothing."""
        if self._stands != "closed":
            self._stands = "closed"
            self._env.close()

    def _act(self, action: Any) -> GymnasiumObservation:
        if self._stands != "playing":
            why = {"new": "No episode was begun yet", "over": "This episode is over", "closed": "It is closed"}
            advice = "" if self._stands == "closed" else " Call reset to begin one."
            raise SessionStateError(f"{why[self._stands]}.{advice}", phase="step")
        observation, reward, terminated, truncated, info = self._env.step(action)
        self._step_count += 1
        if terminated or truncated:
            self._stands = "over"
        return self._shown(observation, info, float(reward), terminated=bool(terminated), truncated=bool(truncated))

    def _shown(
        self, observation: Any, info: Mapping[str, Any], reward: float | None, *, terminated: bool, truncated: bool
    ) -> GymnasiumObservation:
        done = terminated or truncated
        metadata = {"terminated": terminated, "truncated": truncated} if done else {}
        message = self._words(observation)
        if reward is not None and cast("Recipe", self._recipe).describe is None:
            message += wording.outcome_in_words(reward, terminated=terminated, truncated=truncated)
        # Not validated: it is what the environment gave, and a wrong shape or bound would be its own.
        return self.observation_cls.model_construct(
            observation=write_value(self.observation_space, observation),
            message=message,
            info=cast("dict[str, Any]", sendable(info)) if info else {},
            reward=reward,
            done=done,
            metadata=metadata,
        )

    def _words(self, observation: Any) -> str:
        describe = cast("Recipe", self._recipe).describe
        if describe is not None:
            return describe(observation)
        if self._env.render_mode == "ansi":
            return wording.rendered_in_plain_text(str(self._env.render()))
        return wording.observation_in_words(self.observation_space, observation, self._parts)

    def _frame(self) -> Any:
        if self._env.render_mode not in ("rgb_array", "ansi") or self._stands in ("new", "closed"):
            return None
        frame = cast("Any", self._env.render())
        return str(frame) if self._env.render_mode == "ansi" else numpy.asarray(frame)

    def _check_reset(self, seed: Any, options: Any, unknown: Mapping[str, Any]) -> None:
        if self._stands == "closed":
            raise SessionStateError("This environment is closed. Make another.", phase="reset")
        if unknown:
            raise ConfigurationError(
                f"A Gymnasium environment's reset does not know {', '.join(map(repr, sorted(unknown)))}. It takes "
                "seed, episode_id and options; what an environment is made with is given to GymnasiumEnvironment.of."
            )
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise ConfigurationError(f"seed must be an integer of 0 or more, or None, not {seed!r}.")
        if options is not None and not isinstance(options, dict):
            raise ConfigurationError(f"options must be an object, such as {{'low': -0.1}}, not {options!r}.")

    @classmethod
    def _of_recipe(cls, recipe: Recipe, pickled: bytes | None) -> type[Self]:
        env = recipe.make()
        try:
            facts = {
                "env_id": recipe.name,
                "render_mode": env.render_mode,
                "render_fps": env.metadata.get("render_fps"),
                "nondeterministic": env.spec is None or env.spec.nondeterministic,
            }
            quick = type(env.unwrapped).__module__.startswith(_QUICK) and env.render_mode in (None, "ansi")
            meanings, parts = recipe.action_names or wording.actions_of(env), wording.parts_of(env)
            actions, shown = env.action_space, env.observation_space
        finally:
            env.close()
        title = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^0-9A-Za-z]+", recipe.name))
        observed = observation_class(f"{title}Observation", shown)
        acted = action_class(f"{title}Action", actions, shown, facts, recipe.action_names)
        content: dict[str, Any] = {
            "__module__": cls.__module__,
            "__doc__": f"{recipe.name}: see `GymnasiumEnvironment`.",
            # As a class that is written down says what it takes and shows; `check_environment` reads it.
            "__orig_bases__": (Environment[acted, observed, GymnasiumState],),
            "SUPPORTS_CONCURRENT_SESSIONS": recipe.concurrent,
            "EXECUTION": recipe.execution or ("auto" if quick else "thread"),
            "REPEATABLE": not facts["nondeterministic"],
            "env_id": recipe.name,
            "action_cls": acted,
            "observation_cls": observed,
            "action_space": actions,
            "observation_space": shown,
            "_recipe": recipe,
            "_pickled": pickled,
            "_parts": parts,
            "_meanings": meanings,
            "act_by_tool": tool_of(recipe, actions, observed, meanings, asynchronous=quick),
        }
        if quick:
            content |= {"reset_async": reset_on_loop, "step_async": step_on_loop}
        made = type(cls)(f"{title}Environment", (cls,), content)
        acted.environment_cls = observed.environment_cls = made
        return cast("type[Self]", made)


_classes: dict[bytes, type[GymnasiumEnvironment]] = {}


def _class_of(pickled: bytes) -> type[GymnasiumEnvironment]:
    """The class of a recipe from another process; one for all of them."""
    found = _classes.get(pickled)
    if found is None:
        base, recipe = pickle.loads(pickled)
        found = _classes[pickled] = base._of_recipe(recipe, pickled)
    return found


def _reduced(cls: Any) -> Any:
    if "_recipe" not in cls.__dict__ or cls._recipe is None:
        return cls.__qualname__  # it is where its name says
    if cls._pickled is None:
        cls._pickled = pickle.dumps((cls.__base__, cls._recipe))
        _classes[cls._pickled] = cls
    return _class_of, (cls._pickled,)


copyreg.pickle(cast("Any", _ClassByRecipe), _reduced)
