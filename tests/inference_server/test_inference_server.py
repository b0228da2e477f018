"""The test's own inference server keeps what real ones promise, so that what is tested with it is tested for real."""

from __future__ import annotations

import math
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


@pytest.fixture(scope="module")
def model(policy_path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(policy_path).eval()


@pytest.fixture(scope="module")
def prompt_ids(policy_path: Path) -> list[int]:
    tokenizer: Any = AutoTokenizer.from_pretrained(policy_path)
    return tokenizer.encode("Your hand: 10, 6. Sum 16,")


def complete(server: Any, prompt: Any, **changes: Any) -> list[dict[str, Any]]:
    body = {"prompt": prompt, "max_tokens": 12, "logprobs": 0, "return_token_ids": True, **changes}
    return server.post("/v1/completions", body)["choices"]


def logits_of(model: Any, prompt: list[int], ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()


def at(logits: torch.Tensor, ids: list[int]) -> list[float]:
    return logits.log_softmax(-1).gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).tolist()


def test_logprobs_are_those_of_the_distribution_that_was_sampled(
    server: Any, model: Any, prompt_ids: list[int]
) -> None:
    (choice,) = complete(server, prompt_ids, temperature=0.7, seed=1)
    expected = at(logits_of(model, prompt_ids, choice["token_ids"]) / 0.7, choice["token_ids"])
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)


def test_top_k_top_p_and_min_p_bound_what_is_sampled_and_its_logprobs(
    server: Any, model: Any, prompt_ids: list[int]
) -> None:
    (choice,) = complete(server, prompt_ids, top_k=2, seed=3)
    ids = choice["token_ids"]
    logits = logits_of(model, prompt_ids, ids)
    best = logits.topk(2).values
    for place, token in enumerate(ids):
        assert logits[place, token] >= best[place, 1]
        expected = float(logits[place, token] - best[place].logsumexp(0))
        assert choice["logprobs"]["token_logprobs"][place] == pytest.approx(expected, abs=1e-4)
    for narrow in ({"top_p": 1e-6}, {"min_p": 1.0}, {"temperature": 0.0}):
        (choice,) = complete(server, prompt_ids, **narrow)
        assert choice["token_ids"] == logits_of(model, prompt_ids, choice["token_ids"]).argmax(-1).tolist()


def test_a_seed_gives_the_same_tokens_in_whatever_batch(server: Any, prompt_ids: list[int]) -> None:
    (alone,) = complete(server, prompt_ids, seed=5)
    with ThreadPoolExecutor(16) as threads:
        together = list(
            threads.map(lambda n: complete(server, prompt_ids[: 3 + n], seed=n, max_tokens=n + 1)[0], range(12))
        )
        again = threads.submit(complete, server, prompt_ids, seed=5).result()[0]
    assert again["token_ids"] == alone["token_ids"]
    assert [len(choice["token_ids"]) <= n + 1 for n, choice in enumerate(together)] == [True] * 12
    (other,) = complete(server, prompt_ids, seed=6)
    assert other["token_ids"] != alone["token_ids"]


def test_requests_that_arrive_together_are_one_batch(server: Any, prompt_ids: list[int]) -> None:
    before = server.numbers()
    choices = complete(server, [prompt_ids] * 5, n=2)
    after = server.numbers()
    assert len(choices) == 10
    assert after["batches"] - before["batches"] == 1
    assert after["rows"] - before["rows"] == 10


def test_a_stop_id_ends_a_completion_and_a_limit_cuts_it(server: Any, prompt_ids: list[int]) -> None:
    (cut,) = complete(server, prompt_ids, seed=2, max_tokens=3, ignore_eos=True)
    assert (cut["finish_reason"], len(cut["token_ids"])) == ("length", 3)
    (stopped,) = complete(server, prompt_ids, seed=2, stop_token_ids=[cut["token_ids"][0]])
    assert (stopped["finish_reason"], stopped["token_ids"]) == ("stop", cut["token_ids"][:1])
    assert stopped["stop_reason"] == cut["token_ids"][0]


def test_sglang_and_llama_routes_give_the_same_ids_and_their_own_logprobs(
    server: Any, model: Any, prompt_ids: list[int]
) -> None:
    (choice,) = complete(server, prompt_ids, seed=9, temperature=0.5)
    ids = choice["token_ids"]
    logits = logits_of(model, prompt_ids, ids)
    sglang = server.post(
        "/generate",
        {
            "input_ids": prompt_ids,
            "sampling_params": {"max_new_tokens": 12, "temperature": 0.5, "sampling_seed": 9},
            "return_logprob": True,
        },
    )
    assert sglang["output_ids"] == ids
    scored = sglang["meta_info"]["output_token_logprobs"]
    assert [token for _, token, _ in scored] == ids
    assert [value for value, _, _ in scored] == pytest.approx(at(logits / 0.5, ids), abs=1e-4)
    plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 0.5, "seed": 9, "n_predict": 12, "n_probs": 1}
    llama = server.post("/completion", {"prompt": prompt_ids, "return_tokens": True, **plain})
    assert llama["tokens"] == ids
    assert [each["logprob"] for each in llama["completion_probabilities"]] == pytest.approx(at(logits, ids), abs=1e-4)
    llama = server.post("/completion", {"prompt": prompt_ids, "post_sampling_probs": True, **plain})
    assert [math.log(each["prob"]) for each in llama["completion_probabilities"]] == pytest.approx(
        at(logits / 0.5, ids), abs=1e-4
    )


def test_chat_renders_the_tools_and_reads_the_calls(server: Any, policy_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "hit", "description": "", "parameters": {"properties": {}}}}]
    body = {"messages": [{"role": "user", "content": "Play."}], "tools": tools, "max_tokens": 9, "logprobs": True}
    found = server.post("/v1/chat/completions", {**body, "return_token_ids": True, "seed": 1})
    tokenizer: Any = AutoTokenizer.from_pretrained(policy_path)
    assert "hit()" in tokenizer.decode(found["prompt_token_ids"])
    (choice,) = found["choices"]
    assert len(choice["logprobs"]["content"]) == len(choice["token_ids"]) == found["usage"]["completion_tokens"]
    call = {"id": "call_1", "type": "function", "function": {"name": "hit", "arguments": "{}"}}
    answered = [
        *body["messages"],
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sum 16,"},
    ]
    found = server.post("/v1/chat/completions", {**body, "messages": answered, "return_token_ids": True})
    assert '"name": "hit"' in tokenizer.decode(found["prompt_token_ids"])


def test_a_pause_freezes_generation_and_new_weights_come_in_between_two_tokens(
    server: Any, policy_path: Path, prompt_ids: list[int], tmp_path: Path
) -> None:
    (before,) = complete(server, prompt_ids, temperature=0.0)
    changed: Any = AutoModelForCausalLM.from_pretrained(policy_path)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.neg_()
    changed.save_pretrained(tmp_path / "new")
    server.post("/pause?mode=keep", {})
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(complete, server, prompt_ids, temperature=0.0)
        server.post("/update_weights_from_disk", {"model_path": str(tmp_path / "new"), "weight_version": "7"})
        assert not waiting.done()
        server.post("/resume", {})
        (after,) = waiting.result()
    assert server.numbers()["weight_version"] == "7"
    assert after["token_ids"] != before["token_ids"]
    server.post("/update_weights_from_disk", {"model_path": str(policy_path), "weight_version": "default"})
    (again,) = complete(server, prompt_ids, temperature=0.0)
    assert again["token_ids"] == before["token_ids"]


def test_faults_come_on_request_and_go(server: Any, prompt_ids: list[int]) -> None:
    server.faults(fail_next=1, status=503)
    with pytest.raises(urllib.error.HTTPError, match="503"):
        complete(server, prompt_ids)
    server.faults(drop_next=1)
    with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
        complete(server, prompt_ids)
    server.faults(hold=True)
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(complete, server, prompt_ids)
        while server.fault_state()["held"] < 1:
            pass
        assert not held.done()
        server.faults()
        assert held.result()


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": [], "max_tokens": 1},
        {"prompt": [5], "max_tokens": 10**6},
        {"prompt": [5], "max_tokens": 1, "topp": 1},
    ],
)
def test_a_request_that_cannot_be_right_is_refused(server: Any, body: dict[str, Any]) -> None:
    with pytest.raises(urllib.error.HTTPError, match="4"):
        server.post("/v1/completions", body)
