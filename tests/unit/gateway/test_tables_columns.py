"""What kubectl prints: columns as the reference has them, phases from conditions, ages for people."""

from datetime import UTC, datetime, timedelta

import pytest

from services.gateway.domain.columns import age, columns_of, duration
from services.gateway.domain.phase import phase
from services.gateway.domain.view import metadata_only, shown
from services.gateway.routes.tables import table
from shared.resources.kinds import KINDS

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
MADE = "2026-06-01T11:58:00Z"


def condition(kind, status="True", reason=""):
    return {"type": kind, "status": status, "reason": reason}


def cells(kind, body, *, wide=False):
    body = {"metadata": {"name": "x", "creationTimestamp": MADE}, **body}
    return [column.read(body, NOW) for column in columns_of(kind) if wide or not column.wide]


def names(kind, *, wide=False):
    return [column.name.upper() for column in columns_of(kind) if wide or not column.wide]


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("InstanceType", ["NAME", "ENTRANCE", "UNIT(CPU/RAM)/STORAGE", "ACCELERATOR(EX/SH/SL/PT)", "CPU", "PHASE"]),
        (
            "InstanceTypeFlavor",
            [
                "NAME",
                "GENERALGROUP",
                "ACCELERATORGROUP",
                "ACCELERATABLE",
                "MANUFACTURER",
                "PRODUCT",
                "MEMORY",
                "CORES",
                "SLICEABLE",
            ],
        ),
        ("Devices", ["NAME"]),
        ("ModelArtifact", ["NAME", "SOURCE", "REVISION", "SIZE", "READY", "DOWNLOADING", "RESOLVED"]),
        ("NodeModelStore", ["NAME", "READY", "USED", "MODELS", "DOWNLOADING"]),
        ("ModelDeployment", ["NAME", "ENGINE", "ROLES", "PHASE", "ENDPOINT", "AGE"]),
        ("KVCacheBackend", ["NAME", "TYPE", "PHASE", "ENDPOINT", "CAPACITY", "AGE"]),
        ("KVCachePool", ["NAME", "QUOTA", "USAGE", "PHASE", "ENDPOINT", "AGE"]),
        ("KVCachePoolBinding", ["NAME", "POOL", "DOMAIN", "EFFECTIVE", "USAGE", "PHASE", "AGE"]),
        ("Pod", ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]),
        ("Workload", ["NAME", "QUEUE", "RESERVED IN", "ADMITTED", "FINISHED", "REASON", "AGE"]),
        ("Event", ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]),
    ],
)
def test_columns_are_the_references(kind, head):
    assert names(kind) == head


def test_instance_type_shows_partitions_when_wide():
    assert names("InstanceType", wide=True)[-1] == "PARTITIONS"


def test_instance_type_of_one_a10g_prints_the_references_example():
    view = {"capacity": 1, "remaining": 1, "onceMaxRequest": 1}
    body = {
        "spec": {"unitResources": {"cpu": "8", "ram": "64Gi"}, "localStorage": "100Gi"},
        "status": {
            "entrance": "gpustack-fnv64-c4680bb149644f1c",
            "accelerator": view,
            "acceleratorShared": {"remaining": 10, "onceMaxRequest": 10},
            "acceleratorSliced": {"remaining": 100, "onceMaxRequest": 100},
            "cpu": {"remaining": 40, "onceMaxRequest": 32},
            "conditions": [condition("Active")],
        },
    }

    assert cells("InstanceType", body)[1:] == [
        "gpustack-fnv64-c4680bb149644f1c",
        "8c/64Gi/100Gi",
        "1/1 10/10 100/100 0/0",
        "32/40",
        "Active",
    ]


def test_artifact_shows_twelve_characters_of_its_revision():
    body = {
        "spec": {"source": {"huggingFace": {"repository": "o/n"}}},
        "status": {
            "resolved": {"revision": "0123456789abcdef", "sizeBytes": 1536},
            "nodes": {"ready": 2, "downloading": 1},
            "conditions": [condition("Resolved")],
        },
    }

    assert cells("ModelArtifact", body)[1:] == ["o/n", "0123456789ab", "1.5 KiB", 2, 1, "True"]


@pytest.mark.parametrize(
    ("status", "shown_as"),
    [
        ({}, "Pending"),
        ({"conditions": [condition("PodScheduled", "False", "NoCapacity")]}, "NoCapacity"),
        ({"containerStatuses": [{"state": {"running": {"startedAt": MADE}}}]}, "Running"),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}]},
            "CrashLoopBackOff",
        ),
        ({"containerStatuses": [{"state": {"terminated": {"reason": "Error", "exitCode": 1}}}]}, "Error"),
        ({"finished": "Succeeded"}, "Completed"),
        ({"finished": "Failed"}, "Failed"),
        ({"conditions": [condition("Ready", "Unknown")]}, "Unknown"),
    ],
)
def test_pod_status_says_what_is_the_matter(status, shown_as):
    assert cells("Pod", {"spec": {"containers": [{}]}, "status": status})[2] == shown_as


@pytest.mark.parametrize(
    ("kind", "body", "word"),
    [
        ("Namespace", {}, "Active"),
        ("Namespace", {"metadata": {"deletionTimestamp": MADE}}, "Terminating"),
        ("Node", {"status": {"conditions": [condition("Ready")]}}, "Ready"),
        (
            "Node",
            {"status": {"conditions": [condition("Ready")]}, "spec": {"unschedulable": True}},
            "Ready,SchedulingDisabled",
        ),
        ("Node", {"status": {"conditions": [condition("Ready", "Unknown")]}}, "Unknown"),
        ("InstanceType", {}, "Activating"),
        ("InstanceType", {"spec": {"inactive": True}, "status": {"conditions": [condition("Active")]}}, "Inactive"),
        ("Workload", {}, "Pending"),
        ("Workload", {"status": {"conditions": [condition("QuotaReserved"), condition("Admitted")]}}, "Admitted"),
        ("Workload", {"status": {"conditions": [condition("Admitted"), condition("Finished")]}}, "Finished"),
        ("ModelArtifact", {}, "Pending"),
        ("ModelArtifact", {"status": {"conditions": [condition("Resolved", "Unknown")]}}, "Resolving"),
        ("ModelArtifact", {"status": {"conditions": [condition("Resolved", "False", "AccessDenied")]}}, "Failed"),
        ("ModelArtifact", {"status": {"resolved": {"revision": "x"}}}, "Resolved"),
        ("ModelArtifact", {"status": {"resolved": {"revision": "x"}, "nodes": {"ready": 1}}}, "Ready"),
        ("ModelDeployment", {}, "Starting"),
        ("ModelDeployment", {"status": {"conditions": [condition("Available")]}}, "Ready"),
        ("ModelDeployment", {"status": {"roles": [{"ready": 1}]}}, "Degraded"),
        ("Instance", {"status": {"conditions": [condition("Ready", "False", "NotServedYet")]}}, "NotServedYet"),
        ("ConfigMap", {}, ""),
    ],
)
def test_phase_is_one_word_from_the_conditions(kind, body, word):
    assert phase(kind, body) == word


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (130, "2m10s"), (599, "9m59s"), (600, "10m"), (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"),
     (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"), (49 * 3600, "2d1h"), (9 * 86400, "9d"), (800 * 86400, "2y70d")],
)  # fmt: skip
def test_duration_reads_like_kubectls(seconds, text):
    assert duration(seconds) == text


def test_age_of_the_future_is_zero_and_of_garbage_unknown():
    assert age((NOW + timedelta(hours=1)).isoformat(), NOW) == "0s"
    assert age("yesterday", NOW) == "<unknown>"
    assert age(None, NOW) == "<unknown>"


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(
    "body", [{}, {"spec": {}, "status": {}}, {"spec": None, "status": None, "metadata": {}}, {"data": None}]
)
def test_columns_of_half_an_object_are_still_cells(kind, body):
    found = table(kind, [shown(KINDS[kind], body)], now=NOW)

    assert len(found["rows"][0]["cells"]) == len(found["columnDefinitions"])
    assert all(isinstance(cell, str | int) for cell in found["rows"][0]["cells"])


def test_rows_carry_as_much_of_the_object_as_asked():
    body = {"metadata": {"name": "x"}, "data": {"a": "1"}}

    kept = {
        include: table("ConfigMap", [body], now=NOW, include=include)["rows"][0]["object"]
        for include in ("None", "Metadata", "Object")
    }

    assert kept == {"None": None, "Metadata": metadata_only(body), "Object": body}


def test_secret_is_shown_without_values_to_those_who_may_not_write_it():
    body = {"metadata": {"name": "s", "annotations": {"last": "c2VjcmV0"}}, "data": {"a": "c2VjcmV0"}}

    seen = shown(KINDS["Secret"], body, secrets=False)

    assert seen["data"] == {"a": ""}
    assert "c2VjcmV0" not in str(seen)
    assert shown(KINDS["Secret"], body, secrets=True)["data"] == body["data"]


def test_hash_of_a_key_is_shown_to_nobody():
    body = {"spec": {"hash": "h" * 64, "role": "viewer"}}

    assert shown(KINDS["ApiKey"], body)["spec"] == {"role": "viewer"}


def test_setting_shows_what_is_in_force():
    body = {"metadata": {"name": "model-store-peer-sync"}, "spec": {"value": "false"}}

    assert shown(KINDS["Setting"], body)["status"] == {"value": "false", "default": "true"}


def test_password_of_a_registry_is_shown_to_those_who_may_write_it():
    body = {
        "metadata": {"name": "r", "annotations": {"last": "geheim"}},
        "spec": {"registry": "r.io", "password": "geheim"},
    }

    seen = shown(KINDS["InstanceImagePullSecret"], body, secrets=False)

    assert "geheim" not in str(seen)
    assert seen["spec"]["registry"] == "r.io"
    assert shown(KINDS["InstanceImagePullSecret"], body, secrets=True)["spec"] == body["spec"]


def test_empty_metadata_is_left_out():
    body = {"metadata": {"name": "n", "namespace": "", "labels": {}, "annotations": {"a": "b"}, "finalizers": []}}

    assert shown(KINDS["Node"], body)["metadata"] == {"name": "n", "annotations": {"a": "b"}}
    assert body["metadata"]["labels"] == {}


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({}, "Active"),
        ({"expires": "2000-01-01T00:00:00Z"}, "Expired"),
        ({"expires": "2000-01-01T00:00:00"}, "Expired"),
        ({"expires": "2900-01-01T00:00:00Z"}, "Active"),
        ({"expires": "2000-01-01T00:00:00Z", "disabled": True}, "Disabled"),
    ],
)
def test_key_says_whether_it_still_opens(spec, word):
    row = table("ApiKey", [{"metadata": {"name": "k"}, "spec": spec}], now=NOW)

    assert row["rows"][0]["cells"][[c["name"] for c in row["columnDefinitions"]].index("Phase")] == word


def test_pod_runs_before_anybody_knows_since_when():
    body = {"status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}}

    assert shown(KINDS["Pod"], body)["status"]["phase"] == "Running"
