"""The coding environment's sandbox in a container: confined by the engine too, strong with its own seccomp profile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openenv_trl.client import GenericEnvClient, fetch_metadata
from openenv_trl.errors import ConfigurationError
from openenv_trl.providers.docker import LocalDockerProvider
from openenv_trl.providers.specs import read_spec

PROFILE = Path(__file__).parents[2] / "environments" / "coding_env" / "server" / "docker-seccomp.json"


@pytest.mark.anyio
@pytest.mark.docker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("image", ["coding_env"], indirect=True)
async def test_with_its_seccomp_profile_the_sandbox_in_a_container_is_strong(image: Any) -> None:
    for profile, level in ((None, "partial"), (PROFILE, "strong")):
        spec = {"image": image.tag, "ready_timeout_s": 240, "seccomp_profile": profile}
        async with LocalDockerProvider(**spec) as servers, GenericEnvClient(servers.base_urls[0]) as env:
            await env.reset(seed=1)
            assert (await env.state())["sandbox"] == level
            description = (await fetch_metadata(servers.base_urls[0]))["description"]
            assert f"Sandbox: {level} (" in description
            assert (f"Sandbox: {level} (" in await servers.logs()) == (level != "strong")
            run = {"type": "call_tool", "tool_name": "run_python", "arguments": {"code": "6 * 7"}}
            assert "42" in str((await env.step(run)).observation)


@pytest.mark.parametrize(("text", "message"), [(None, "cannot be read"), ("{not json", "is no seccomp profile")])
def test_a_profile_that_cannot_be_used_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "profile.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=f"profile.json {message}"):
        read_spec({"type": "docker", "image": "x", "seccomp_profile": str(file)})
