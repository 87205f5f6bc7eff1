"""What a Pod asks for, and which requests are refused by field."""

import pytest

from services.scheduler.domain.request import read_pod, read_workload
from shared.resources.workload import WorkloadSpec
from tests.unit.scheduler.builders import GPU, a_pod, limits

AT = "spec.containers[0].resources"


def causes(*containers, **spec):
    return [(cause.field, cause.message) for cause in read_pod(a_pod(*containers, **spec), "spec")[1]]


def request(*containers, **spec):
    found, wrong = read_pod(a_pod(*containers, **spec), "spec")
    assert wrong == []
    return found


@pytest.mark.parametrize(
    ("text", "count"),
    [(1, 1), ("1", 1), ("1.0", 1), ("+1", 1), ("1e0", 1), ("1000m", 1), ("3000m", 3), ("1k", 1000), ("0", 0)],
)
def test_card_count_is_a_kubernetes_quantity_that_is_whole(text, count):
    assert request(limits(gpu=text)).cards == count


@pytest.mark.parametrize("text", ["0.5", "0.4", "1500m", "100m"])
def test_part_of_a_card_is_refused_and_points_to_slices(text):
    assert causes(limits(gpu=text)) == [
        (f"{AT}.limits[{GPU}]", f"{text} is not a whole number; for a part of a card ask for a slice")
    ]


def test_requests_that_differ_from_limits_are_refused_and_name_the_limit():
    assert causes({"limits": {GPU: "8"}, "requests": {GPU: "6"}}) == [
        (f"{AT}.requests[{GPU}]", "is 6, must equal the limit 8")
    ]


def test_equal_requests_and_limits_written_differently_are_accepted():
    assert request({"limits": {GPU: "1"}, "requests": {GPU: "1000m"}}).cards == 1


def test_requests_without_limits_reserve_no_cards():
    assert causes({"requests": {GPU: "1"}})[0][0] == f"{AT}.limits[{GPU}]"


def test_two_manufacturers_in_one_pod_are_refused():
    assert causes(limits(gpu=1), {"limits": {"amd.com/gpu": 1}}) == [
        ("spec", "cards of one manufacturer and form per Pod, found [amd nvidia]")
    ]


def test_two_forms_in_one_pod_are_refused():
    found = causes(limits(gpu=1), {"limits": {f"{GPU}.sliced": 1, f"{GPU}.sliced.memory-percentage": 20}})

    assert found == [("spec", "cards of one manufacturer and form per Pod, found [exclusive sliced]")]


def test_cards_in_init_and_app_containers_are_refused():
    init = [{"name": "i", "resources": limits(gpu=1)}]

    assert causes(limits(gpu=1), initContainers=init)[0][0] == "spec.initContainers"


def test_cards_in_an_init_container_alone_are_charged_once():
    init = [{"name": "i", "resources": limits(gpu=2)}, {"name": "j", "resources": limits(gpu=1)}]

    assert request(initContainers=init).cards == 2


def test_card_on_a_restarting_sidecar_is_refused():
    init = [{"name": "i", "restartPolicy": "Always", "resources": limits(gpu=1)}]

    assert causes(initContainers=init)[0][0] == f"spec.initContainers[0].resources.limits[{GPU}]"


def test_cpu_and_memory_are_what_kubernetes_would_charge():
    init = [
        {"name": "side", "restartPolicy": "Always", "resources": limits(cpu="100m", memory="1Gi")},
        {"name": "start", "resources": limits(cpu="3", memory="1Gi")},
    ]
    found = request(
        {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "500m"}}, limits(cpu="1"), initContainers=init
    )

    assert (found.cpu_milli, found.memory_bytes) == (3100, 5 * 1024**3)


def test_request_over_its_limit_is_refused():
    assert causes({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}) == [
        (f"{AT}.requests[cpu]", "is 2, must not be over the limit 1")
    ]


def test_standard_looking_key_that_is_none_is_refused():
    assert causes(limits(gpus=1)) == [
        (f"{AT}.limits[gpus]", "is no standard resource; extended ones are written vendor/name")
    ]


def test_unknown_vendor_key_is_kept_so_that_the_reason_can_name_it():
    assert request({"limits": {GPU: 1, "nvidia.com/gpumem": 5000}}).unknown == ("nvidia.com/gpumem",)


@pytest.mark.parametrize(
    ("limit", "word"),
    [
        ({f"{GPU}.shared": 1}, "shared"),
        ({f"{GPU}.sliced": 1, f"{GPU}.sliced.memory-percentage": 20}, "sliced"),
        ({f"{GPU}.partitioned": 1, f"{GPU}.partitioned.mig-3g.40gb": 1}, "partitioned"),
        ({"device.gpustack.ai/rdma": 1}, "rdma"),
    ],
)
def test_forms_that_are_not_served_yet_are_recognised(limit, word):
    found = request({"limits": limit})

    assert word in found.not_served
    assert found.cards == 0


@pytest.mark.parametrize("kind", ["nodeAffinity", "podAffinity", "podAntiAffinity"])
def test_required_affinity_is_not_ignored_in_silence(kind):
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}

    assert kind in request(affinity=affinity).not_served


def test_preferred_affinity_does_not_keep_a_pod_waiting():
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}

    assert request(affinity=affinity).not_served == ""


def test_workload_of_several_pods_is_not_served_yet():
    pod = {"containers": [{"name": "c", "resources": limits(gpu=1)}]}
    spec = WorkloadSpec.model_validate({"queueName": "q", "podSets": [{"count": 3, "template": {"spec": pod}}]})

    found, wrong = read_workload(spec)

    assert wrong == []
    assert "3 Pods" in found.not_served


def test_cause_of_a_workload_names_the_whole_path():
    pod = {"containers": [{"name": "c", "resources": limits(gpu="0.5")}]}
    spec = WorkloadSpec.model_validate({"queueName": "q", "podSets": [{"template": {"spec": pod}}]})

    assert read_workload(spec)[1][0].field == f"spec.podSets[0].template.{AT}.limits[{GPU}]"


def test_equal_requests_are_one_class_whatever_their_spelling():
    first = request(limits(gpu="1", memory="1Gi"), nodeSelector={"a": "1", "b": "2"})
    second = request(limits(gpu=1, memory="1024Mi"), nodeSelector={"b": "2", "a": "1"})

    assert first == second
    assert hash(first) == hash(second)
