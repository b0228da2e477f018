"""Manifests: what Kubernetes' own schemas and its own client say of them, and what the spec's fields become."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from openenv_trl.cli.commands import app
from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.kubernetes import KubernetesSpec, manifests
from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.specs import read_spec
from tests.providers.kubernetes.cluster.running import Cluster

EVERYTHING: dict[str, Any] = {
    "image": "registry.example/team/echo-env:1",
    "name": "Echo Env!",
    "command": ["python", "-m", "server"],
    "replicas": 3,
    "env_vars": {"A": "b", "N": 1},
    "labels": {"team": "rl", "example.org/run": "7"},
    "annotations": {"note": "anything at all, really"},
    "cpus": 1.5,
    "cpu_request": 0.1,
    "memory": "512m",
    "memory_request": "256m",
    "ephemeral_storage": "1g",
    "network": "internal",
    "namespace": "rollouts",
    "image_pull_policy": "Always",
    "image_pull_secrets": ["registry"],
    "env_from_secrets": ["tokens"],
    "node_selector": {"pool": "sandboxes"},
    "tolerations": [{"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}],
    "service_account": "rollouts",
    "priority_class": "low",
    "runtime_class": "gvisor",
    "max_lifetime_s": 3600,
    "pod_overrides": {"hostname": "fixed", "securityContext": {"fsGroup": 1000}},
}
VERSIONS = ("1.27", "1.30", "1.33", "1.36")


def all_objects(spec: KubernetesSpec) -> list[dict[str, Any]]:
    """Everything that is ever made of a spec."""
    labels = manifests.replica_labels(spec, this_owner().labels("echo-0", 60), "echo-0-abcd", "group")
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "4f3576fe-7c4a-4c0f-9624-27f532e78349"}]
    its_own = ("echo-0-abcd", {manifests.REPLICA_LABEL: "echo-0-abcd"}, labels, 8000, owners)
    job = manifests.job(
        spec,
        object_name="echo-0-abcd",
        name="echo-0",
        labels=labels,
        variables={"A": "b"},
        owners=owners,
        deadline_s=99,
    )
    return [*manifests.deployment(spec), job, manifests.service(*its_own), manifests.network_policy(*its_own)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fields", [{"image": "echo-env"}, EVERYTHING], ids=["least", "most"])
def test_every_manifest_is_what_kubernetes_publishes(version: str, fields: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for each in all_objects(KubernetesSpec.model_validate(fields)):
        validate(each, version, strict=True)


def test_the_servers_pod_is_the_same_under_a_job_and_a_deployment() -> None:
    deployed, _, _, job, *_ = all_objects(KubernetesSpec.model_validate(EVERYTHING))
    one, other = (each["spec"]["template"]["spec"] for each in (deployed, job))
    differ = {key for key in one if one[key] != other[key]}
    assert differ == {"restartPolicy", "terminationGracePeriodSeconds", "containers"}
    containers = [each["containers"][0] for each in (one, other)]
    assert {key for key in containers[0] if containers[0][key] != containers[1][key]} == {"env"}


def test_fields_of_the_spec_are_found_in_the_pod() -> None:
    pod = all_objects(KubernetesSpec.model_validate(EVERYTHING))[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["resources"] == {
        "limits": {"cpu": "1500m", "memory": str(512 * 1024**2), "ephemeral-storage": str(1024**3)},
        "requests": {"cpu": "100m", "memory": str(256 * 1024**2)},
    }
    assert container["args"] == ["python", "-m", "server"]
    assert container["envFrom"] == [{"secretRef": {"name": "tokens"}}]
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
        "fsGroup": 1000,
    }
    assert pod["runtimeClassName"] == "gvisor"
    assert pod["hostname"] == "fixed"
    assert pod["tolerations"][0] == {"key": "sandbox", "operator": "Exists", "effect": "NoSchedule"}
    assert not pod["automountServiceAccountToken"]
    assert not pod["enableServiceLinks"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"pids": 64}, "podPidsLimit of the kubelet"),
        ({"user": "nobody"}, "users and groups by number"),
        ({"labels": {"run": "with blanks"}}, "put it under annotations"),
        ({"labels": {"no label!": "x"}}, "no label called 'no label!'"),
        ({"cpus": 1, "cpu_request": 2}, "cpu_request=2 is more than the limit of 1"),
        ({"in_cluster": True, "context": "kind"}, "not both; leave one out"),
        ({"node_selektor": {}}, "is 'node_selector' meant?"),
        ({"access": "tunnel"}, "'auto', 'pod-ip', 'service' or 'port-forward'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_to_change(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_spec({"type": "kubernetes", "image": "echo-env", **fields})
    assert told in str(error.value)


def test_a_job_of_a_dead_owner_has_an_end() -> None:
    job = all_objects(KubernetesSpec(image="echo-env"))[2]
    assert job["kind"] == "Job"
    assert job["spec"]["ttlSecondsAfterFinished"] == 15
    assert job["spec"]["activeDeadlineSeconds"] == 99
    assert job["spec"]["backoffLimit"] == 0


def test_long_and_strange_names_become_names_that_differ() -> None:
    from openenv_trl.providers.kubernetes.names import dns_label, label_value, object_name

    assert dns_label("My_Env:v1.2") == "my-env-v1-2"
    assert dns_label("123") == "env-123"
    long, longer = "x" * 100, "x" * 101
    assert dns_label(long) != dns_label(longer)
    for name in (long, longer, "ünï/cödé:1", "-", ""):
        made = object_name(name, "0a1b2c3d")
        assert len(f"{made}-abcde") <= 63  # the pod's
        assert made == dns_label(made)
        assert len(label_value(name)) <= 63


def printed(*options: str) -> str:
    run = CliRunner().invoke(app, ["serve", "--kubernetes", *options], catch_exceptions=True)
    if run.exception is not None and not isinstance(run.exception, SystemExit):
        raise run.exception
    return run.output


def test_the_command_prints_yaml_that_the_schemas_take(tmp_path: Path) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    (tmp_path / "openenv.yaml").write_text("name: echo_env\nport: 9000\n")
    (tmp_path / "more.yaml").write_text("runtime_class: gvisor\nreplicas: 1\n")
    options = [
        "--image",
        "echo:1",
        "--replicas",
        "2",
        "--memory",
        "512m",
        "--env",
        "A=b=c",
        "--max-concurrent-envs",
        "8",
    ]
    text = printed(str(tmp_path), "--dry-run", "--spec", str(tmp_path / "more.yaml"), *options)
    deployed, front = yaml.safe_load_all(text)
    for each in (deployed, front):
        validate(each, "1.33", strict=True)
    container = deployed["spec"]["template"]["spec"]["containers"][0]
    assert deployed["metadata"]["name"] == "echo-env"
    assert deployed["spec"]["replicas"] == 2
    assert container["ports"][0]["containerPort"] == 9000
    variables = {each["name"]: each["value"] for each in container["env"]}
    assert variables["A"] == "b=c"
    assert variables["MAX_CONCURRENT_ENVS"] == "8"
    assert not any("LEASE" in name or "OWNER" in name for name in variables)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--image", "x"], "| kubectl apply -f -"),
        (["--dry-run"], "--image REGISTRY/NAME:TAG"),
        (["--dry-run", "--image", "x", "--env", "A"], "write NAME=VALUE"),
        (["--dry-run", "--image", "x", "--network", "closed"], "network"),
        (["--dry-run", "--image", "x", "--spec", "nowhere.yaml"], "--spec nowhere.yaml cannot be read"),
        (["nowhere", "--dry-run", "--image", "x"], "nowhere has no openenv.yaml"),
    ],
)
def test_the_command_says_what_it_needs(options: list[str], told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        printed(*options)
    assert told in str(error.value)


@pytest.mark.docker
def test_kubectl_reads_what_the_command_prints(cluster: Cluster) -> None:
    """With any kubectl: it asks a server for the kinds there are, so the test cluster answers it."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl: `apt-get install kubernetes-client` has one")
    run: Callable[..., Any] = subprocess.run
    text = printed("--dry-run", "--image", "echo-env:1", "--network", "internal", "--namespace", "rollouts")
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig())}
    command = ["kubectl", "create", "--dry-run=client", "--validate=false", "--output=json", "--filename=-"]
    made = run(command, input=text, capture_output=True, text=True, env=environment)
    assert made.returncode == 0, made.stderr
    decoder, rest, kinds = json.JSONDecoder(), made.stdout.strip(), []
    while rest:
        each, end = decoder.raw_decode(rest)
        kinds += [item["kind"] for item in each.get("items", [each])]
        rest = rest[end:].strip()
    assert kinds == ["Deployment", "Service", "NetworkPolicy"]
