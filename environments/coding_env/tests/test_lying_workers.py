"""A worker may say what it likes: what the server takes of it is short, and read in no time."""

from __future__ import annotations

import base64
import json
import os
import struct

import pytest
from coding_env.models import CodeAction
from coding_env.sandbox.exchange import MAX_MESSAGE, MAX_REPLY
from coding_env.sandbox.inside import frames
from coding_env.sandbox.inside.bundle import bundled, unbundled
from coding_env.server.coding_environment import CodingEnvironment
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.anyio
LIE = (
    "import sys\nfiles = sys.modules['inside.files']\n"
    "files._read = lambda *a: {'text': 'eHh4' * 1000000, 'truncated': False}\n"
    "files._list = lambda *a: {'files': [['a' * 3000000, '\\ud800']], 'truncated': False}\n"
    "files._write = lambda *a: {'error': {'k': 'y' * 9000}}"
)


async def test_file_tools_tell_no_more_than_they_may_whatever_the_worker_says() -> None:
    environment = CodingEnvironment()
    for call in (
        lambda: environment.read_file("a"),
        lambda: environment.list_files(),
        lambda: environment.write_file("a", "b"),
    ):
        await environment.reset_async()
        await environment.step_async(CodeAction(code=LIE))
        observation = await call()
        assert observation.exit_code in (1, 137)
        assert len(observation.stdout) + len(observation.stderr) < 1200
    environment.close()


async def test_a_text_of_a_worker_is_cut_to_what_read_file_promises() -> None:
    environment = CodingEnvironment()
    await environment.reset_async()
    text = base64.b64encode(b"x" * 80000).decode()
    lie = f"import sys\nsys.modules['inside.files']._read = lambda *a: {{'text': {text!r}}}"
    await environment.step_async(CodeAction(code=lie))
    observation = await environment.read_file("a")
    assert observation.stdout == "x" * 65536
    environment.close()


async def test_files_at_their_limits_still_are_told() -> None:
    environment = CodingEnvironment()
    await environment.reset_async()
    make = "import os\nopen('big', 'wb').write(os.urandom(70000))\nfor n in range(1200): open(f'{n:0100}', 'w').close()"
    assert (await environment.step_async(CodeAction(code=make))).exit_code == 0
    assert "cut after 65536 bytes" in (await environment.read_file("big")).stdout
    listed = (await environment.list_files()).stdout.splitlines()
    assert listed[-1] == "[... cut after 1000 files ...]"
    environment.close()


async def test_a_pipe_is_refused_at_once() -> None:
    environment = CodingEnvironment()
    await environment.reset_async()
    await environment.step_async(CodeAction(code="import os; os.mkfifo('pipe'); os.mkdir('folder')"))
    for observation in (await environment.read_file("pipe"), await environment.write_file("pipe", "a")):
        assert (observation.stderr, observation.exit_code) == ("ValueError: 'pipe' is no regular file\n", 1)
    assert "IsADirectoryError" in (await environment.read_file("folder")).stderr
    environment.close()


@pytest.mark.parametrize("part", [b"[]", b"0", b'{"a":0}'])
def test_a_long_frame_of_many_values_is_not_read(part: bytes) -> None:
    data = b'{"id":1,"x":[' + part + (b"," + part) * (MAX_REPLY["export"] // 16) + b"]}"
    assert MAX_MESSAGE < len(data) < MAX_REPLY["export"]
    with pytest.raises(frames.BrokenFrameError, match="many values"):
        frames.Unpacker(MAX_REPLY["export"], flat=True).feed(struct.pack("!I", len(data)) + data)


def test_a_long_frame_of_one_text_is_read() -> None:
    message = {"id": 1, "files": base64.b64encode(os.urandom(1 << 18)).decode(), "truncated": False}
    assert len(json.dumps(message)) < MAX_REPLY["export"]
    assert frames.Unpacker(MAX_REPLY["export"], flat=True).feed(frames.pack(message)) == [message]


@given(files=st.lists(st.tuples(st.text(), st.binary()), max_size=5), cut=st.integers(0, 40))
def test_a_bundle_holds_its_files_and_a_broken_one_fewer(files: list[tuple[str, bytes]], cut: int) -> None:
    text = bundled([(path.encode("utf-8", "replace"), told) for path, told in files])
    whole = [(path.encode("utf-8", "replace").decode(), told) for path, told in files]
    assert unbundled(text, 10) == whole
    found = unbundled(text[:cut], 10)
    assert found == whole[: len(found)]
