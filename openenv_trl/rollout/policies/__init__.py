"""Policies that ask an inference server over HTTP: token ids in and out, or messages in and out."""

from openenv_trl.rollout.policies.chat import ChatPolicy
from openenv_trl.rollout.policies.llama_cpp import LlamaCppPolicy
from openenv_trl.rollout.policies.settings import EndpointSettings
from openenv_trl.rollout.policies.sglang import SglangPolicy
from openenv_trl.rollout.policies.token_server import TokenServerPolicy
from openenv_trl.rollout.policies.vllm import VllmPolicy

__all__ = [
    "ChatPolicy",
    "EndpointSettings",
    "LlamaCppPolicy",
    "SglangPolicy",
    "TokenServerPolicy",
    "VllmPolicy",
]
