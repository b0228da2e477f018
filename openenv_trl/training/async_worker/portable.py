"""``AsyncGRPOTrainer`` without CUDA: what it takes for granted, in plain torch.

TRL 1.16's trainer packs the rollouts of a batch into a tree of shared prefixes, and attends along its branches with a
FlashAttention kernel that exists for CUDA and ROCm only; and it asks CUDA for the device's name to log utilisation.
`make_portable` puts plain torch in the place of both, for a first run, a test or a small model on a CPU. With CUDA it
changes nothing.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (torch, transformers and datasets are typed in part only)
from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from openenv_trl.errors import ConfigurationError

_CHUNK_ELEMENTS = 2**22
"""Elements of one chunk's mask: 4 MiB, small beside any model."""


def make_portable() -> bool:
    """Let ``AsyncGRPOTrainer`` run on this machine; call it before the trainer is made.

    Returns:
        Whether anything was changed: False where CUDA is there.

    Raises:
        ConfigurationError: The installed TRL is not one whose inner names are known.
    """
    if torch.cuda.is_available():
        return False
    from trl.experimental.async_grpo import async_grpo_trainer as module

    names = ("register_tree_attention", "get_peak_flops_per_device", "TREE_ATTENTION")
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise ConfigurationError(
            f"This TRL's AsyncGRPOTrainer cannot run without CUDA: its module has no {', '.join(missing)}, which TRL "
            "1.16 has. Install trl==1.16.*, or train on a machine with CUDA."
        )
    name = str(module.TREE_ATTENTION)
    changed: Any = module
    changed.register_tree_attention = lambda: _register(name)
    changed.get_peak_flops_per_device = _no_peak_flops
    return True


def _register(name: str) -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(name, tree_attention)
    AttentionMaskInterface.register(name, _no_mask)


def _no_mask(**_: Any) -> None:
    """The tree says who sees whom."""


def _no_peak_flops(*_: Any) -> None:
    """Utilisation is not logged."""


def tree_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    *,
    tree_kv_index: torch.Tensor,
    tree_cu_seqlens_q: torch.Tensor,
    tree_cu_seqlens_k: torch.Tensor,
    tree_max_seqlen_q: int,
    tree_max_seqlen_k: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of each segment of a tree to its path from the root, as FlashAttention's causal varlen kernel has it.

    A segment's last query sees its whole path, the one before it all but the last, and so on.

    Args:
        module: The attention layer; not used.
        query: 1 x heads x N x d, of N tokens in the tree's order.
        key: 1 x key-value heads x N x d.
        value: As ``key``.
        attention_mask: Not used: the tree says who sees whom.
        tree_kv_index: The paths of all segments, one after another, as places among the N tokens.
        tree_cu_seqlens_q: Where each segment begins among the queries; one more than there are segments.
        tree_cu_seqlens_k: Where each path begins in ``tree_kv_index``; as long.
        tree_max_seqlen_q: Tokens of the longest segment.
        tree_max_seqlen_k: Tokens of the longest path.
        scaling: Factor of the scores; one over the root of d if None.
        sliding_window: Keys that a query sees at most, itself included.
        softcap: Not supported.

    Returns:
        1 x N x heads x d, and None in the place of attention weights.

    Raises:
        ConfigurationError: The model caps its scores.
    """
    if softcap:
        raise ConfigurationError("AsyncGRPO without CUDA does not support models that cap attention scores (softcap).")
    queries, keys, values = (x.transpose(1, 2)[0] for x in (query, key, value))
    repeats = queries.shape[1] // keys.shape[1]
    if repeats > 1:
        keys, values = keys.repeat_interleave(repeats, dim=1), values.repeat_interleave(repeats, dim=1)
    starts_q, starts_k = tree_cu_seqlens_q[:-1].long(), tree_cu_seqlens_k[:-1].long()
    lengths_q = tree_cu_seqlens_q[1:].long() - starts_q
    lengths_k = tree_cu_seqlens_k[1:].long() - starts_k
    places: list[torch.Tensor] = []
    outputs: list[torch.Tensor] = []
    for chunk in _chunks(lengths_q.tolist(), lengths_k.tolist()):
        rows = torch.tensor(chunk, device=queries.device)
        widths_q, widths_k = lengths_q[rows].unsqueeze(1), lengths_k[rows].unsqueeze(1)
        row_q = torch.arange(int(widths_q.max()), device=rows.device).unsqueeze(0)
        row_k = torch.arange(int(widths_k.max()), device=rows.device).unsqueeze(0)
        real_q, real_k = row_q < widths_q, row_k < widths_k
        place_q = (starts_q[rows].unsqueeze(1) + row_q).where(real_q, torch.zeros_like(row_q))
        place_k = tree_kv_index[(starts_k[rows].unsqueeze(1) + row_k).where(real_k, torch.zeros_like(row_k))]
        last = (row_q + widths_k - widths_q).unsqueeze(2)
        seen = real_k.unsqueeze(1) & (row_k.unsqueeze(1) <= last)
        if sliding_window:
            # Queries that only fill up the row are beyond the path's end; they keep a key, or they would be NaN.
            seen &= (row_k.unsqueeze(1) > last - sliding_window) | ~real_q.unsqueeze(2)
        found = scaled_dot_product_attention(
            queries[place_q].transpose(1, 2),
            keys[place_k].transpose(1, 2),
            values[place_k].transpose(1, 2),
            attn_mask=seen.unsqueeze(1),
            scale=scaling,
        ).transpose(1, 2)
        places.append(place_q[real_q])
        outputs.append(found[real_q])
    order = torch.argsort(torch.cat(places))
    return torch.cat(outputs)[order].unsqueeze(0), None


def _chunks(lengths_q: list[int], lengths_k: list[int]) -> list[list[int]]:
    """Segments of like lengths together, so that little is padded and no mask grows large."""
    order = sorted(range(len(lengths_q)), key=lambda i: (lengths_q[i], lengths_k[i]))
    chunks: list[list[int]] = []
    width_q = width_k = 0
    for index in order:
        new_q, new_k = max(width_q, lengths_q[index]), max(width_k, lengths_k[index])
        if not chunks or (len(chunks[-1]) + 1) * new_q * new_k > _CHUNK_ELEMENTS:
            chunks.append([])
            new_q, new_k = lengths_q[index], lengths_k[index]
        chunks[-1].append(index)
        width_q, width_k = new_q, new_k
    return chunks
