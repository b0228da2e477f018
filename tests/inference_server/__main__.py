"""Starts the server: ``python tests/inference_server --model FOLDER``. See `running` for tests."""

from __future__ import annotations

import argparse
import socket

import uvicorn
from fastapi import FastAPI
from faults import add_fault_routes
from generating import ModelThread
from openai_routes import add_openai_routes
from other_routes import add_control_routes, add_llama_routes, add_sglang_routes


def main() -> None:
    """Serve until terminated. Prints ``READY http://127.0.0.1:PORT`` once requests are taken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder of a transformers model and its tokenizer")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--logprobs-mode", choices=["raw_logprobs", "processed_logprobs"], default="processed_logprobs")
    parser.add_argument("--served-model-name")
    parser.add_argument("--linger", type=float, default=0.004, help="seconds that a batch waits for more rows")
    parser.add_argument("--max-batch", type=int, default=512)
    arguments = parser.parse_args()

    thread = ModelThread(arguments.model, linger_s=arguments.linger, max_batch=arguments.max_batch)
    app = FastAPI()
    add_openai_routes(
        app,
        thread,
        logprobs_mode=arguments.logprobs_mode,
        model_name=arguments.served_model_name or arguments.model,
    )
    add_sglang_routes(app, thread)
    add_llama_routes(app, thread)
    add_control_routes(app, thread)
    add_fault_routes(app)

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", arguments.port))
    listener.listen(1024)
    print(f"READY http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_keep_alive=30)).run(sockets=[listener])


if __name__ == "__main__":
    main()
