from datetime import UTC, datetime

import pytest

from services.modelstore.domain import delivery, lifecycle
from services.modelstore.domain.reasons import ResolveReason, deliver_pause, resolve_pause
from services.modelstore.domain.revision import Failure, Listing, Resolution, resolve
from services.modelstore.domain.rules import causes, facts
from shared.events.artifact import ArtifactDelivering, ArtifactEvicted, ArtifactFailed, ArtifactReady
from shared.manifest import ManifestFile
from shared.reports import ModelsReported, ModelState
from shared.resources.artifact import ModelArtifact, NodeModelStore
from shared.resources.workload import Workload

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SHA = "a" * 64
FILE = ManifestFile("model.gguf", 3, "sha256", SHA)


def an_artifact(name="m", status=None, **spec):
    source = {"huggingFace": {"repository": "o/n"}}
    return ModelArtifact.model_validate(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
            "spec": {"source": source, **spec},
            "status": status or {},
        }
    )


def resolved(name="m"):
    outcome = resolve(an_artifact(name).spec, Listing("c" * 40, (FILE,)))
    assert isinstance(outcome, Resolution)
    decision = lifecycle.resolved(an_artifact(name), outcome, NOW)
    assert decision.state is not None
    return decision.state


def a_workload(artifact="m", node="n1", *, finished=False):
    status = (
        {"admission": {"clusterQueue": "q", "podSetAssignments": [{"nodeName": node, "pool": "p"}]}} if node else {}
    )
    if finished:
        status["conditions"] = [{"type": "Finished", "status": "True"}]
    template = {"spec": {"containers": [{"name": "c"}]}}
    return Workload.model_validate(
        {
            "metadata": {"name": "w", "namespace": "default"},
            "spec": {"queueName": "q", "podSets": [{"template": template}], "artifact": artifact},
            "status": status,
        }
    )


def a_report(sequence, *states, node="n1"):
    models = [ModelState(digest=d, state=s, size_bytes=3, reason=r) for d, s, r in states]
    return ModelsReported(node=node, incarnation="i", sequence=sequence, models=models)


def test_a_node_should_hold_what_live_workloads_there_need():
    artifact = resolved()
    artifacts = {("default", "m"): artifact}
    workloads = [a_workload(), a_workload(node="n2"), a_workload(finished=True, node="n3"), a_workload(artifact="x")]

    assert list(delivery.wanted_on("n1", workloads, artifacts).values()) == [artifact]
    assert delivery.wanted_on("n3", workloads, artifacts) == {}
    assert delivery.nodes_wanting("default", "m", workloads) == {"n1", "n2"}


def test_an_unresolved_artifact_is_not_delivered():
    assert delivery.wanted_on("n1", [a_workload()], {("default", "m"): an_artifact()}) == {}


def test_a_copy_that_becomes_ready_is_one_fact_per_artifact_of_its_digest():
    one, two = resolved("m"), resolved("k")
    digest = one.status.resolved.manifest_digest
    first = delivery.observe(None, a_report(1, (digest, "Downloading", "")), {digest: [one, two]})
    assert first.store is not None

    second = delivery.observe(first.store, a_report(2, (digest, "Ready", "")), {digest: [one, two]})

    assert [type(f) for f in first.facts] == [ArtifactDelivering, ArtifactDelivering]
    assert [(type(f), f.name) for f in second.facts] == [(ArtifactReady, "m"), (ArtifactReady, "k")]
    assert second.digests == {digest}


@pytest.mark.parametrize("sequence", [1, 2])
def test_an_old_or_repeated_report_changes_nothing(sequence):
    artifact = resolved()
    digest = artifact.status.resolved.manifest_digest
    held = delivery.observe(None, a_report(2, (digest, "Ready", "")), {digest: [artifact]}).store

    again = delivery.observe(held, a_report(sequence, (digest, "Failed", "x")), {digest: [artifact]})

    assert again.store is None
    assert again.facts == ()


def test_a_newer_report_that_says_the_same_tells_no_fact():
    artifact = resolved()
    digest = artifact.status.resolved.manifest_digest
    held = delivery.observe(None, a_report(1, (digest, "Ready", "")), {digest: [artifact]}).store

    assert delivery.observe(held, a_report(2, (digest, "Ready", "")), {digest: [artifact]}).facts == ()


def test_failure_and_eviction_are_facts():
    artifact = resolved()
    digest = artifact.status.resolved.manifest_digest
    failed = delivery.observe(None, a_report(1, (digest, "Failed", "IntegrityMismatch")), {digest: [artifact]})
    gone = delivery.observe(failed.store, a_report(2), {digest: [artifact]})

    assert isinstance(failed.facts[0], ArtifactFailed)
    assert isinstance(gone.facts[0], ArtifactEvicted)


def test_copies_are_counted_in_steps_of_five_percent():
    digest = "sha256:" + SHA
    stores = [
        NodeModelStore.model_validate(
            {"status": {"models": [{"digest": digest, "state": s, "sizeBytes": 100, "downloadedBytes": b}]}}
        )
        for s, b in (("Ready", 100), ("Downloading", 58), ("Failed", 0))
    ]

    counted = delivery.counts(digest, stores)

    assert (counted.ready, counted.downloading, counted.failed, counted.downloading_percent) == (1, 1, 1, 55)
    assert delivery.counts(digest, stores[:1]).downloading_percent is None


def test_resolution_refuses_masked_hashes_empty_manifests_and_another_digest():
    listing = Listing("c" * 40, (ManifestFile("model.gguf", 3, "sha256", "*" * 64),))
    masked = resolve(an_artifact().spec, listing)
    empty = resolve(an_artifact(allowPatterns=["*.bin"]).spec, Listing("c" * 40, (FILE,)))
    other = resolve(an_artifact(expectedDigest="sha256:" + "0" * 64).spec, Listing("c" * 40, (FILE,)))

    assert [f.reason for f in (masked, empty, other) if isinstance(f, Failure)] == [
        ResolveReason.ACCESS_DENIED,
        ResolveReason.EMPTY_MANIFEST,
        ResolveReason.DIGEST_MISMATCH,
    ]


def test_the_same_refusal_again_writes_nothing():
    failure = Failure(ResolveReason.ACCESS_DENIED, "no")
    first = lifecycle.refused(an_artifact(), failure, NOW)
    assert first.state is not None

    again = lifecycle.refused(first.state, failure, NOW)

    assert len(first.facts) == 1
    assert again.state is None
    assert again.facts == ()


def test_sources_that_are_not_served_say_so():
    artifact = ModelArtifact.model_validate(
        {"metadata": {"name": "m"}, "spec": {"source": {"modelScope": {"repository": "o/n"}}}}
    )

    decision = lifecycle.not_served(artifact, NOW)

    assert decision.reason == ResolveReason.NOT_SERVED_YET


def test_spec_is_immutable_and_every_changed_field_is_named():
    old, new = an_artifact(), an_artifact(allowPatterns=["*.gguf"])

    found = causes(new, old, lambda *_: None)

    assert [c.field for c in found] == ["spec.allowPatterns"]


def test_an_artifact_in_use_is_held_and_one_that_nobody_uses_goes():
    artifact = ModelArtifact.model_validate(
        {
            "metadata": {"name": "m", "finalizers": [lifecycle.FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"source": {"huggingFace": {"repository": "o/n"}}},
        }
    )
    user = {"spec": {"model": {"name": "x", "artifactRef": {"name": "m"}}}}

    assert not lifecycle.may_go(artifact, [user])
    assert lifecycle.may_go(artifact, [{"spec": {"model": {"name": "x"}}}])
    assert lifecycle.without_finalizer(artifact).metadata.finalizers == []


def test_applied_and_removed_are_told_once():
    artifact = an_artifact()

    assert len(facts(None, artifact)) == 1
    assert facts(artifact, artifact) == ()
    assert len(facts(artifact, None)) == 1


def test_backoff_doubles_to_its_limit():
    assert [resolve_pause("SourceUnavailable", n) for n in (1, 2, 3, 50)] == [2.0, 4.0, 8.0, 60.0]
    assert [deliver_pause("IntegrityMismatch", n) for n in (1, 2, 50)] == [60.0, 120.0, 3600.0]
