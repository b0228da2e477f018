"""`GymnasiumEnvironment` in process: what a session on a server is made of."""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import jsonschema
import numpy
import pytest
from own_environments import EVERYTHING, Everything, Short, Slow
from PIL import Image
from pydantic import ValidationError

from openenv_trl.environment_checker import check_environment
from openenv_trl.errors import ActionValidationError, ConfigurationError, SessionStateError
from openenv_trl.gymnasium import GymnasiumEnvironment, space_of_json
from openenv_trl.wire.codec import encode
from openenv_trl.wire.observations import serialize_observation

NAMES = ["CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Blackjack-v1", "Pendulum-v1", "MountainCarContinuous-v0"]
NAMES += ["Acrobot-v1", "CliffWalking-v1"]


@pytest.mark.parametrize("name", NAMES)
def test_classics_keep_the_contract(name: str) -> None:
    found = check_environment(GymnasiumEnvironment.of(name), steps=8)
    assert not [finding for finding in found if finding.level != "note"], str(found)


def test_atari_keeps_the_contract() -> None:
    pong = GymnasiumEnvironment.of("ale_py:ALE/Pong-v5", obs_type="ram")
    found = check_environment(pong, seeds=(0,), steps=2)
    assert not [finding for finding in found if finding.level != "note"], str(found)


def test_an_environment_of_every_kind_of_space_keeps_the_contract() -> None:
    found = check_environment(GymnasiumEnvironment.of(Everything), seeds=(0, 1), steps=2)
    assert not found, str(found)


def test_an_instance_is_of_the_class_that_of_makes() -> None:
    environment = GymnasiumEnvironment("CartPole-v1")
    assert isinstance(environment, GymnasiumEnvironment)
    assert environment.reset(seed=3).observation.dtype == numpy.float32
    assert type(environment).action_cls(action=1).action == 1


def test_the_base_class_says_what_it_needs() -> None:
    with pytest.raises(ConfigurationError, match="needs an environment to serve"):
        GymnasiumEnvironment()


def test_the_schema_has_the_spaces_bounds_and_the_spaces_themselves() -> None:
    schema = GymnasiumEnvironment.of("Pendulum-v1").action_cls.model_json_schema()
    bounds = {"type": "number", "minimum": -2.0, "maximum": 2.0}
    assert schema["properties"]["action"].items() >= {"items": bounds, "minItems": 1, "maxItems": 1}.items()
    local = gymnasium.make("Pendulum-v1")
    told = schema["x-gymnasium"]
    assert space_of_json(told["action_space"]) == local.action_space
    assert space_of_json(told["observation_space"]) == local.observation_space
    assert told["env_id"] == "Pendulum-v1"


def test_the_observations_of_every_space_fit_their_schema() -> None:
    everything = GymnasiumEnvironment.of(Everything)
    seen = json.loads(encode(serialize_observation(everything().reset(seed=1))["observation"]))
    jsonschema.validate(seen, everything.observation_cls.model_json_schema())


def test_an_observation_that_travelled_as_json_is_read_to_the_last_bit() -> None:
    cart_pole = GymnasiumEnvironment.of("CartPole-v1")
    shown = cart_pole().reset(seed=1)
    back = cart_pole.observation_cls.model_validate_json(encode(shown.model_dump()))
    assert back.observation.tobytes() == shown.observation.tobytes()
    assert back.observation.dtype == numpy.float32


@pytest.mark.parametrize("wrong", [2, -1, 0.5, "left", None, [0], {"action": 0}])
def test_an_action_outside_of_its_space_is_refused_and_the_episode_stands(wrong: Any) -> None:
    cart_pole = GymnasiumEnvironment.of("CartPole-v1")
    environment, untouched = cart_pole(), cart_pole()
    environment.reset(seed=1)
    untouched.reset(seed=1)
    with pytest.raises(ValidationError, match="action"):
        cart_pole.action_cls(action=wrong)
    with pytest.raises(ActionValidationError, match="action"):
        environment.call_tool("act", {"action": wrong})
    assert environment.state.step_count == 0
    action = cart_pole.action_cls(action=1)
    assert environment.step(action).observation.tolist() == untouched.step(action).observation.tolist()


def test_a_tool_call_is_the_step_of_the_same_action() -> None:
    frozen = GymnasiumEnvironment.of("FrozenLake-v1", is_slippery=False)
    by_tool, by_action = frozen(), frozen()
    by_tool.reset(seed=0)
    by_action.reset(seed=0)
    tool = frozen.list_tools()[0]
    assert tool.name == "act"
    assert tool.input_schema["properties"]["action"] == {"type": "integer", "enum": [0, 1, 2, 3]}
    assert tool.description == "Take one action in FrozenLake-v1. 0: left; 1: down; 2: right; 3: up."
    for action in (1, 1, 2, 1):
        called: Any = by_tool.call_tool("act", {"action": action})
        with pytest.raises(StopIteration) as returned:
            called.send(None)  # a coroutine that never waits
        stepped = by_action.step(frozen.action_cls(action=action))
        assert returned.value.value.model_dump() == stepped.model_dump()
        assert by_tool.state.step_count == by_action.state.step_count


def test_named_actions_are_taken_by_name_and_by_number() -> None:
    named = GymnasiumEnvironment.of(
        "FrozenLake-v1", action_names=("left", "down", "right", "up"), tool_name="walk", is_slippery=False
    )
    tool = named.list_tools()[0]
    assert (tool.name, tool.description) == ("walk", "Take one action in FrozenLake-v1.")
    assert tool.input_schema["properties"]["action"] == {"type": "string", "enum": ["left", "down", "right", "up"]}
    assert named.action_cls.model_json_schema()["properties"]["action"]["enum"] == [0, 1, 2, 3]
    assert named.action_cls(action=" Right ").action == named.action_cls(action=2).action == 2
    with pytest.raises(ValidationError, match="'jump' is no action: give one of left, down, right, up"):
        named.action_cls(action="jump")


@pytest.mark.parametrize(
    ("name", "names", "says"),
    [
        ("CartPole-v1", ("left",), "has 1 names, and .* needs 2"),
        ("CartPole-v1", ("left", "Left"), "must differ"),
        ("Pendulum-v1", ("left",), "name the numbers of a Discrete"),
    ],
)
def test_names_that_do_not_fit_are_told(name: str, names: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        GymnasiumEnvironment.of(name, action_names=names)


def test_termination_and_truncation_are_told_apart_and_no_step_follows() -> None:
    short = GymnasiumEnvironment.of(Short)
    environment, local = short(), Short()
    ends: set[tuple[bool, bool]] = set()
    for seed in range(12):
        shown = environment.reset(seed=seed)
        local.reset(seed=seed)
        assert shown.metadata == {}
        while not shown.done:
            shown = environment.step(short.action_cls(action=[0.5, 0]))
            *_, terminated, truncated, _ = local.step(numpy.array([0.5, 0], numpy.float32))
        assert shown.metadata == {"terminated": terminated, "truncated": truncated}
        ends.add((terminated, truncated))
        with pytest.raises(SessionStateError, match=r"episode is over\. Call reset"):
            environment.step(short.action_cls(action=[0, 0]))
    assert ends == {(True, False), (False, True)}


def test_steps_before_a_reset_and_after_close_are_refused() -> None:
    cart_pole = GymnasiumEnvironment.of("CartPole-v1")
    environment = cart_pole()
    with pytest.raises(SessionStateError, match=r"No episode was begun yet\. Call reset"):
        environment.step(cart_pole.action_cls(action=0))
    environment.close()
    environment.close()
    with pytest.raises(SessionStateError, match="is closed"):
        environment.reset()


def test_a_reset_without_a_seed_goes_on_with_the_random_numbers() -> None:
    environment, local = GymnasiumEnvironment("CartPole-v1"), gymnasium.make("CartPole-v1")
    for seed in (4, None, None, 9, None):
        shown, _ = local.reset(seed=seed)
        assert environment.reset(seed=seed).observation.tolist() == shown.tolist()
    assert (environment.state.seed, environment.state.episodes_since_seed) == (9, 1)


def test_a_first_episode_without_a_seed_tells_the_seed_that_plays_it_again() -> None:
    first, again = GymnasiumEnvironment("CartPole-v1"), GymnasiumEnvironment("CartPole-v1")
    shown = first.reset()
    assert again.reset(seed=first.state.seed).observation.tolist() == shown.observation.tolist()
    assert GymnasiumEnvironment("CartPole-v1").reset().observation.tolist() != shown.observation.tolist()


def test_options_reach_the_environment_and_other_arguments_are_refused() -> None:
    environment = GymnasiumEnvironment("CartPole-v1")
    local, _ = gymnasium.make("CartPole-v1").reset(seed=1, options={"low": -0.2, "high": 0.2})
    assert environment.reset(seed=1, options={"low": -0.2, "high": 0.2}).observation.tolist() == local.tolist()
    for wrong in ({"low": 0.1}, {"seed": -1}, {"seed": "7"}, {"options": [1]}):
        with pytest.raises(ConfigurationError):
            environment.reset(**wrong)  # type: ignore[arg-type]
    environment.step(type(environment).action_cls(action=1))
    assert environment.state.step_count == 1, "a refused reset leaves the episode as it was"


def test_info_that_cannot_be_sent_is_told_in_words() -> None:
    everything = GymnasiumEnvironment.of(Everything)
    environment = everything()
    info = environment.reset(seed=1, options={"a": 1}).info
    assert info["options"] == {"a": 1}
    assert info["agent"].startswith("<")
    EVERYTHING.seed(1)
    shown = environment.step(everything.action_cls(action=EVERYTHING.sample()))
    assert shown.info["scores"].dtype == numpy.float32
    assert shown.info["kinds"] == ["wall"]
    assert shown.info["deep"]["1"][0].startswith("<object")
    encode(shown.model_dump())


def test_words_name_what_the_numbers_are() -> None:
    environment = GymnasiumEnvironment("CartPole-v1")
    assert environment.reset(seed=1).message.startswith("Observation: cart position 0.001182, cart velocity 0.04505,")
    after = environment.step(type(environment).action_cls(action=1)).message
    assert after.endswith(" Reward: 1.")


def test_a_rendered_text_is_what_the_model_reads() -> None:
    environment = GymnasiumEnvironment("FrozenLake-v1", render_mode="ansi", is_slippery=False)
    local = gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=False)
    shown = environment.reset(seed=0)
    local.reset(seed=0)
    assert shown.message == "\n[S]FFF\nFHFH\nFFFH\nHFFG\n"
    assert environment.state.frame == local.render()
    html = environment.render_web(shown.model_dump())
    assert html is not None
    assert html.startswith("<pre>")
    assert "<script" not in html


def test_colours_of_a_rendered_text_are_told_in_words() -> None:
    message = GymnasiumEnvironment("Taxi-v4", render_mode="ansi").reset(seed=1).message
    assert "[magenta R]" in message
    assert "[blue B]" in message
    assert "[yellow  ]" in message
    assert "\x1b" not in message


def test_an_own_description_is_what_the_model_reads() -> None:
    described = GymnasiumEnvironment.of("CartPole-v1", describe=lambda seen: f"The pole leans {seen[2]:+.2f}.")
    environment = described()
    environment.reset(seed=1)
    assert environment.step(described.action_cls(action=1)).message == "The pole leans -0.03."


def test_actions_of_a_discrete_are_buttons_while_an_episode_is_played() -> None:
    environment = GymnasiumEnvironment("Blackjack-v1")
    assert environment.web_actions({}) == []
    environment.reset(seed=1)
    assert environment.web_actions({}) == [("stick", {"action": 0}), ("hit", {"action": 1})]
    environment.step(type(environment).action_cls(action=0))
    assert environment.web_actions({}) == []
    pendulum = GymnasiumEnvironment("Pendulum-v1")
    pendulum.reset()
    assert pendulum.web_actions({}) == []


def test_a_picture_is_shown_as_png() -> None:
    environment = GymnasiumEnvironment("ale_py:ALE/Pong-v5")
    shown = environment.reset(seed=1)
    html = environment.render_web(shown.model_dump())
    found = re.search(r'src="data:image/png;base64,([^"]+)"', html or "")
    assert found is not None
    pixels = numpy.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))))
    assert (pixels == shown.observation).all()
    assert shown.message == "Observation: a picture of 210x160x3."


def test_the_class_and_its_values_travel_between_processes() -> None:
    short = GymnasiumEnvironment.of(Short, concurrent=False)
    assert pickle.loads(pickle.dumps(short)) is short
    shown = short().reset(seed=2)
    back = pickle.loads(pickle.dumps(shown))
    assert type(back) is short.observation_cls
    assert back.info == shown.info
    code = (
        "import pickle, sys; import own_environments\n"
        "cls, action = pickle.loads(sys.stdin.buffer.read())\n"
        "assert type(action) is cls.action_cls and not cls.SUPPORTS_CONCURRENT_SESSIONS\n"
        "env = cls(); env.reset(seed=2); sys.stdout.buffer.write(pickle.dumps(env.step(action)))"
    )
    action = short.action_cls(action=[0.5, 0.5])
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, input=pickle.dumps((short, action)), capture_output=True, check=True, cwd=Path(__file__).parent
    )
    there = pickle.loads(done.stdout)
    environment = short()
    environment.reset(seed=2)
    here = environment.step(action)
    assert type(there) is short.observation_cls
    assert there.observation["at"].tobytes() == here.observation["at"].tobytes()


def test_a_class_can_be_extended() -> None:
    class Own(GymnasiumEnvironment.of("CartPole-v1")):  # type: ignore[misc]
        pass

    assert Own().reset(seed=1).observation.shape == (4,)
    assert Own.list_tools()[0].name == "act"


def test_quick_environments_run_on_the_loop_and_others_in_threads() -> None:
    assert GymnasiumEnvironment.of("CartPole-v1").EXECUTION == "auto"
    assert GymnasiumEnvironment.of(Slow).EXECUTION == "thread"
    assert GymnasiumEnvironment.of("CartPole-v1", execution="process").EXECUTION == "process"


@pytest.mark.parametrize(
    ("env", "arguments", "says"),
    [
        ("NoSuchThing-v0", {}, "Gymnasium cannot make 'NoSuchThing-v0': .*doesn't exist"),
        ("FrozenLake-v1", {"slip": 1}, "unexpected keyword argument 'slip'"),
        ("no_such_module:Game-v0", {}, "Gymnasium cannot make 'Game-v0'.*no_such_module"),
        ("NoSuchSpace/Game-v0", {}, "name the module that registers it before a colon"),
        (dict, {}, r"dict made \{\}, which is no gymnasium.Env"),
        (Short(), {}, "is one environment, and every session needs one of its own"),
    ],
)
def test_what_cannot_be_made_is_told(env: Any, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        GymnasiumEnvironment.of(env, **arguments)


def test_without_gymnasium_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "try: import openenv_trl.gymnasium\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'openenv-trl[gymnasium]'" in done.stdout


def test_serving_other_environments_imports_no_gymnasium() -> None:
    code = "import openenv_trl, openenv_trl.server.loading, openenv_trl.client, sys; print('gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
