"""A process that owns servers, to be killed: starts what a spec says, tells how it goes, and waits.

Usage: owner_process.py SPEC   (JSON; with "stop" as a second word it stops in order, and ends)
"""

from __future__ import annotations

import json
import os
import sys

import anyio

from openenv_trl.providers.owner import this_owner
from openenv_trl.providers.specs import make_provider


def say(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


async def main() -> None:
    spec = json.loads(sys.argv[1])
    where = {name: spec.pop(name) for name in ("docker_host",) if name in spec}
    provider = make_provider(spec, **where)
    say("owner", this_owner().id)
    endpoint = await provider.start()
    say("ready", *endpoint.base_urls)
    if "stop" in sys.argv:
        await provider.stop()
        say("stopped")
    else:
        await anyio.sleep_forever()


anyio.run(main)
