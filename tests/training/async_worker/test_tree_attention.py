"""The attention of the trainer without CUDA is FlashAttention's on the tree, computed plainly."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from trl.experimental.async_grpo.packing import TreeRow

from openenv_trl.errors import ConfigurationError
from openenv_trl.training.async_worker.portable import tree_attention

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=9), min_size=1, max_size=8)


def packed(sequences: list[list[int]]) -> tuple[TreeRow, dict[str, torch.Tensor]]:
    row = TreeRow()
    for number, ids in enumerate(sequences):
        mask = np.array([0] + [1] * (len(ids) - 1))
        sample = {"input_ids": np.array(ids), "completion_mask": mask, "old_log_probs": np.zeros(len(ids))}
        row.add({**sample, "advantage": 1.0, "group_id": number})
    return row, row.pack()


def attend(pack: dict[str, torch.Tensor], query: Any, key: Any, value: Any, **changes: Any) -> torch.Tensor:
    longest = pack["tree_max_seqlens"].tolist()
    names = ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")
    given: dict[str, Any] = {name: pack[name] for name in names}
    given |= {"tree_max_seqlen_q": longest[0], "tree_max_seqlen_k": longest[1]}
    return tree_attention(None, query, key, value, None, **given, **changes)[0]


def places(pack: dict[str, torch.Tensor], sequences: list[list[int]]) -> list[list[int]]:
    """Where each sequence's tokens are in the pack, read off its segments."""
    starts, bounds = pack["tree_cu_seqlens_k"].tolist(), pack["tree_kv_index"].tolist()
    paths = [bounds[a:b] for a, b in pairwise(starts)]
    ids = pack["input_ids"].tolist()
    return [next(path for path in paths if [ids[place] for place in path] == sequence) for sequence in sequences]


@settings(max_examples=40, deadline=None)
@given(SEQUENCES, st.sampled_from([None, 1, 3]))
def test_each_sequence_attends_as_if_it_were_alone(sequences: list[list[int]], window: int | None) -> None:
    _, pack = packed(sequences)
    count = len(pack["input_ids"])
    torch.manual_seed(count)
    query, key, value = torch.randn(1, 4, count, 8), torch.randn(1, 2, count, 8), torch.randn(1, 2, count, 8)
    found = attend(pack, query, key, value, sliding_window=window, scaling=0.3)
    for path in places(pack, sequences):
        q, k, v = query[0, :, path], key[0][:, path].repeat_interleave(2, 0), value[0][:, path].repeat_interleave(2, 0)
        distance = torch.arange(len(path)).unsqueeze(1) - torch.arange(len(path)).unsqueeze(0)
        hidden = (distance < 0) | ((distance >= window) if window else torch.zeros_like(distance, dtype=torch.bool))
        scores = (q @ k.transpose(1, 2) * 0.3).masked_fill(hidden, -torch.inf)
        assert torch.allclose(found[0, path].transpose(0, 1), scores.softmax(-1) @ v, atol=1e-5)


def test_the_trees_log_probs_and_gradients_are_the_models_own(tiny_policy_path: Any) -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register("tree_for_test", tree_attention)
    AttentionMaskInterface.register("tree_for_test", lambda **_: None)
    plain: Any = AutoModelForCausalLM.from_pretrained(tiny_policy_path)
    tree: Any = AutoModelForCausalLM.from_pretrained(tiny_policy_path, attn_implementation="tree_for_test")
    sequences = [[5, 6, 7, 8, 9], [5, 6, 7, 8, 4], [5, 6, 3], [9, 9, 9, 9]]
    _, pack = packed(sequences)
    longest = pack["tree_max_seqlens"].tolist()
    logits = tree(
        input_ids=pack["input_ids"].unsqueeze(0),
        position_ids=pack["position_ids"].unsqueeze(0),
        **{name: pack[name] for name in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")},
        tree_max_seqlen_q=longest[0],
        tree_max_seqlen_k=longest[1],
    ).logits[0]
    labels = pack["shift_labels"][pack["token_index"]]
    from_tree = logits.log_softmax(-1)[pack["token_index"], labels]
    alone: list[torch.Tensor] = []
    for ids in sequences:
        tensor = torch.tensor([ids])
        logp = plain(tensor).logits[0, :-1].log_softmax(-1)
        alone.append(logp.gather(1, tensor[0, 1:].unsqueeze(1)).squeeze(1))
    assert torch.allclose(from_tree, torch.cat(alone), atol=1e-5)
    from_tree.sum().backward()
    torch.cat(alone).sum().backward()
    for ours, theirs in zip(tree.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-4)


def test_a_model_that_caps_its_scores_is_refused() -> None:
    _, pack = packed([[1, 2, 3]])
    one = torch.zeros(1, 1, 3, 4)
    with pytest.raises(ConfigurationError, match="softcap"):
        attend(pack, one, one, one, softcap=30.0)
