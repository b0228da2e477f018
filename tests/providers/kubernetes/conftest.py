"""A test cluster whose pods are containers of the machine's engine, and a look after every test at what is left.

With OPENENV_TRL_TEST_KUBECONFIG set to a real cluster's kubeconfig, the tests that need no fault of the test cluster's
own run against that one: its nodes must have the image `pod-server:test` (built from ``image/``).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes_asyncio")
pytest.importorskip("aiodocker")

from openenv_trl.providers.kubernetes import KubernetesProvider, KubernetesSpec
from tests.providers.engines import docker, require_engine
from tests.providers.kubernetes.cluster.running import Cluster

HERE = Path(__file__).parent
REAL = os.environ.get("OPENENV_TRL_TEST_KUBECONFIG")


@pytest.fixture(scope="session")
def image() -> Iterator[str]:
    """The image of the server in ``image/``."""
    if REAL:
        yield "pod-server:test"
        return
    require_engine()
    name = f"pod-server:test-{uuid.uuid4().hex[:8]}"
    docker("build", "--quiet", "--tag", name, str(HERE / "image"))
    yield name
    docker("rmi", "--force", name, check=False)


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_engine()
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(module_cluster: Cluster) -> Iterator[Cluster]:
    """The test cluster, with no fault at the beginning and nothing left at the end."""
    if REAL:
        pytest.skip("needs a fault that only the test cluster has")
    module_cluster.do(module_cluster.heal)
    yield module_cluster
    module_cluster.do(module_cluster.heal)
    module_cluster.wait_empty()


@pytest.fixture
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """The kubeconfig of the test cluster, or of the real one."""
    return Path(REAL) if REAL else request.getfixturevalue("cluster").kubeconfig()


@pytest.fixture
def spec(image: str, kubeconfig: Path) -> Callable[..., KubernetesSpec]:
    """A spec for the cluster, reached by pod IP, with other fields over it."""

    def make(**fields: Any) -> KubernetesSpec:
        known = {
            "image": image,
            "kubeconfig": kubeconfig,
            "access": "pod-ip",
            "image_pull_policy": "Never" if REAL else None,
            "stop_grace_s": 1,
        }
        return KubernetesSpec.model_validate({**known, **fields})

    return make


@pytest.fixture
def provider(spec: Callable[..., KubernetesSpec]) -> Iterator[Callable[..., KubernetesProvider]]:
    """Makes providers, and stops them."""
    made: list[KubernetesProvider] = []

    def make(*, on_exit: Any = None, on_log: Any = None, **fields: Any) -> KubernetesProvider:
        made.append(KubernetesProvider(spec(**fields), on_exit=on_exit, on_log=on_log))
        return made[-1]

    yield make
    for each in made:
        each.stop_sync()
