"""Servers that a provider starts for a run: with its first batch, as many as are needed, gone with its end."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from openenv_trl.errors import ConfigurationError, ConnectionFailedError, OpenEnvError, ProviderError, ServerStartError
from openenv_trl.evaluation import evaluate
from openenv_trl.providers import PoolSettings
from openenv_trl.rollout import DialogueTemplate, RolloutLimits, ScriptedPolicy, Task
from openenv_trl.rollout.servers import ProvidedServers, provided_servers
from openenv_trl.training import EnvironmentArguments, EnvironmentRollout, EnvironmentSpec
from openenv_trl.training.environment_factory import make_environment_factory
from openenv_trl.training.servers import open_environments, open_servers

from ..providers.engines import require_engine
from .scripted import LIMITS, MakeTrainer, Replies, call, rows

BLACKJACK = str(Path(__file__).resolve().parents[2] / "environments" / "blackjack_env")
PROCESS = {"type": "process", "environment": BLACKJACK, "env_vars": {"MAX_CONCURRENT_ENVS": 8}}


def arguments(**changes: Any) -> EnvironmentArguments:
    return EnvironmentArguments(**{"prompt": "Play.", **changes})


def provided(pool: dict[str, Any] | None = None, **changes: Any) -> ProvidedServers:
    return provided_servers({**PROCESS, **changes}, pool, sessions_per_server=8)


@pytest.mark.parametrize("given", [None, "docker", ["docker"], 4])
def test_a_provider_or_pool_of_a_wrong_kind_is_told_how_to_write_it(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Write \{type: docker, image: echo-env:latest\}"):
        provided_servers(given, None, sessions_per_server=8)
    if given is not None:
        with pytest.raises(ConfigurationError, match=r"Write \{max_replicas: 4\}"):
            provided(given)


def test_a_pools_number_that_is_none_is_told_by_its_field() -> None:
    with pytest.raises(ConfigurationError, match="min_replicas"):
        provided({"min_replicas": "few"})


@pytest.mark.parametrize("field", ["min_replicas", "max_replicas", "idle_s", "sessions_per_replica"])
@pytest.mark.parametrize("value", [None, [1], {}, "lots", float("inf"), float("nan"), True, 10**400, -1], ids=repr)
def test_a_pools_value_that_is_no_number_is_told_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"The pool cannot be used: (.*; )?{field}"):
        provided({field: value})


def test_more_replicas_than_the_pool_allows_are_told_with_what_to_change() -> None:
    message = r"provider\.replicas=6 is more than pool\.max_replicas=2.*raise pool\.max_replicas to 6, or leave out"
    for pool in ({"max_replicas": 2}, PoolSettings(max_replicas=2)):
        with pytest.raises(ConfigurationError, match=message):
            provided_servers({**PROCESS, "replicas": 6}, pool, sessions_per_server=8)
    assert provided({"max_replicas": 6}, replicas=6).pool.max_replicas == 6
    addresses = {"type": "remote", "urls": ["http://localhost:1", "http://localhost:2"]}
    assert provided_servers(addresses, {"max_replicas": 1}, sessions_per_server=8).pool.max_replicas == 1


def test_a_pool_that_lets_a_provider_start_nothing_is_told() -> None:
    for pool in ({"max_replicas": 0}, PoolSettings(min_replicas=0, max_replicas=0)):
        with pytest.raises(ConfigurationError, match=r"pool\.max_replicas is 0.*Set pool\.max_replicas to 1 or more"):
            provided_servers(PROCESS, pool, sessions_per_server=8)


def servers_of_this_process() -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one that ends as it is looked at, such as an earlier test's
            if "openenv_trl.server" in " ".join(child.cmdline()):
                found.add(child)
    return found


def test_a_run_starts_its_servers_with_its_first_batch_and_ends_them(make_trainer: MakeTrainer) -> None:
    before = servers_of_this_process()
    servers = provided({"min_replicas": 0, "max_replicas": 2, "idle_s": 600})
    with EnvironmentRollout(servers, limits=LIMITS.model_copy(update={"connect_timeout_s": 60.0})) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()), max_steps=2)
        Replies(trainer, lambda _, __: call("stand"))
        assert servers_of_this_process() <= before
        trainer.train()
        assert servers_of_this_process() - before
        assert rollout.metrics["end/done"] == 1.0
        assert rollout.metrics["pool/starts"] >= 1
        assert rollout.metrics["pool/waiting"] == rollout.metrics["pool/deaths"] == 0
    assert servers_of_this_process() <= before
    assert trainer.state.global_step == 2


def test_an_environment_factory_starts_its_servers_too() -> None:
    before = servers_of_this_process()
    factory = make_environment_factory(provided())
    try:
        assert servers_of_this_process() - before
        environment = factory()
        assert "dealer" in environment.reset(seed=1)
        environment.stand()
    finally:
        factory.close()
    assert servers_of_this_process() <= before


def test_an_evaluation_starts_them_and_ends_them(make_trainer: MakeTrainer, tiny_policy_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_policy_path)
    before = servers_of_this_process()
    tasks = [Task([{"role": "user", "content": "Play."}], {"seed": seed}) for seed in range(20)]
    report = evaluate(
        "stands",
        ScriptedPolicy(DialogueTemplate(tokenizer), lambda _: tokenizer.encode(call("stand"))),
        tokenizer,
        provided({"max_replicas": 2}),
        tasks,
        limits=RolloutLimits(max_turns=2, connect_timeout_s=60.0),
    )
    assert report.returns.count == 20
    assert servers_of_this_process() <= before


def test_servers_that_cannot_be_started_end_the_run_with_what_they_wrote(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no licence for these cards')\n")
    spec = {"type": "process", "environment": ["python", str(broken)], "ready_timeout_s": 120}
    pool = {"start_failures": 1, "start_back_off_s": 0.01}
    with EnvironmentRollout(provided_servers(spec, pool, sessions_per_server=8), limits=LIMITS) as rollout:
        trainer = make_trainer(rollout, rollout.prepare_dataset(rows()))
        with pytest.raises(ServerStartError, match="no licence for these cards"):
            trainer.train()


def test_a_provider_in_the_settings_comes_before_the_folder_and_takes_its_image_from_it() -> None:
    given = arguments(environment=BLACKJACK, provider={"type": "docker", "memory": "512m"}, sessions_per_server=7)
    servers = given.servers_to_start()
    assert servers is not None
    assert (servers.spec.type, getattr(servers.spec, "image", None)) == ("docker", "blackjack-env:latest")
    assert (servers.pool.min_replicas, servers.pool.max_replicas, servers.pool.sessions_per_replica) == (1, 1, 7)
    own = arguments(environment=BLACKJACK, provider={"type": "process", "replicas": 3}).servers_to_start()
    assert own is not None
    assert getattr(own.spec, "environment", None) == BLACKJACK
    assert (own.pool.min_replicas, own.pool.max_replicas) == (3, 3)


def test_servers_that_run_already_come_before_a_provider(narrow_url: str) -> None:
    given = arguments(provider=PROCESS, environment_urls=[narrow_url])
    with open_servers(given) as servers:
        assert servers == [narrow_url]


NOBODY = "http://localhost:1"


@pytest.mark.parametrize(
    "given",
    [
        {"environment_urls": NOBODY},
        {"environment_urls": [NOBODY, NOBODY]},
        {"provider": {"type": "remote", "urls": [NOBODY]}},
        {"environments": {"cards": {"environment": BLACKJACK}, "others": {"environment_urls": NOBODY}}},
    ],
)
def test_named_servers_of_which_none_answers_are_told_before_anything_is_started(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openenv_trl.training.servers.ProcessProvider", None)
    with (
        pytest.raises(ConnectionFailedError, match=rf"Cannot fetch {NOBODY}/health: .*Check that the server is up"),
        open_environments(arguments(**given), max_completion_tokens=9),
    ):
        pass


def test_one_server_that_answers_is_enough_to_begin(narrow_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with open_servers(arguments(environment_urls=[NOBODY, narrow_url])) as servers:
        assert servers == [NOBODY, narrow_url]
    assert f"The environment server at {NOBODY} does not answer" in caplog.text


def test_servers_that_are_still_to_be_started_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openenv_trl.training.servers.check_servers", None)
    with open_servers(arguments(provider=PROCESS)) as servers:
        assert isinstance(servers, ProvidedServers)


def test_each_of_several_environments_may_have_a_provider(narrow_url: str) -> None:
    several = {
        "cards": {"provider": PROCESS, "pool": {"max_replicas": 2, "min_replicas": 0}, "sessions_per_server": 3},
        "others": {"environment_urls": narrow_url},
    }
    with open_environments(arguments(environments=several), max_completion_tokens=9) as specs:
        assert isinstance(specs, dict)
        cards = specs["cards"].provided
        assert cards is not None
        assert (cards.pool.max_replicas, cards.pool.sessions_per_replica) == (2, 3)
        assert specs["others"].base_urls == (narrow_url,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"provider": {"type": "dokcer", "image": "x"}}, "no type 'dokcer'.*is 'docker' meant"),
        ({"provider": {"image": "x"}}, "has no type"),
        ({"provider": {"type": "docker"}}, "image: Field required"),
        ({"provider": {"type": "docker", "imag": "x"}}, "no field 'imag' \\(is 'image' meant"),
        ({"provider": {"type": "docker", "image": "x", "memory": "much"}}, "'much' is no size"),
        ({"provider": PROCESS, "pool": {"max_replica": 2}}, "no field 'max_replica' \\(is 'max_replicas' meant"),
        ({"provider": PROCESS, "pool": {"min_replicas": 3, "max_replicas": 2}}, "min_replicas=3 is more than"),
        ({"environment": BLACKJACK, "pool": {"max_replicas": 2}}, "a 'provider' runs: give that too"),
        ({"environment": "package:app", "provider": {"type": "docker"}}, "give the image to run"),
        ({}, "'environment'.*'environment_urls'.*or 'provider'"),
    ],
)
def test_what_cannot_be_started_is_said_before_anything_is(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        arguments(**settings)


def test_a_specification_has_addresses_or_what_starts_servers() -> None:
    with pytest.raises(ValueError, match="give base_urls, or what starts"):
        EnvironmentSpec()
    with pytest.raises(ValueError, match="and not both"):
        EnvironmentSpec(base_urls=("http://localhost:1",), provided=provided())


def test_a_missing_image_is_told_before_a_model_is_loaded() -> None:
    require_engine()
    given = arguments(provider={"type": "docker", "image": "no-such-image-here", "pull": "never"})
    with pytest.raises(OpenEnvError, match="no image no-such-image-here"), open_servers(given):
        pass


def test_an_engine_that_is_away_is_told_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    given = arguments(provider={"type": "docker", "image": "x"})
    with pytest.raises(ProviderError, match=r"No Docker engine answers at unix:///nowhere"), open_servers(given):
        pass


def test_a_misspelt_provider_is_told_before_the_trainers_packages_are_imported(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("provider: {type: dokcer, image: x}\nprompt: Play.\n")
    code = (
        "import sys\nfrom openenv_trl.experiment import read_settings\n"
        f"try: read_settings({str(file)!r})\nexcept ValueError as error: print(error)\n"
        "print([name for name in ('torch', 'trl', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "there is no type 'dokcer' (is 'docker' meant?)" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_going_to_be_started_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments(provider=PROCESS, pool={"min_replicas": 0, "max_replicas": 2}, sessions_per_server=8)
    with open_servers(given):
        pass
    assert "0 to 2 servers of type process" in capsys.readouterr().err
