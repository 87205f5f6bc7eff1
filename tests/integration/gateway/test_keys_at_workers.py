"""What is answered about a key holds at the workers of this host: a made key opens at once, a dead one never again."""

import http.client
import json
from contextlib import contextmanager

import pytest

from tests.support.gateway import ADMIN_TOKEN
from tests.support.servers import LOOPBACK, free_port
from tests.support.wait import eventually_sync

KEYS = "/apis/gpubus.io/v1/namespaces/default/apikeys"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def workers(gateway):
    """Two of them, each on a port of its own so that a test knows which one answers."""
    ports = [free_port(), free_port()]
    children = [
        gateway.copy(f"worker-{port}", "services.gateway", "worker", GPUBUS_PORT=str(port)).start() for port in ports
    ]
    for child in children:
        child.ready()
    yield ports
    for child in children:
        child.end()


@contextmanager
def client(port):
    link = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    try:
        yield link
    finally:
        link.close()


def status(link, token, method="GET", path="/v1/models", body=None):
    link.request(method, path, body, {"Authorization": f"Bearer {token}"})
    response = link.getresponse()
    response.read()
    return response.status


def test_answers_about_keys_hold_at_every_worker(gateway, workers):
    """A race: without a confirmation about every third answer comes too early."""
    with client(workers[0]) as one, client(workers[1]) as other, gateway.connection() as api:
        for number in range(40):
            sent = json.dumps({"metadata": {"name": f"k{number}"}})
            headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}
            api.request("POST", KEYS, sent, headers)
            token = json.loads(api.getresponse().read())["status"]["token"]
            assert [status(link, token) for link in (one, other)] == [200, 200]

            api.request("DELETE", f"{KEYS}/k{number}", headers=headers)
            api.getresponse().read()
            assert [status(link, token) for link in (one, other)] == [401, 401]


def test_disabled_key_is_dead_at_once_and_lives_again(gateway, workers):
    token = gateway.new_key("switch", "model-user")

    with client(workers[0]) as link:
        for disabled, wanted in ((True, 401), (False, 200), (True, 401)):
            gateway.call("PATCH", f"{KEYS}/switch", {"spec": {"disabled": disabled}}, content=MERGE)
            assert status(link, token) == wanted


def test_key_of_models_alone_does_not_open_the_resource_api_through_a_worker(gateway, workers):
    token = gateway.new_key("narrow", "model-user")

    with client(workers[0]) as link:
        assert status(link, token) == 200
        assert status(link, token, path="/api/v1/namespaces/default/configmaps") == 403


def test_worker_that_hangs_holds_no_key_up_for_long(gateway, workers):
    hung = next(child for child in gateway.children if child.name == f"worker-{workers[1]}")
    hung.process.send_signal(19)
    try:
        token = gateway.new_key("meanwhile", "model-user")
        with client(workers[0]) as link:
            assert status(link, token) == 200
    finally:
        hung.process.send_signal(18)

    with client(workers[1]) as link:
        eventually_sync(lambda: status(link, token) == 200)


def test_deleted_key_stays_dead_while_the_gateway_process_is_away(gateway, workers):
    token = gateway.new_key("gone", "model-user")
    kept = gateway.new_key("kept-on", "model-user")
    worker = next(child for child in gateway.children if child.name == f"worker-{workers[0]}")
    gateway.call("DELETE", f"{KEYS}/gone")
    gateway.child.kill()
    try:
        with client(workers[0]) as link:
            assert [status(link, token), status(link, kept)] == [401, 200]
            link.request("GET", "/api/v1/namespaces", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
            answer = link.getresponse()
            body = json.loads(answer.read())
            assert (answer.status, body["kind"], body["reason"]) == (503, "Status", "ServiceUnavailable")
            assert answer.headers["Retry-After"] == "1"
        worker.kill()
        worker.start().ready()
        with client(workers[0]) as link:
            assert [status(link, token), status(link, kept)] == [401, 200]
    finally:
        gateway.child.start().ready()
