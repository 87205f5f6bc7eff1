import pytest
import yaml

from gpubus.fleet_file import expand, load, parse
from shared.errors import GpubusError, InvalidArgument, Malformed

EXAMPLE = """
hub: simulated
linkMiBps: 16
engineStartSeconds: 0.5
modelSize: 256Mi
nodes:
  - name: a10g
    count: 2
    labels: {topology.kubernetes.io/zone: z1}
    os: linux
    arch: amd64
    cpu: 32
    memory: 128Gi
    devices:
      - {manufacturer: nvidia, product: NVIDIA A10G, memory: 23028Mi, cores: 80, count: 4}
    rdma: 4
  - {name: plain, cpu: 500m, memory: 1Gi}
faults:
  - {node: a10g-1, device: 2, unhealthy: xid 48}
  - {node: a10g-1, device: 3, missing: true}
  - {node: plain, silent: true}
"""


def test_the_documented_file_is_read():
    fleet = parse(yaml.safe_load(EXAMPLE))
    plans = {plan.name: plan for plan in expand(fleet)}

    assert list(plans) == ["a10g-0", "a10g-1", "plain"]
    assert (fleet.link_mi_bps, fleet.engine_start_seconds, fleet.model_size, fleet.hub) == (
        16,
        0.5,
        "256Mi",
        "simulated",
    )
    assert plans["a10g-0"].cpu_milli == 32000
    assert plans["a10g-0"].memory_bytes == 128 << 30
    assert (plans["a10g-1"].unhealthy, plans["a10g-1"].missing) == ({2: "xid 48"}, frozenset({3}))
    assert (plans["a10g-0"].unhealthy, plans["a10g-0"].silent) == ({}, False)
    assert (plans["plain"].cpu_milli, plans["plain"].silent) == (500, True)


CARD = {"manufacturer": "nvidia", "product": "NVIDIA A10G", "memory": "23028Mi"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nodes": []}, "nodes"),
        ({"nodes": None}, "nodes"),
        ({"hub": "real"}, "hub"),
        ({"linkMiBps": -1}, "linkMiBps"),
        ({"linkMibps": 1}, "linkMibps"),
        ({"engineStartSeconds": -1}, "engineStartSeconds"),
        ({"modelSize": "1GB"}, "modelSize"),
        ({"nodes": [{}]}, "nodes[0].name"),
        ({"nodes": [{"name": "A"}]}, "nodes[0].name"),
        ({"nodes": [{"name": "fleet"}]}, "nodes[0].name"),
        ({"nodes": [{"name": "a", "count": -1}]}, "nodes[0].count"),
        ({"nodes": [{"name": "a", "count": "2"}]}, "nodes[0].count"),
        ({"nodes": [{"name": "a", "count": 1.5}]}, "nodes[0].count"),
        ({"nodes": [{"name": "a", "count": 1001}]}, "nodes[0].count"),
        ({"nodes": [{"name": "a", "count": 600}, {"name": "b", "count": 600}]}, "nodes"),
        ({"nodes": [{"name": "a", "count": 2}, {"name": "a-1"}]}, "nodes[1].name"),
        ({"nodes": [{"name": "a", "cpu": 0}]}, "nodes[0].cpu"),
        ({"nodes": [{"name": "a", "memory": "8GB"}]}, "nodes[0].memory"),
        ({"nodes": [{"name": "a", "memory": "-1"}]}, "nodes[0].memory"),
        ({"nodes": [{"name": "a", "memory": "1500m"}]}, "nodes[0].memory"),
        ({"nodes": [{"name": "a", "os": "plan9"}]}, "nodes[0].os"),
        ({"nodes": [{"name": "a", "labels": {"x": True}}]}, "nodes[0].labels.x"),
        ({"nodes": [{"name": "a", "labels": {"x": "a b"}}]}, "nodes[0].labels[x]"),
        ({"nodes": [{"name": "a", "gpus": 4}]}, "nodes[0].gpus"),
        ({"nodes": [{"name": "a", "devices": [{**CARD, "manufacturer": "acme"}]}]}, "nodes[0].devices[0].manufacturer"),
        ({"nodes": [{"name": "a", "devices": [{**CARD, "count": 0}]}]}, "nodes[0].devices[0].count"),
        ({"nodes": [{"name": "a", "devices": [{**CARD, "memory": "0"}]}]}, "nodes[0].devices[0].memory"),
        ({"nodes": [{"name": "a", "devices": [{"manufacturer": "nvidia", "memory": "1Gi"}]}]}, "nodes[0].devices[0].product"),
        ({"faults": [{"node": "b", "silent": True}]}, "faults[0].node"),
        ({"faults": [{"node": "a", "missing": True}]}, "faults[0].device"),
        ({"faults": [{"node": "a", "device": 0, "missing": True}]}, "faults[0].device"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_field(change, field):
    with pytest.raises((InvalidArgument, Malformed)) as refused:
        parse({"nodes": [{"name": "a"}], **change})

    assert field in [cause.field for cause in refused.value.causes]
    assert field in str(refused.value)


@pytest.mark.parametrize("body", [None, [], "nodes", 7])
def test_a_file_that_is_no_mapping_is_refused(body):
    with pytest.raises(Malformed):
        parse(body)


def test_the_path_is_in_the_sentence(tmp_path):
    for name, text in (("torn.yaml", "nodes: [\n"), ("wrong.yaml", "nodes: []\n")):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(GpubusError, match=name):
            load(path)
    with pytest.raises(InvalidArgument, match=r"missing\.yaml"):
        load(tmp_path / "missing.yaml")
