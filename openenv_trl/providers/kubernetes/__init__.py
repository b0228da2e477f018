"""Environment servers on a Kubernetes cluster: a Job each, watched, and gone by themselves when their owner is.

Needs the extra ``kubernetes``: ``pip install 'openenv-trl[kubernetes]'``.
"""

from __future__ import annotations

from openenv_trl.providers.kubernetes.provider import KubernetesProvider
from openenv_trl.providers.kubernetes.spec import KubernetesSpec, Toleration

__all__ = ["KubernetesProvider", "KubernetesSpec", "Toleration"]
