from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from services.modelstore.domain import delivery, lifecycle
from services.modelstore.domain.progress import Progress
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
            {"metadata": {"name": name}, "status": {"models": [{"digest": digest, "state": state, "sizeBytes": 100}]}}
        )
        for name, state in (("n1", "Ready"), ("n2", "Downloading"), ("n3", "Failed"))
    ]
    copies = delivery.by_digest(stores)[digest]

    counted = delivery.counts(copies, lambda node, _: 58 if node == "n2" else 0)

    assert (counted.ready, counted.downloading, counted.failed, counted.downloading_percent) == (1, 1, 1, 55)
    assert delivery.counts(copies[:1], lambda *_: 0).downloading_percent is None


def test_progress_tells_each_step_once_and_forgets_what_ended():
    steps = []
    progress = Progress(lambda: steps.append(1))

    for there in (0, 4, 5, 6, 9, 10, 100):
        progress.tell("n1", "d", there, 100)
    progress.tell("n1", "e", 7, 100)
    progress.forget("n1", {"e"})

    assert len(steps) == 4
    assert (progress.of("n1", "d"), progress.of("n1", "e"), progress.of("n2", "e")) == (0, 7, 0)


def test_an_artifact_whose_bytes_are_on_a_node_already_is_ready_there_when_it_resolves():
    artifact = resolved()
    digest = artifact.status.resolved.manifest_digest
    held = delivery.observe(None, a_report(1, (digest, "Ready", "")), {}).store
    flying = delivery.observe(None, a_report(1, (digest, "Downloading", ""), node="n2"), {}).store

    told = delivery.ready_already(an_artifact("late"), digest, [held, flying])

    assert [(type(f), f.name, f.node) for f in told] == [(ArtifactReady, "late", "n1")]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([("../../etc/x", 3, SHA)], ResolveReason.INVALID_MANIFEST),
        ([("/x", 3, SHA)], ResolveReason.INVALID_MANIFEST),
        ([("\ud800", 3, SHA)], ResolveReason.INVALID_MANIFEST),
        ([("x", 10**30, SHA)], ResolveReason.INVALID_MANIFEST),
        ([("x", 3, "None")], ResolveReason.INVALID_MANIFEST),
        ([("x", 3, SHA), ("y", 4, SHA)], ResolveReason.INVALID_MANIFEST),
        ([(f"{n:0200}", 3, SHA) for n in range(20_000)], ResolveReason.INVALID_MANIFEST),
        ([], ResolveReason.EMPTY_MANIFEST),
    ],
)
def test_listings_that_cannot_be_delivered_are_refused_with_a_reason(files, reason):
    listing = Listing("c" * 40, tuple(ManifestFile(path, size, "sha256", digest) for path, size, digest in files))

    outcome = resolve(an_artifact().spec, listing)

    assert isinstance(outcome, Failure)
    assert outcome.reason == reason
    assert outcome.message.encode()


def test_patterns_decide_what_is_in_the_digest_and_the_commit_does_not():
    files = (FILE, ManifestFile("README.md", 1, "gitsha1", "b" * 40))
    alone = resolve(an_artifact().spec, Listing("c" * 40, (FILE,)))
    filtered = resolve(an_artifact(ignorePatterns=["*.md"]).spec, Listing("d" * 40, files))
    whole = resolve(an_artifact().spec, Listing("d" * 40, files))

    assert alone.manifest.digest == filtered.manifest.digest != whole.manifest.digest


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


@pytest.mark.parametrize(
    "digest",
    ["sha256:../../../../tmp/x", "sha256:" + "a" * 63, "SHA256:" + "a" * 64, "sha256:" + "A" * 64, f"sha256:{SHA}\n"],
)
def test_an_expected_digest_that_is_none_is_refused(digest):
    with pytest.raises(ValidationError):
        an_artifact(expectedDigest=digest)


@pytest.mark.parametrize("patterns", [["*"] * 33, ["x" * 257], [""]])
@pytest.mark.parametrize("field", ["allowPatterns", "ignorePatterns"])
def test_too_many_or_too_long_patterns_are_refused(field, patterns):
    with pytest.raises(ValidationError):
        an_artifact(**{field: patterns})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("repository", "../x"), ("repository", "o/n/x"), ("repository", "https://hub/o/n"), ("repository", "o/n@main"),
        ("repository", "o/n\n"), ("repository", "x" * 257), ("repository", ""), ("revision", "../x"),
        ("revision", "a b"), ("revision", "/x"), ("revision", "x" * 256), ("revision", "main\r\nX: 1"),
    ],
)  # fmt: skip
def test_a_source_that_names_no_repository_or_revision_is_refused(field, value):
    source = {"huggingFace": {"repository": "o/n", field: value}}
    with pytest.raises(ValidationError):
        ModelArtifact.model_validate({"metadata": {"name": "m"}, "spec": {"source": source}})


@pytest.mark.parametrize("field", ["allowPatterns", "ignorePatterns", "expectedDigest"])
@pytest.mark.parametrize(
    "source", [{"persistentVolumeClaim": {"claimName": "c"}}, {"image": {"reference": f"r@sha256:{SHA}"}}]
)
def test_only_hubs_take_patterns_and_digests(source, field):
    value = f"sha256:{SHA}" if field == "expectedDigest" else ["*.bin"]
    artifact = ModelArtifact.model_validate({"metadata": {"name": "m"}, "spec": {"source": source, field: value}})

    assert [c.field for c in causes(artifact, None, lambda *_: None)] == [f"spec.{field}"]


@pytest.mark.parametrize("path", ["/x", "../x", "a/../b", "a\\b", "a\nb"])
def test_a_claim_path_that_leaves_the_claim_is_refused(path):
    source = {"persistentVolumeClaim": {"claimName": "c", "path": path}}
    artifact = ModelArtifact.model_validate({"metadata": {"name": "m"}, "spec": {"source": source}})

    assert [c.field for c in causes(artifact, None, lambda *_: None)] == ["spec.source.persistentVolumeClaim.path"]
