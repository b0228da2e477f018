"""One game from its start to its end, frame by frame: whose chance is all in its seeds.

The console itself has none (see `Console`): sticky actions, drawn frameskips and the no-ops at the start come from
generators of the episode. So equal seeds and actions give equal frames, whatever was played on the console before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from ale_py import Action

from atari_env.server.console import Console, Pixels
from atari_env.server.settings import AtariSettings


@dataclass(frozen=True)
class Step:
    """What a step brought."""

    reward: float
    """What the game scored, clipped where that is set."""
    score: int
    """The same, never clipped."""
    life_lost: bool


class Episode:
    """A game that is being played.

    Args:
        console: The console that it is played on, by nobody else.
        settings: How it is played.
        seed: Decides sticky actions, drawn frameskips and, without ``task_seed``, the no-ops at the start.
        task_seed: Decides the no-ops at the start, where given.

    Raises:
        ConfigurationError: The game has no such mode or difficulty.

    Attributes:
        frames: Frames so far.
        over: Whether it has ended.
        truncated: Whether the limit of frames ended it.
        score: What the game scored so far.
        before: The frame before the last one, where two are pooled.
    """

    def __init__(self, console: Console, settings: AtariSettings, seed: int, task_seed: int | None = None) -> None:
        self.console = console
        self.settings = settings
        self.actions = console.all_actions if settings.full_action_space else console.minimal_actions
        self.frames = 0
        self.over = False
        self.truncated = False
        self.score = 0
        self.before: Pixels | None = None
        self._chance = random.Random(seed)
        self._held = Action.NOOP
        console.switch_on(settings.mode, settings.difficulty)
        start = self._chance if task_seed is None else random.Random(task_seed)
        self._do_nothing(1 + int(start.random() * settings.noop_max) if settings.noop_max else 0)
        self._lives = console.lives()
        self._keep_before()

    def step(self, action: int) -> Step:
        """Hold the action of that number for the step's frames, or until the game ends."""
        settings, console = self.settings, self.console
        wanted = self.actions[action]
        scored = 0
        for _ in range(self._frameskip()):
            sticky = settings.repeat_action_probability
            if not sticky or self._chance.random() >= sticky:
                self._held = wanted
            self._keep_before()
            scored += console.frame(self._held)
            self.frames += 1
            limit = settings.max_num_frames_per_episode
            ended = console.is_over()
            self.truncated = not ended and 0 < limit <= self.frames
            if ended or self.truncated:
                self.over = True
                break
        self.score += scored
        lives = console.lives()
        life_lost, self._lives = lives < self._lives, lives
        if life_lost and settings.terminal_on_life_loss and not self.over:
            self.over = True
        reward = float((scored > 0) - (scored < 0)) if settings.reward_clipping else float(scored)
        return Step(reward, scored, life_lost)

    def _frameskip(self) -> int:
        frameskip = self.settings.frameskip
        if isinstance(frameskip, int):
            return frameskip
        low, high = frameskip
        return low + int(self._chance.random() * (high - low))

    def _do_nothing(self, frames: int) -> None:
        for _ in range(frames):
            self.console.frame(Action.NOOP)
            self.frames += 1
            if self.console.is_over():
                self.console.switch_on(self.settings.mode, self.settings.difficulty)

    def _keep_before(self) -> None:
        # Before every frame, since the game may end with any. With a frameskip of 1 it is the last step's.
        if self.settings.max_pooling:
            self.before = self.console.rgb() if self.settings.obs_type != "grayscale" else self.console.grayscale()
