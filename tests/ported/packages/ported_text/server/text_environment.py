"""The environment: say the word that is asked for, in as many turns as there are letters."""

from typing import Any

from openenv.core.env_server.base_transforms import CompositeTransform
from openenv.core.env_server.interfaces import Environment, Transform
from openenv.core.env_server.types import Observation, State
from openenv.core.rubrics import Rubric, WeightedSum

from ..models import TextAction, TextObservation

WORDS = {"train": ["tree", "house"], "test": ["boat"]}


class Exact(Rubric):
    """The word itself."""

    def __init__(self):
        super().__init__()
        self.word = ""

    def forward(self, action: Any, observation: Any) -> float:
        return 1.0 if action.message == self.word else 0.0


class Begins(Rubric):
    """Its first letter at least."""

    def __init__(self, exact: Exact):
        super().__init__()
        self._word_of = lambda: exact.word

    def forward(self, action: Any, observation: Any) -> float:
        return 1.0 if action.message[:1] == self._word_of()[:1] else 0.0


class Politely(Transform[TextObservation]):
    """Every prompt asks kindly."""

    def __call__(self, observation: TextObservation) -> TextObservation:
        observation.prompt = f"Please: {observation.prompt}"
        return observation


class TextEnvironment(Environment[TextAction, TextObservation, State]):
    """The game."""

    def __init__(self):
        self._exact = Exact()
        rubric = WeightedSum([self._exact, Begins(self._exact)], [0.75, 0.25])
        super().__init__(transform=CompositeTransform([Politely()]), rubric=rubric)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> TextObservation:
        raise NotImplementedError("asynchronous only")

    def step(self, action: TextAction, timeout_s: float | None = None, **kwargs: Any) -> TextObservation:
        raise NotImplementedError("asynchronous only")

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        index: int = 0,
    ) -> TextObservation:
        await self._reset_rubric_async()
        self._exact.word = self.get_task(split, index)
        self._state = State(episode_id=episode_id)
        return self._apply_transform(TextObservation(prompt=f"say a word of {len(self._exact.word)} letters"))

    async def step_async(self, action: TextAction, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        observation = TextObservation(prompt=f"you said {action.message!r}", turn=self._state.step_count)
        observation.reward = await self._apply_rubric_async(action, observation)
        observation.done = observation.reward == 1.0 or observation.turn == len(self._exact.word)
        return self._apply_transform(observation)

    @property
    def state(self) -> State:
        return self._state

    def list_splits(self) -> list:
        return list(WORDS)

    def list_tasks(self, split: str) -> list:
        return WORDS[split]

    async def num_tasks(self, split: str) -> int:
        return len(WORDS[split])

    def get_task(self, split: str, index: int) -> Any:
        return WORDS[split][index]
