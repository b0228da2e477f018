"""Environments side by side under TRL's ``GRPOTrainer``, whose loop calls them one after another.

The loop is TRL's own, unchanged; what it is about to call is known a moment before. When the rows of a batch are known,
all resets are started; when the turns of the model are known, all tool calls are. The loop's own calls then take what
was started, and wait for the slowest only.

Where an episode is over, its rollout leaves the loop at once: no answer is appended that would only make the model
write on, and no turn is generated for it. Its row then ends as the model ended it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportPrivateUsage=false, reportUntypedBaseClass=false
# (torch, transformers and trl are typed in part only; the methods overridden are private)
from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.environment_class import FactoryEnvironment
from openenv_trl.training.environment_factory import EnvironmentFactory
from openenv_trl.training.generation import trainer_lockstep
from openenv_trl.training.rollout_func import BatchNames
from openenv_trl.training.start_checks import check_environment_training, template_error
from openenv_trl.training.tasks import derive_seed
from openenv_trl.training.trl_version import check_trl_version
from openenv_trl.training.turn_replay import TurnReplay, context_length

_Trainer: Any = Any if TYPE_CHECKING else object

logger = logging.getLogger(__name__)


class ConcurrentEnvironments(_Trainer):
    """Mix into a ``GRPOTrainer``, TRL's or one built on it: ``class Trainer(ConcurrentEnvironments, GRPOTrainer)``.

    It takes the trainer's own arguments. Environments that are not of this package are left as they are. A row
    without a ``seed`` gets one that its group shares.

    Raises:
        ConfigurationError: What cannot work, before anything is trained: see `check_environment_training`.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        check_trl_version()
        self._replay: TurnReplay | None = None
        self._batch_names = BatchNames()
        try:
            super().__init__(*arguments, **named)
        except ValueError as error:
            raise template_error(error) or error from None
        self._parse_takes_tools = "tools" in inspect.signature(_parse_response()).parameters
        for factory in self._factories():
            try:
                kwargs = getattr(self, "chat_template_kwargs", None)
                factory.sessions.read_with(self.processing_class, kwargs, chat_template=self.chat_template)
            except ConfigurationError as error:
                logger.warning("Control tokens in what the environment says are not broken: %s", error)
        check_environment_training(self)

    def train(self, *arguments: Any, **named: Any) -> Any:
        """As the trainer's own; however it ends, the sessions are closed. An evaluation opens new ones."""
        try:
            return super().train(*arguments, **named)
        finally:
            for factory in self._factories():
                factory.rest()

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if self._factories():
            self._start_resets(inputs)
            self._replay = TurnReplay(self.max_completion_length, context_length(self))
        try:
            return super()._generate_and_score_completions(inputs)
        finally:
            self._replay = None
            self._log_environments()

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> list[int]:
        replay = self._replay
        row = None if replay is None else replay.answering
        if replay is None or row is None:
            return super()._get_tool_suffix_ids(tool_messages)
        ids: list[int] = [] if self._leaves_when_over(row) else super()._get_tool_suffix_ids(tool_messages)
        replay.answered(ids)
        return ids

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, multimodal_fields: Any, *arguments: Any, **named: Any
    ) -> tuple[list[list[int]], Any]:
        generate = super()._generate_single_turn
        replay = self._replay
        rows = None if replay is None else replay.rows_of(prompt_ids)
        if replay is None or rows is None:
            if replay is not None:
                logger.warning("The trainer's loop was lost track of; its environments are called one by one.")
                self._replay = None
            return generate(prompt_ids, images, multimodal_fields, *arguments, **named)
        over = {at for at, row in enumerate(rows) if replay.turns >= 0 and self._leaves_when_over(row)}
        going = [at for at in range(len(rows)) if at not in over]
        ids: list[list[int]] = [[] for _ in rows]
        logprobs: Any = None
        if going:
            chosen = prompt_ids if not over else [prompt_ids[at] for at in going]
            new, new_logprobs = generate(chosen, images, multimodal_fields, *arguments, **named)
            for at, each in zip(going, new, strict=True):
                ids[at] = each
            if new_logprobs is not None:
                logprobs = [[] for _ in rows]
                for at, each in zip(going, new_logprobs, strict=True):
                    logprobs[at] = each
        else:
            logprobs = [[] for _ in rows]  # read only where earlier turns had some
        self._start_calls(replay, rows, prompt_ids, replay.completed(rows, ids))
        return ids, logprobs

    def _factories(self) -> list[EnvironmentFactory]:
        found = (getattr(self, "environment_factories", None) or {}).values()
        return list(dict.fromkeys(factory for factory in found if isinstance(factory, EnvironmentFactory)))

    def _leaves_when_over(self, row: int) -> bool:
        """Whether this rollout's episode is over, and it leaves the loop for that."""
        environment = self.environments[row]
        if not isinstance(environment, FactoryEnvironment) or not environment._progress.is_over:
            return False
        return not self._is_vlm and trainer_lockstep(self) is None

    def _start_resets(self, inputs: list[dict[str, Any]]) -> None:
        """Make the environments that TRL is about to take, in its order, and start their resets."""
        taken: dict[Any, int] = {}
        started: dict[type[FactoryEnvironment], list[tuple[FactoryEnvironment, dict[str, Any], int]]] = {}
        training = bool(self.model.training)
        group_size = int(self.num_generations if training else self.num_generations_eval)
        batch = self._batch_names.next(training, int(self.state.global_step))
        first = int(self.accelerator.process_index) * len(inputs)
        for index, row in enumerate(inputs):
            name = row.get("environment") if self._multi_environment else None
            if name not in self._environment_pool:
                return  # TRL says so, in its own words
            pool = self._environment_pool[name]
            at = taken.get(name, 0)
            taken[name] = at + 1
            if at == len(pool):
                pool.append(self.environment_factories[name]())
            environment = pool[at]
            if isinstance(environment, FactoryEnvironment):
                given = {k: v for k, v in row.items() if k != "environment"} if self._multi_environment else row
                seed = derive_seed("task", int(self.args.seed), batch, (first + index) // group_size)
                started.setdefault(type(environment), []).append((environment, given, seed))
        for made, resets in started.items():
            for (environment, row, _), begun in zip(resets, made._reset_soon(resets), strict=True):
                environment._expect_reset(row, begun)

    def _start_calls(
        self, replay: TurnReplay, rows: Sequence[int], prompts: list[list[int]], turns: list[list[int]]
    ) -> None:
        """Read the turns as TRL is about to, and start what they call."""
        parse = _parse_response()
        if not _has_parser(self._tokenizer):
            return
        calling: list[int] = []
        jobs: dict[Any, list[Any]] = {}
        for row, prompt, ids in zip(rows, prompts, turns, strict=True):
            if not ids:
                continue
            tools = {"tools": self._env_tools[self._batch_environments[row]]} if self._parse_takes_tools else {}
            calls = parse(self._tokenizer, ids, prefix=prompt, **tools).get("tool_calls")
            if not calls:
                continue
            calling.append(row)
            environment = self.environments[row]
            if replay.turns >= self.max_tool_calling_iterations or not isinstance(environment, FactoryEnvironment):
                continue
            if not replay.has_room(row):
                environment._have_no_room()
                continue
            known = environment._call_soon([each["function"] for each in calls if each.get("type") == "function"])
            if known is not None:
                jobs.setdefault(environment._sessions, []).append(known)
        replay.calls_in(calling)
        for sessions, each in jobs.items():
            sessions.submit(each)

    def _log_environments(self) -> None:
        several = len(self._factories()) > 1
        metrics = self._metrics["train" if self.model.training else "eval"]
        for factory in self._factories():
            prefix = f"environment/{factory.__name__}" if several else "environment"
            for name, value in factory.take_metrics().items():
                metrics[f"{prefix}/{name}"].append(value)


def _parse_response() -> Any:
    """The function that TRL's loop reads turns with: what it makes of them must be the same here."""
    from trl.trainer import grpo_trainer

    return grpo_trainer.parse_response


def _has_parser(tokenizer: Any) -> bool:
    return any(getattr(tokenizer, name, None) is not None for name in ("response_template", "response_schema"))
