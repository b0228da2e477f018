"""Environments side by side under TRL's ``GRPOTrainer``, whose loop calls them one after another.

The loop is TRL's own, unchanged. When the rows of a batch are known, all resets are started; when the loop calls the
first tool of a turn, it has read the turns of all rollouts, and all their tool calls are started. The loop's own calls
then take what was started, and wait for the slowest only.

Where an episode is over, its rollout leaves the loop at once: no answer is appended that would only make the model
write on, and no turn is generated for it. Its row then ends as the model ended it.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportPrivateUsage=false, reportUntypedBaseClass=false
# (torch, transformers and trl are typed in part only; the methods overridden are private)
from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from openenv_trl.errors import ConfigurationError
from openenv_trl.rollout.json_text import json_text
from openenv_trl.training.batch_names import BatchNames
from openenv_trl.training.environment_class import FactoryEnvironment
from openenv_trl.training.environment_factory import EnvironmentFactory
from openenv_trl.training.generation import trainer_lockstep
from openenv_trl.training.start_checks import check_environment_training, template_error
from openenv_trl.training.tasks import derive_seed
from openenv_trl.training.trl_version import check_trl_version

_Trainer: Any = Any if TYPE_CHECKING else object

logger = logging.getLogger(__name__)

_CACHED_SUFFIXES = 8192


class ConcurrentEnvironments(_Trainer):
    """Mix into a ``GRPOTrainer``, TRL's or one built on it: ``class Trainer(ConcurrentEnvironments, GRPOTrainer)``.

    It takes the trainer's own arguments. Environments that are not of this package are left as they are. A row
    without a ``seed`` gets one that its group shares.

    Raises:
        ConfigurationError: What cannot work, before anything is trained: see `check_environment_training`.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        check_trl_version()
        self._loop: _Loop | None = None
        self._suffixes: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._batch_names = BatchNames()
        try:
            super().__init__(*arguments, **named)
        except ValueError as error:
            raise template_error(error) or error from None
        self._context_length = context_length(self)
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
        for factory in self._factories():
            factory.before_call(self._start_calls)
        self._start_resets(inputs)
        try:
            return super()._generate_and_score_completions(inputs)
        finally:
            self._loop = None
            for factory in self._factories():
                factory.before_call(None)
            self._log_environments()

    def _tokenize_prompts(self, prompts: list[Any]) -> Any:
        """As TRL's, which renders each prompt by itself: those of a group are one, where they are alike."""
        tokenize = super()._tokenize_prompts
        if not self._factories() or self._is_vlm:
            return tokenize(prompts)
        names = list(self._batch_environments)
        keys = [json_text([name, prompt]) for name, prompt in zip(names, prompts, strict=True)]
        first: dict[str, int] = {}
        for at, key in enumerate(keys):
            first.setdefault(key, at)
        order = sorted(first.values())
        self._batch_environments = [names[at] for at in order]
        try:
            ids, images, fields = tokenize([prompts[at] for at in order])
        finally:
            self._batch_environments = names
        if images is not None or fields:
            return tokenize(prompts)
        rendered = dict(zip(order, ids, strict=True))
        return [list(rendered[first[key]]) for key in keys], None, {}

    def _tool_call_loop(
        self,
        prompts: list[Any],
        prompt_ids: list[list[int]],
        completion_ids: list[list[int]],
        completions: list[list[dict[str, Any]]],
        *arguments: Any,
        **named: Any,
    ) -> Any:
        if self._factories():
            self._loop = _Loop(prompt_ids, completion_ids, completions, [0] * len(completions))
        return super()._tool_call_loop(prompts, prompt_ids, completion_ids, completions, *arguments, **named)

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> list[int]:
        render = super()._get_tool_suffix_ids
        if self._loop is None:
            return render(tool_messages)
        if self._leaves_when_over(self._loop.row_of(tool_messages[-1])):
            return LeavingIds()
        contents = [message["content"] for message in tool_messages]
        if not all(isinstance(content, str) for content in contents):
            return render(tool_messages)
        key = tuple((message["name"], message["content"]) for message in tool_messages)
        if key not in self._suffixes:
            if len(self._suffixes) >= _CACHED_SUFFIXES:
                self._suffixes.clear()
            self._suffixes[key] = render(tool_messages)
        return list(self._suffixes[key])

    def _generate_single_turn(
        self, prompt_ids: list[list[int]], images: Any, multimodal_fields: Any, *arguments: Any, **named: Any
    ) -> tuple[list[list[int]], Any]:
        going = [at for at, ids in enumerate(prompt_ids) if not isinstance(ids, LeavingIds)]
        generate = super()._generate_single_turn
        if len(going) == len(prompt_ids):
            return generate(prompt_ids, images, multimodal_fields, *arguments, **named)
        ids: list[list[int]] = [[] for _ in prompt_ids]
        logprobs: list[list[float]] = [[] for _ in prompt_ids]  # read only where earlier turns had some
        if going:
            chosen = [prompt_ids[at] for at in going]
            new, new_logprobs = generate(chosen, images, multimodal_fields, *arguments, **named)
            for index, at in enumerate(going):
                ids[at] = new[index]
                logprobs[at] = [] if new_logprobs is None else new_logprobs[index]
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

    def _start_calls(self) -> None:
        """TRL calls the first tool of a turn, and has read the turns of all rollouts by then: start all their calls."""
        loop = self._loop
        if loop is None:
            return
        jobs: dict[Any, list[Any]] = {}
        for row, functions in loop.new_calls():
            environment = self.environments[row]
            if not isinstance(environment, FactoryEnvironment):
                continue
            if not self._has_room(loop, row):
                environment._have_no_room()
                continue
            job = environment._call_soon(functions)
            if job is not None:
                jobs.setdefault(environment._sessions, []).append(job)
        for sessions, each in jobs.items():
            sessions.submit(each)

    def _has_room(self, loop: _Loop, row: int) -> bool:
        """Whether one token more fits. Where none does, TRL drops whatever the tools answer."""
        written = len(loop.completion_ids[row])
        return written < self.max_completion_length and len(loop.prompt_ids[row]) + written + 1 < self._context_length

    def _log_environments(self) -> None:
        several = len(self._factories()) > 1
        metrics = self._metrics["train" if self.model.training else "eval"]
        for factory in self._factories():
            prefix = f"environment/{factory.__name__}" if several else "environment"
            for name, value in factory.take_metrics().items():
                metrics[f"{prefix}/{name}"].append(value)


class LeavingIds(list[int]):
    """The context of a rollout that leaves the loop. What is put before it stays one.

    TRL adds the ids of the answers to those of the context, and hands the sum over to be continued.
    """

    def __radd__(self, context: list[int]) -> LeavingIds:
        return LeavingIds([*context, *self])


@dataclass
class _Loop:
    """The lists that TRL's tool loop works on, and changes as it goes; one entry a rollout.

    Attributes:
        prompt_ids: The prompts.
        completion_ids: What came after them: the model's ids and the environment's.
        completions: The same as messages.
        seen: How many of a rollout's messages were looked at for calls.
    """

    prompt_ids: list[list[int]]
    completion_ids: list[list[int]]
    completions: list[list[dict[str, Any]]]
    seen: list[int]
    _at: int = 0

    def new_calls(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """The rollouts whose last message holds tool calls that were not looked at, with these."""
        for row, messages in enumerate(self.completions):
            if len(messages) <= self.seen[row]:
                continue  # also where TRL took back what did not fit, and the calls before it are the last again
            self.seen[row] = len(messages)
            calls = messages[-1].get("tool_calls") or []
            functions = [call["function"] for call in calls if call.get("type") == "function"]
            if functions:
                yield row, functions

    def row_of(self, message: dict[str, Any]) -> int:
        """Whose last message this is. TRL asks in the order of the rows."""
        count = len(self.completions)
        for step in range(count):
            row = (self._at + step) % count
            if self.completions[row][-1] is message:
                self._at = row + 1
                return row
        raise ConfigurationError(
            "TRL's tool loop renders a message that no rollout ends with. Is it of another version?"
        )


def context_length(trainer: Any) -> int:
    """Tokens that a trainer's generation takes, prompt and completion together, as its loop asks for it."""
    if trainer.use_vllm and trainer.vllm_mode == "colocate":
        return int(trainer.vllm_generation.llm.llm_engine.model_config.max_model_len)
    config = trainer.model.config
    config = config.text_config if getattr(trainer, "_is_vlm", False) else config
    return int(config.max_position_embeddings)
