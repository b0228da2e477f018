"""The settings of a run that TRL's own dataclasses do not have: environment, episodes, tasks, warm start.

They are read beside ``GRPOConfig`` and ``ModelConfig`` by TRL's parser: one YAML file holds all of them, and the
command line overrides it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from openenv_trl.errors import ConfigurationError
from openenv_trl.rewards import RewardFunction, environment_reward, reward_from_settings
from openenv_trl.rollout import RolloutLimits, RolloutStrategies
from openenv_trl.rollout.servers import ProvidedServers
from openenv_trl.settings_errors import problems
from openenv_trl.training.curriculum_settings import BandCurriculum, StagedCurriculum, read_curriculum
from openenv_trl.training.experiment_environment import ExperimentEnvironment, read_environments
from openenv_trl.training.mixture import mix_datasets
from openenv_trl.training.provider_settings import servers_of
from openenv_trl.training.tasks import SharedRandomness


def _setting(default: Any, help: str) -> Any:
    if isinstance(default, list | dict):
        return field(default_factory=cast("Any", default).copy, metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass
class EnvironmentArguments:
    """The environment and how episodes are played in it."""

    environment: str | None = _setting(
        None,
        "Folder of an environment package (with openenv.yaml), or module:app. Its servers are started here.",
    )
    environment_urls: list[str] = _setting(
        [], "Addresses of environment servers that run already; 'environment' is not started then."
    )
    provider: dict[str, Any] = _setting(
        {},
        "What runs the environment's servers in place of child processes: 'type' (docker, swarm, kubernetes, uv, "
        "daytona, space, ...) and the fields of that type, such as 'image'. See docs/providers.md.",
    )
    pool: dict[str, Any] = _setting(
        {},
        "With 'provider': how many replicas there are and when, such as 'min_replicas' and 'max_replicas'. See "
        "docs/pool.md.",
    )
    environments: dict[str, Any] = _setting(
        {},
        "Several environments in place of one, by name: each with 'environment', 'environment_urls' or 'provider', and "
        "with 'weight', 'prompt', 'dataset_name', 'max_turns' and others where they are its own.",
    )
    replicas: int = _setting(1, "Server processes to start, where 'environment' is given.")
    sessions_per_server: int = _setting(64, "Sessions to hold open on each server at most.")
    dataset_name: str | None = _setting(
        None, "Dataset with a 'prompt' column: a .json, .jsonl, .parquet or .csv file, or a hub name."
    )
    dataset_split: str = _setting("train", "Split of the dataset to train on.")
    evaluation_split: str | None = _setting(
        None, "Split of the dataset to evaluate on; the one trained on if None, whose tasks are then not new."
    )
    prompt: str | None = _setting(
        None, "Without a dataset: the user message of every task. Each task gets a seed of its own."
    )
    num_tasks: int = _setting(1000, "Without a dataset: the number of tasks, with seeds from 0.")
    shared_randomness: str = _setting(
        "episode",
        "What the generations of a prompt share: 'episode' (all), 'task' (the task_seed), or 'none'.",
    )
    max_turns: int = _setting(16, "Actions of an episode at most.")
    max_new_tokens_per_turn: int | None = _setting(
        None, "Tokens the model writes in one turn at most; the room left if None."
    )
    max_invalid_actions: int = _setting(
        2, "Unusable actions of an episode (broken JSON, unknown tool) that are answered with an error."
    )
    reset_timeout_s: float = _setting(60.0, "Seconds for the environment's reset.")
    step_timeout_s: float = _setting(60.0, "Seconds for the environment's step.")
    episode_timeout_s: float = _setting(600.0, "Seconds for a whole episode.")
    max_attempts: int = _setting(3, "Tries of an episode whose environment fails, each in a fresh session.")
    generate_timeout_s: float | None = _setting(
        None, "Seconds for one message of the model, waiting for its batch included; none if None."
    )
    batch_timeout_s: float | None = _setting(None, "Seconds for a whole batch of episodes; none if None.")
    strategies: dict[str, Any] = _setting(
        {}, "What is done when an episode fails or is slow: the fields of RolloutStrategies; see docs/failures.md."
    )
    max_failed_fraction: float = _setting(
        1.0, "Skip a step when more than this part of its batch failed; 1 trains on whatever is sound."
    )
    max_skipped_steps: int = _setting(3, "Steps that may be skipped in a row; one more ends the training.")
    curriculum: dict[str, Any] = _setting(
        {},
        "Levels to play at: 'kind' (stages or band), 'levels' (each with 'name' and 'reset', the easiest first), and "
        "'threshold', 'window' and others.",
    )
    unfinished_reward: float = _setting(
        0.0, "Added to the reward of an episode that the model did not bring to its end."
    )
    rewards: list[dict[str, Any]] = _setting(
        [],
        "What is trained on, as a list of reward functions with a 'type' each: see docs/rewards.md. Empty: the "
        "environment's own reward, with unfinished_reward.",
    )
    save_trajectories: bool = _setting(True, "Write every batch's trajectories to output_dir/trajectories as Parquet.")
    watch: bool = _setting(False, "Show each batch while it is played: a panel in a terminal, else some lines.")
    tiny_policy: bool = _setting(
        False,
        "Make a tiny model and tokenizer at model_name_or_path, if nothing is there, for runs on a CPU.",
    )
    tiny_policy_layers: int = _setting(2, "Layers of the tiny model.")
    tiny_policy_hidden_size: int = _setting(64, "Width of the tiny model.")
    warm_start_episodes: int = _setting(
        4096, "Random, well-formed episodes that the tiny model is first trained on, supervised."
    )
    warm_start_steps: int = _setting(600, "Supervised steps of the warm start.")
    warm_start_batch_size: int = _setting(64, "Episodes of one supervised step.")
    warm_start_learning_rate: float = _setting(4e-3, "Learning rate of the warm start, decayed to zero.")
    warm_start_reply_weight: float = _setting(4.0, "Weight of the model's own tokens in the warm start's loss.")
    evaluation_episodes: int = _setting(20_000, "Episodes of an evaluation.")
    evaluation_concurrency: int = _setting(1024, "Episodes of an evaluation that run at once.")
    reference_returns: dict[str, float] = _setting({}, "Known mean returns, by name, drawn in the learning curve.")

    def __post_init__(self) -> None:
        if isinstance(self.environment_urls, str):  # one address in the YAML file, without a list
            self.environment_urls = [self.environment_urls]
        if self.environments:
            self._check_environments()
        else:
            self._check_one_environment()
        if self.curriculum:
            read_curriculum(self.curriculum)
        self.rollout_strategies()
        self.reward_function()
        if self.replicas < 1 or self.sessions_per_server < 1 or self.num_tasks < 1:
            raise ConfigurationError("replicas, sessions_per_server and num_tasks must be at least 1.")
        choices = [choice.value for choice in SharedRandomness]
        if self.shared_randomness not in choices:
            raise ConfigurationError(f"shared_randomness={self.shared_randomness!r} must be one of {choices}.")

    def _check_one_environment(self) -> None:
        if not self.environment and not self.environment_urls and not self.provider:
            raise ConfigurationError(
                "Give 'environment' (a package folder, whose servers are started here), 'environment_urls' (servers "
                "that run already) or 'provider' (what starts them, such as {type: docker, image: ...})."
            )
        if self.pool and not self.provider:
            raise ConfigurationError("'pool' says how many replicas a 'provider' runs: give that too, or leave it out.")
        self.servers_to_start()
        if not self.dataset_name and not self.prompt:
            raise ConfigurationError("Give 'dataset_name', or 'prompt' to make tasks that differ in their seed.")

    def _check_environments(self) -> None:
        if self.environment or self.environment_urls or self.provider or self.pool:
            raise ConfigurationError(
                "Give one environment ('environment', 'environment_urls' or 'provider') or several ('environments'), "
                "not both."
            )
        if self.curriculum:
            raise ConfigurationError("Several environments have a 'curriculum' each: write it below its name.")
        if self.tiny_policy:
            raise ConfigurationError(
                "A tiny policy is made of one environment's words: train it there first, and name it as "
                "model_name_or_path, or leave out tiny_policy."
            )
        for name in self.entries():
            self.for_environment(name)

    def servers_to_start(self) -> ProvidedServers | None:
        """What ``provider`` starts, and how many; None where there is none, or the servers run already.

        An image that is not named is that of ``environment``; so is the project of a provider that runs a folder.

        Raises:
            ConfigurationError: ``provider`` or ``pool`` cannot be used.
        """
        if not self.provider or self.environment_urls:
            return None
        return servers_of(self.provider, self.pool, self.environment, sessions_per_server=self.sessions_per_server)

    def entries(self) -> dict[str, ExperimentEnvironment]:
        """The environments by name, where there are several.

        Raises:
            ConfigurationError: One cannot be used.
        """
        return read_environments(self.environments)

    def for_environment(self, name: str) -> EnvironmentArguments:
        """The settings of one environment of several.

        Raises:
            ConfigurationError: They cannot be used.
        """
        try:
            return dataclasses.replace(self, environments={}, **{"curriculum": {}, **self.entries()[name].changes()})
        except ConfigurationError as error:
            raise ConfigurationError(f"environments: '{name}' cannot be used: {error}") from error

    def curricula(self) -> StagedCurriculum | BandCurriculum | dict[str, StagedCurriculum | BandCurriculum] | None:
        """The curriculum, or those of several environments by name; None where there is none."""
        if not self.environments:
            return read_curriculum(self.curriculum) if self.curriculum else None
        given = {name: entry.curriculum for name, entry in self.entries().items() if entry.curriculum}
        return {name: read_curriculum(values) for name, values in given.items()}

    def limits(self, max_completion_tokens: int) -> RolloutLimits:
        """The limits of an episode.

        Args:
            max_completion_tokens: Tokens after the prompt, the environment's included.
        """
        return RolloutLimits(
            max_turns=self.max_turns,
            max_completion_tokens=max_completion_tokens,
            max_new_tokens_per_turn=self.max_new_tokens_per_turn,
            max_invalid_actions=self.max_invalid_actions,
            reset_timeout_s=self.reset_timeout_s,
            step_timeout_s=self.step_timeout_s,
            generate_timeout_s=self.generate_timeout_s,
            episode_timeout_s=self.episode_timeout_s,
            batch_timeout_s=self.batch_timeout_s,
            max_attempts=self.max_attempts,
        )

    def reward_function(self) -> RewardFunction:
        """What is trained on.

        Raises:
            ConfigurationError: ``rewards`` has an entry that cannot be used.
        """
        if not self.rewards:
            return environment_reward(unfinished=self.unfinished_reward)
        return reward_from_settings(self.rewards)

    def rollout_strategies(self) -> RolloutStrategies:
        """What is done when an episode fails or is slow.

        Raises:
            ConfigurationError: ``strategies`` does not say something that can be done.
        """
        try:
            return RolloutStrategies.model_validate(self.strategies)
        except ValidationError as error:
            raise ConfigurationError(
                f"strategies: {problems(error, RolloutStrategies)}. See docs/failures.md."
            ) from error

    def load_dataset(self, *, for_evaluation: bool = False) -> Any:
        """The dataset: the named one, or ``num_tasks`` rows of the prompt with seeds from 0.

        Of several environments it is their datasets, mixed by their weights: see `mix_datasets`.

        Args:
            for_evaluation: Load ``evaluation_split``, where there is one.

        Raises:
            ConfigurationError: The file is not there, or the dataset is empty.
        """
        from datasets import Dataset, load_dataset

        if self.environments:
            entries = self.entries()
            each = {name: self.for_environment(name).load_dataset(for_evaluation=for_evaluation) for name in entries}
            return mix_datasets(each, {name: entry.weight for name, entry in entries.items()})
        if self.dataset_name is None:
            return Dataset.from_dict(
                {
                    "prompt": [[{"role": "user", "content": self.prompt}]] * self.num_tasks,
                    "seed": list(range(self.num_tasks)),
                }
            )
        kind = {".json": "json", ".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}.get(
            Path(self.dataset_name).suffix
        )
        if kind is None:
            split = self.evaluation_split if for_evaluation and self.evaluation_split else self.dataset_split
            return load_dataset(self.dataset_name, split=split)
        if not Path(self.dataset_name).is_file():
            raise ConfigurationError(f"dataset_name: there is no file '{self.dataset_name}'.")
        if Path(self.dataset_name).stat().st_size == 0:
            raise ConfigurationError(
                f"The dataset '{self.dataset_name}' is empty: give at least one row with a prompt."
            )
        return load_dataset(kind, data_files=self.dataset_name, split="train")
