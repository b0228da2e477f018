"""What a spec becomes in a Swarm, and what is read from what a Swarm says: no engine is needed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.specs import make_provider, read_spec
from openenv_trl.providers.swarm import DockerSwarmProvider, SwarmSpec
from openenv_trl.providers.swarm.membership import with_defaults
from openenv_trl.providers.swarm.nodes import node_address, node_state
from openenv_trl.providers.swarm.registry import registry_auth, registry_of
from openenv_trl.providers.swarm.service import service_definition, service_name
from openenv_trl.providers.swarm.tasks import Task, judge, newest, why_ended


def definition(**fields: Any) -> dict[str, Any]:
    spec = SwarmSpec(image="cards:1", **fields)
    return service_definition(spec, name="cards-0", labels={"whose": "mine"}, stack="cards", variables={"LEASE": "9"})


def task(number: int = 1, **changes: Any) -> Task:
    document = {
        "ID": f"task{number}",
        "ServiceID": "service",
        "Slot": 1,
        "NodeID": "node",
        "CreatedAt": f"2030-01-01T00:00:00.{number}Z",
        "DesiredState": "running",
        "Status": {"State": "running", "ContainerStatus": {"ContainerID": "c", "ExitCode": 0}},
    }
    state = changes.pop("state", None)
    if state is not None:
        document["Status"] = {**document["Status"], "State": state}
    return Task.of({**document, **changes})


def test_a_settings_file_names_the_swarm() -> None:
    spec = read_spec({"type": "swarm", "image": "cards", "reserve_memory": "1g", "publish": "ingress"})
    assert isinstance(spec, SwarmSpec)
    assert (spec.reserve_memory, spec.publish) == (1 << 30, "ingress")
    assert isinstance(make_provider(spec), DockerSwarmProvider)
    with pytest.raises(ConfigurationError, match="is 'overlay_network' meant"):
        read_spec({"type": "swarm", "image": "cards", "overlay_networks": "n"})


def test_by_default_each_task_publishes_a_port_of_its_own_and_is_not_restarted() -> None:
    made = definition()
    port = {"Protocol": "tcp", "TargetPort": 8000, "PublishMode": "host"}
    assert made["endpoint_spec"] == {"Mode": "dnsrr", "Ports": [port]}
    assert made["mode"] == {"Replicated": {"Replicas": 1}}
    assert made["task_template"]["RestartPolicy"] == {"Condition": "none"}
    container = made["task_template"]["ContainerSpec"]
    assert container["CapabilityDrop"] == ["ALL"]
    assert container["Privileges"] == {"NoNewPrivileges": True}
    assert container["Healthcheck"] == {"Test": ["NONE"]}
    assert container["Init"]
    assert "ReadOnly" not in container


def test_behind_the_mesh_all_tasks_have_one_address() -> None:
    spec = SwarmSpec(image="cards", publish="ingress", replicas=4, published_port=8080)
    made = service_definition(spec, name="cards", labels={}, stack="cards", variables={}, tasks=4)
    port = {"Protocol": "tcp", "TargetPort": 8000, "PublishMode": "ingress", "PublishedPort": 8080}
    assert made["endpoint_spec"] == {"Mode": "vip", "Ports": [port]}
    assert made["mode"] == {"Replicated": {"Replicas": 4}}


def test_inside_a_network_nothing_is_published() -> None:
    made = definition(publish="network", overlay_network="table", network="internal")
    assert made["endpoint_spec"] == {"Mode": "dnsrr"}
    assert made["task_template"]["Networks"] == [{"Target": "table"}]


def test_limits_reservations_and_the_rest_of_the_fields() -> None:
    made = definition(
        cpus=1.5,
        memory="1g",
        pids=64,
        reserve_cpus=0.5,
        reserve_memory="512m",
        constraints=["node.role==worker"],
        restart="on-failure",
        max_restarts=2,
        restart_delay_s=0.5,
        stop_grace_s=2,
        init=False,
        command=["deal", "--fast"],
        update_parallelism=2,
        update_order="stop-first",
        drop_capabilities=False,
        image_health_check=True,
        labels={"whose": "somebody's"},
        env_vars={"LEASE": "0", "DECK": 52},
    )
    template = made["task_template"]
    assert template["Resources"] == {
        "Limits": {"NanoCPUs": 1_500_000_000, "MemoryBytes": 1 << 30, "Pids": 64},
        "Reservations": {"NanoCPUs": 500_000_000, "MemoryBytes": 512 << 20},
    }
    assert template["Placement"] == {"Constraints": ["node.role==worker"]}
    assert template["RestartPolicy"] == {"Condition": "on-failure", "MaxAttempts": 2, "Delay": 500_000_000}
    assert (made["update_config"]["Parallelism"], made["update_config"]["Order"]) == (2, "stop-first")
    container = template["ContainerSpec"]
    assert container["StopGracePeriod"] == 2_000_000_000
    assert container["Command"] == ["deal", "--fast"]
    assert not {"CapabilityDrop", "Privileges", "Healthcheck", "Init", "Mounts"} & set(container)
    # Neither a label nor a variable of the user's hides whose the server is.
    assert container["Labels"] == {"whose": "mine"}
    assert container["Env"] == {"LEASE": "9", "DECK": "52"}


def test_a_read_only_root_has_a_tmp_in_memory_and_volumes_say_whose_they_are() -> None:
    spec = SwarmSpec(image="cards", read_only=True, tmpfs=1 << 20)
    made = service_definition(spec, name="c", labels={"whose": "mine"}, stack="c", variables={}, volumes=["/data"])
    container = made["task_template"]["ContainerSpec"]
    assert container["ReadOnly"]
    assert container["Mounts"] == [
        {"Type": "volume", "Target": "/data", "VolumeOptions": {"Labels": {"whose": "mine"}}},
        {"Type": "tmpfs", "Target": "/tmp", "TmpfsOptions": {"SizeBytes": 1 << 20, "Mode": 0o1777}},
    ]


def test_a_sandbox_is_kept_in_or_let_out_by_name_only() -> None:
    sandbox = {"openenv-trl.sandbox": "true"}
    with pytest.raises(ConfigurationError, match=r"(?s)is a sandbox.*--internal; or set network to 'open'"):
        with_defaults(SwarmSpec(image="code"), sandbox)
    let_out = with_defaults(SwarmSpec(image="code", network="open", memory="1g"), sandbox)  # pyright: ignore
    assert (let_out.network, let_out.read_only, let_out.memory) == ("open", True, 1 << 30)
    kept_in = with_defaults(SwarmSpec(image="code", publish="network", overlay_network="n"), sandbox)
    assert (kept_in.network, kept_in.cpus) == ("internal", 1.0)
    assert with_defaults(SwarmSpec(image="cards"), {}).network == "open"


def test_a_node_is_reached_where_it_says_or_the_user_does_or_its_engine_is() -> None:
    def node(address: str, manager: str = "") -> dict[str, Any]:
        status = {"Addr": address, "State": "ready"}
        leader = {"ManagerStatus": {"Addr": manager}} if manager else {}
        return {"Description": {"Hostname": "dealer"}, "Status": status, "Spec": {}, **leader}

    here, there = "unix:///var/run/docker.sock", "tcp://10.9.9.9:2376"
    assert node_address(node("10.0.0.5"), {}, there) == "10.0.0.5"
    assert node_address(node("10.0.0.5"), {"dealer": "dealer.example"}, there) == "dealer.example"
    assert node_address(node("0.0.0.0", "10.0.0.6:2377"), {}, here) == "10.0.0.6"
    assert node_address(node("127.0.0.1"), {}, here) == "127.0.0.1"
    assert node_address(node("127.0.0.1"), {}, there) == "10.9.9.9"
    assert node_state({**node("10.0.0.5"), "Spec": {"Availability": "drain"}}) == "drain"
    assert node_state(None) == "unknown"


@pytest.mark.parametrize("name", ["cards-0", "hub.example/ns/Cards:1-0", "x" * 100, "...", "-a-"])
def test_names_are_such_as_swarm_takes(name: str) -> None:
    made = service_name(name, "0123abcd")
    assert len(made) <= 63
    assert made.endswith("0123abcd")
    assert made.replace("-", "").replace("_", "").isalnum()
    assert made[0].isalnum()


def test_a_task_is_read_from_what_the_engine_says() -> None:
    ports = [{"TargetPort": 8000, "PublishedPort": 30001}, {"TargetPort": 8000, "PublishedPort": 30002}]
    networks = [{"Network": {"Spec": {"Name": "table"}}, "Addresses": ["10.0.1.3/24"]}]
    read = task(Status={"State": "running", "PortStatus": {"Ports": ports}}, NetworksAttachments=networks)
    assert (read.ports, read.addresses, read.runs) == ({8000: 30001}, {"table": "10.0.1.3"}, True)
    assert read.exit_code is None
    assert task(Status={"State": "pending", "Err": "no suitable node"}).homeless


def test_times_are_compared_as_numbers() -> None:
    later, sooner = task(9), task(10)  # .9 and .10 of a second
    assert newest([later, sooner], 1) is later


def test_what_runs_is_not_dead_while_an_update_tries_another_beside_it() -> None:
    known = task(1)
    assert judge(known, [known, task(2, state="pending")], restarts=False).ended is None
    assert judge(known, [known, task(2, state="pending", DesiredState="shutdown")], restarts=False).ended is None


def test_a_death_is_a_death_whatever_swarm_intends() -> None:
    known, dead = task(1), task(1, state="failed", DesiredState="shutdown")
    assert judge(known, [dead], restarts=False).ended == dead
    assert judge(known, [], restarts=False).ended == known
    # A node that is down never says that its task has ended.
    lost = task(1, DesiredState="shutdown")
    assert judge(known, [lost], restarts=False).ended == lost
    assert "node is down" in why_ended(lost, service_there=True, node_state="down")


def test_where_swarm_restarts_its_decision_is_waited_for() -> None:
    known, undecided = task(1), task(1, state="failed")
    assert judge(known, [undecided], restarts=True).ended is None
    assert judge(known, [undecided], restarts=False).ended == undecided
    given_up = task(1, state="failed", DesiredState="shutdown")
    assert judge(known, [given_up], restarts=True).successor is None
    following = task(2, state="ready")
    assert judge(known, [given_up, following], restarts=True).successor == following


def test_credentials_are_those_of_the_spec_or_of_docker_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert registry_auth(SwarmSpec(image="hub.example/cards")) is None
    stored = {"hub.example": {"auth": base64.b64encode(b"ada:with:colon").decode()}, "other.example": {}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": stored}))
    assert registry_auth(SwarmSpec(image="hub.example/cards")) == {
        "username": "ada",
        "password": "with:colon",
        "serveraddress": "hub.example",
    }
    assert registry_auth(SwarmSpec(image="other.example/cards")) is None
    given = SwarmSpec(image="hub.example/cards", registry_username="bob", registry_password="secret")  # pyright: ignore
    assert (registry_auth(given) or {})["username"] == "bob"
    assert "secret" not in repr(given)


def test_the_registry_of_an_image() -> None:
    names = ["hub.example:5000/a/b:1", "localhost/a", "ada/cards", "cards:1"]
    hub = "https://index.docker.io/v1/"
    assert [registry_of(name) for name in names] == ["hub.example:5000", "localhost", hub, hub]
