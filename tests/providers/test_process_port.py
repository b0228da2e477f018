"""A process that is to listen on a port of the user's choice does so, or the error names the port."""

from __future__ import annotations

import socket

import pytest

from openenv_trl.errors import ConfigurationError, ProviderError
from openenv_trl.providers import ProcessProvider, ProcessSpec
from openenv_trl.providers.specs import read_spec

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("fd", [True, False], ids=["by-descriptor", "by-port"])
async def test_a_server_listens_on_the_port_that_was_named(plain_server, fd):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with ProcessProvider(ProcessSpec(environment=plain_server(fd=fd), port=port)) as servers:
        assert servers.base_urls == [f"http://127.0.0.1:{port}"]


async def test_a_port_that_is_taken_is_told(plain_server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        provider = ProcessProvider(ProcessSpec(environment=plain_server(), port=port))
        with pytest.raises(ProviderError, match=f"port {port} of 127.0.0.1 cannot be had"):
            await provider.start()
        assert provider.replicas == []


def test_one_port_for_several_servers_is_refused():
    with pytest.raises(ConfigurationError, match="is for one server"):
        read_spec({"type": "process", "environment": "a:app", "port": 8000, "replicas": 2})
