"""A policy over SGLang's own route: ``POST /generate``, ids in and out.

Source: SGLang's native API and sampling parameters as documented at docs.sglang.io. Its log-probs are those of the
distribution after the temperature and before top-k, top-p and min-p.
"""

from __future__ import annotations

from typing import Any, cast

from openenv_trl.rollout.policies.endpoint import RequestRefused
from openenv_trl.rollout.policies.token_server import TokenServerPolicy, filters, no_ids
from openenv_trl.rollout.policy import Completion, FailedCompletion, SamplingParameters


class SglangPolicy(TokenServerPolicy):
    """Completes token ids at ``python -m sglang.launch_server``.

    Its log-probs fit any temperature. With top-p below 1, top-k or min-p they are not those of the distribution that
    was sampled from, and are left out. Leave ``SGLANG_RETURN_ORIGINAL_LOGPROB`` unset at the server: with it they are
    those of temperature 1, and nothing in an answer tells. A ``seed`` is kept to only where the server runs with
    ``--enable-deterministic-inference``.

    Where no ``version`` is given and the server's ``weight_version`` is a whole number, that is the version.

    Example:
        >>> policy = SglangPolicy(["http://gpu1:30000", "http://gpu2:30000"])
    """

    async def _complete(
        self, prompt: list[int], limit: int, sampling: SamplingParameters
    ) -> Completion | FailedCompletion:
        version = self._version()
        found = await self.endpoint.post("/generate", self._body(prompt, limit, sampling))
        given: Any = found.get("meta_info")
        meta: dict[str, Any] = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        why: Any = meta.get("finish_reason")
        reason: Any = cast("dict[str, Any]", why).get("type") if isinstance(why, dict) else why
        if reason not in ("stop", "length"):
            status: Any = cast("dict[str, Any]", why).get("status_code") if isinstance(why, dict) else None
            refused = isinstance(status, int) and 400 <= status < 500
            return FailedCompletion(f"the server ended the completion: {why}", retryable=not refused)
        ids, logprobs = self._read(found, meta)
        if filters(sampling):
            self._warn_once(
                f"SGLang at {self.endpoint.names} gives log-probs before top-k, top-p and min-p, so those of filtered "
                "sampling are left out. Sample with top_p=1, top_k=0 and no min_p to have them."
            )
            logprobs = None
        if version is None:
            weights = str(meta.get("weight_version", ""))
            version = int(weights) if weights.isdecimal() else None
        return self._completion(ids, logprobs, reason == "stop", version)

    def _body(self, prompt: list[int], limit: int, sampling: SamplingParameters) -> dict[str, Any]:
        greedy = sampling.greedy
        params: dict[str, Any] = {
            "max_new_tokens": limit,
            "temperature": 0.0 if greedy else sampling.temperature,
            "top_p": 1.0 if greedy else sampling.top_p,
            "top_k": -1 if greedy or sampling.top_k <= 0 else sampling.top_k,
            "min_p": 0.0 if greedy or sampling.min_p is None else sampling.min_p,
            "skip_special_tokens": False,
        }
        if self.stop_ids:
            params["stop_token_ids"] = self.stop_ids
        seed = self._seed_of(prompt)
        if seed is not None:
            params["sampling_seed"] = seed
        extra = dict(self._extra_body)
        params |= extra.pop("sampling_params", {})
        return {"input_ids": prompt, "sampling_params": params, "return_logprob": True, "logprob_start_len": -1} | extra

    def _read(self, found: dict[str, Any], meta: dict[str, Any]) -> tuple[list[int], list[float | None] | None]:
        # Log-probs are given with the id of each sampled token; output_ids is missing in some versions.
        pairs: Any = meta.get("output_token_logprobs")
        if isinstance(pairs, list) and pairs:
            rows = cast("list[Any]", pairs)
            return [int(row[1]) for row in rows], [row[0] for row in rows]
        ids: Any = found.get("output_ids")
        if not isinstance(ids, list):
            if "text" not in found:
                raise RequestRefused(f"the answer is not SGLang's: {found!r:.200}", status=0, retryable=False)
            raise no_ids(self.endpoint.names, "Use SGLang 0.4.4 or later, which gives output_token_logprobs.")
        return cast("list[int]", ids), None
