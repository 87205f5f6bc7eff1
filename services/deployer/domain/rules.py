"""The write rules of every kind the deployer owns.

Pure. Read next: rules_deployment.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.deployer.domain import rules_deployment, rules_instance, rules_pod
from services.deployer.domain.rules_deployment import Manifests
from shared.store.rules import WriteRules


def write_rules(manifests: Manifests) -> Mapping[str, WriteRules]:
    """Kind -> rules; `manifests` tells which files a resolved artifact has, as far as that was read."""
    return {"ModelDeployment": rules_deployment.rules(manifests), "Pod": rules_pod.RULES, **rules_instance.RULES}
