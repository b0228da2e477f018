"""What the README shows is what happens: its matches, its tools, its variables and its figures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from openspiel_env.exact import exact_returns
from openspiel_env.scores import best_agent, by_policy, score, table
from openspiel_env.server.moves import FIXED_MOVES, MOVE_TOOLS
from openspiel_env.server.opening import RESET_ARGUMENTS
from openspiel_env.server.openspiel_environment import environment_class
from openspiel_env.server.opponents import COMPUTING, SESSION, SIMPLE
from openspiel_env.server.settings import ENVIRONMENT_VARIABLES, settings_from_variables

from openenv_trl.errors import ActionValidationError, ConfigurationError
from openenv_trl.experiment import load_experiment
from openenv_trl.providers import ProcessProvider

PACKAGE = Path(__file__).resolve().parents[1]
README = (PACKAGE / "README.md").read_text(encoding="utf-8")


def test_the_match_of_catch_goes_as_shown() -> None:
    shown = README.split("```")[1].strip("\n").split("\n")
    environment = environment_class("catch")()
    seen = environment.reset(seed=0)
    assert shown[0].strip() == seen.message
    for line in [*shown[1:-2], *["stay()"] * 4, shown[-1]]:
        word, _, rest = line.partition("()")
        seen = environment.play_text(word)
        text, _, reward = rest.partition("   reward ")
        if text:
            assert text.strip() == seen.message
            assert reward == f"{seen.reward:g}{', done' if seen.done else ''}"
    assert seen.done


def test_the_match_of_tic_tac_toe_goes_as_shown() -> None:
    environment = environment_class("tic_tac_toe")()
    environment.reset(seed=7)
    message = environment.play_text("centre").message
    assert message == "\n".join(line[28:] for line in README.split("```")[3].strip("\n").split("\n")[:5])
    with pytest.raises(
        ActionValidationError, match=r"The move 'top left' is not legal now\. Your moves: top, top right"
    ):
        environment.play_text("top left")


def test_the_tools_are_those_in_the_table() -> None:
    rows = re.findall(
        r"^\| (`[^|]+) \| ([^|]+) \|$", README.partition("## Tools")[2].partition("\n## ")[0], re.MULTILINE
    )
    told = {name: re.findall(r"`(\w+)\(", tools) for names, tools in rows for name in re.findall(r"`(\w+)`", names)}
    squares = told.pop("tic_tac_toe")
    assert squares == ["play"]
    assert all(f'"{square}"' in README for square in FIXED_MOVES["tic_tac_toe"])
    assert {name: set(tools) for name, tools in told.items()} == {
        name: set(tools) for name, tools in MOVE_TOOLS.items()
    }


def test_the_variables_are_those_in_the_table() -> None:
    told = set(re.findall(r"^\| `([A-Z_]+)`", README, re.MULTILINE))
    assert told == {*ENVIRONMENT_VARIABLES, "OPENSPIEL_GAME", "MAX_CONCURRENT_ENVS"}


def code_with(text: str) -> str:
    """The one block of Python in the README that has this text."""
    (found,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if text in block]
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ProcessProvider(str(PACKAGE), env_vars={"OPENSPIEL_GAME": "tic_tac_toe"}) as provider:
        yield provider.replicas[0].base_url


def ran(code: str, url: str) -> list[str]:
    code = code.replace("http://localhost:8000", url)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_the_code_that_plays_a_match_runs(server: str) -> None:
    code = code_with("print(result.observation.message, result.reward)")
    assert ran(code, server)[-1].startswith("The game is over. ")


def test_the_code_of_two_sessions_prints_what_is_shown(server: str) -> None:
    shown = README.partition("anyio.run(main)\n```")[2].split("```")[1].strip().splitlines()
    assert len(shown) == 2
    assert sorted(ran(code_with("anyio.run(main)"), server)) == shown


def test_the_code_that_plays_by_tools_prints_what_is_shown(server: str) -> None:
    shown = README.partition("print(result.reward, result.done)\n```")[2].split("```")[1].strip().splitlines()
    assert ran(code_with('env.call_tool("play"'), server) == shown


def test_the_provider_of_an_experiment_sets_the_game_as_shown() -> None:
    (shown,) = (yaml.safe_load(each) for each in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL))
    experiment = load_experiment(PACKAGE.parents[1] / "configs" / "tic_tac_toe_cpu.yaml").environment
    assert experiment.environment == shown["environment"]
    assert experiment.provider is not None
    assert shown["provider"].items() <= {**experiment.provider}.items()
    provided = experiment.servers_to_start()
    assert provided is not None
    exact = exact_returns("tic_tac_toe")
    assert experiment.reference_returns == {
        "random": pytest.approx(exact.random, abs=1e-4),
        "optimal": pytest.approx(exact.best, abs=1e-4),
    }


def test_the_agents_own_policy_is_not_used_as_said() -> None:
    seen = []
    for policy in ("first", "last,first", "first,first"):
        environment = environment_class("tic_tac_toe")()
        environment.reset(seed=1, opponent_policy=policy)
        seen.append(environment.play_text("centre").message)
    assert len(set(seen)) == 1
    with pytest.raises(ConfigurationError, match=r"names 3 policies.*the agent's own too, which is not used"):
        environment_class("tic_tac_toe")().reset(opponent_policy="first,first,first")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--matches", "0", "catch"], "'0' is no number of matches: give 1 or more"),
        (["--matches", "-3"], "'-3' is no number of matches"),
        (["--matches", "many"], "'many' is no number of matches"),
        (["chess"], "there are no agents for 'chess': choose of catch, tic_tac_toe, kuhn_poker"),
    ],
)
def test_scores_that_cannot_be_had_are_refused(arguments: list[str], says: str) -> None:
    run = subprocess.run([sys.executable, "-m", "openspiel_env.scores", *arguments], capture_output=True, text=True)
    assert run.returncode == 2
    assert says in " ".join(run.stderr.split())
    assert "[]" not in run.stderr
    assert "Traceback" not in run.stderr


def test_a_row_of_the_scores_is_there_before_the_next_game_is_played() -> None:
    rows = table(["catch", "chess"], 1)
    assert [next(rows) for _ in range(3)][-1].startswith("| `catch` | ")
    with pytest.raises(KeyError):
        next(rows)


def test_the_policy_of_ones_own_can_be_named_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "policies.py").write_text(code_with("def expert("))
    monkeypatch.syspath_prepend(str(tmp_path))
    (value,) = re.findall(r"policies of your own: `(.*?)`", README)
    settings = settings_from_variables({"OPENSPIEL_POLICIES": value, "OPENSPIEL_OPPONENT_POLICY": "expert"})
    environment_class("tic_tac_toe").prepare(settings)
    assert environment_class("tic_tac_toe")(settings).reset(seed=1, agent_player=1).opponent_last_action is not None


def test_the_policies_and_arguments_are_those_in_the_tables() -> None:
    opponents = README.partition("## Opponents")[2].partition("\n## ")[0]
    told = {
        name.partition(":")[0]
        for names in re.findall(r"^\| (`[^|]+)\|", opponents, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", names)
    }
    assert told - {"opponent_policy"} == {*SIMPLE, *COMPUTING, SESSION}
    arguments = README.partition("## Arguments of reset")[2].partition("\n| variable")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", arguments, re.MULTILINE)) == set(RESET_ARGUMENTS)


@pytest.mark.parametrize("name", ["catch", "tic_tac_toe", "kuhn_poker", "cliff_walking", "blackjack"])
def test_the_scores_are_those_in_the_table(name: str) -> None:
    assert [*table([name], 1000)][-1] in README.splitlines()


@pytest.mark.parametrize("name", ["2048", "leduc_poker", "connect_four"])
def test_the_scores_that_take_long_are_near_those_in_the_table(name: str) -> None:
    (row,) = [line for line in README.splitlines() if line.startswith(f"| `{name}` | ") and "±" in line]
    told = [float(cell.split(" ± ")[0]) for cell in row.split(" | ")[1:4]]
    title, agent = best_agent(name)
    assert row.endswith(f"| {title} |")
    for value, each in zip(told, [by_policy(SIMPLE["random"]), by_policy(SIMPLE["first"]), agent], strict=True):
        found = score(name, each, 30)
        assert abs(found.mean - value) <= 2.5 * found.half_width + 0.01  # five standard errors


def test_the_figures_are_those_in_the_tables_and_in_the_experiment() -> None:
    figures = {
        "`catch` (10 rows, 5 columns)": exact_returns("catch"),
        "`cliff_walking` (4 rows, 8 columns, 100 moves)": exact_returns("cliff_walking"),
        "`tic_tac_toe`, first, against random play": exact_returns("tic_tac_toe"),
        "`tic_tac_toe`, second, against random play": exact_returns("tic_tac_toe", agent_player=1),
    }
    for title, exact in figures.items():
        row = re.search(rf"^\| {re.escape(title)} \| (\S+) \| (\S+) \|$", README, re.MULTILINE)
        assert row is not None, title
        for told, value in zip(row.groups(), (exact.random, exact.best), strict=True):
            digits = len(told.partition(".")[2])
            assert float(told) == pytest.approx(round(value, digits))
    experiment = yaml.safe_load((PACKAGE.parents[1] / "configs" / "catch_cpu.yaml").read_text(encoding="utf-8"))
    catch = exact_returns("catch")
    assert experiment["reference_returns"] == {
        "random": pytest.approx(catch.random),
        "optimal": pytest.approx(catch.best),
    }
