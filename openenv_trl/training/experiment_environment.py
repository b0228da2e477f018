"""One environment of several, as an experiment's file describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from typing_extensions import Self

from openenv_trl.errors import ConfigurationError
from openenv_trl.settings_errors import problems


class ExperimentEnvironment(BaseModel):
    """An entry of ``environments:``. What is None is as the experiment says for all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    environment: str | None = None
    """Folder of an environment package, or module:app. Its servers are started for the run."""
    environment_urls: tuple[str, ...] = ()
    """Addresses of servers that run already; ``environment`` is not started then."""
    provider: dict[str, Any] | None = None
    """What runs its servers in place of child processes: a provider's ``type`` and fields."""
    pool: dict[str, Any] | None = None
    """How many replicas of ``provider`` there are, and when."""
    weight: float = Field(default=1.0, gt=0)
    """Its share of the prompts, in any unit: alike by default."""
    replicas: int | None = Field(default=None, ge=1)
    """Server processes to start."""
    sessions_per_server: int | None = Field(default=None, ge=1)
    """Sessions to hold open on each server at most."""
    prompt: str | None = None
    """Without a dataset: the user message of every task. Each task gets a seed of its own."""
    num_tasks: int | None = Field(default=None, ge=1)
    """Without a dataset: the number of tasks, with seeds from 0."""
    dataset_name: str | None = None
    """Dataset with a 'prompt' column: a file, or a hub name."""
    dataset_split: str | None = None
    """Split of the dataset to train on."""
    evaluation_split: str | None = None
    """Split of the dataset to evaluate on."""
    max_turns: int | None = Field(default=None, ge=1)
    """Actions of an episode at most."""
    max_new_tokens_per_turn: int | None = Field(default=None, ge=1)
    """Tokens the model writes in one turn at most."""
    max_invalid_actions: int | None = Field(default=None, ge=0)
    """Unusable actions of an episode that are answered with an error."""
    reset_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds for the environment's reset."""
    step_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds for the environment's step."""
    episode_timeout_s: float | None = Field(default=None, gt=0)
    """Seconds for a whole episode."""
    curriculum: dict[str, Any] | None = None
    """Its levels: see ``curriculum`` of the experiment."""

    @field_validator("environment_urls", mode="before")
    @classmethod
    def _one_address_is_a_list_of_one(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _there_is_a_server(self) -> Self:
        if not self.environment and not self.environment_urls and not self.provider:
            raise ValueError(
                "give 'environment' (a package folder), 'environment_urls' (servers that run already) or 'provider' "
                "(what starts them)"
            )
        return self

    def changes(self) -> dict[str, Any]:
        """The experiment's settings that are different for this environment."""
        given = {name: value for name, value in self if value is not None and name != "weight"}
        given |= {"environment": self.environment, "environment_urls": list(self.environment_urls)}
        if self.prompt and not self.dataset_name:
            given["dataset_name"] = None  # its own prompt comes before the dataset of all
        return given


def read_environments(values: Mapping[str, Any]) -> dict[str, ExperimentEnvironment]:
    """The environments of an experiment, by name.

    Raises:
        ConfigurationError: A setting is unknown, missing, or cannot be used.
    """
    found: dict[str, ExperimentEnvironment] = {}
    for name, given in values.items():
        try:
            found[name] = ExperimentEnvironment.model_validate(given)
        except ValidationError as error:
            wrong = problems(error, ExperimentEnvironment)
            raise ConfigurationError(f"environments: '{name}' cannot be used: {wrong}.") from error
    return found
