"""Runs one llama.cpp server in this process: the embedded one (PyPI xllamacpp), else a `llama-server` of the host.

A child process of its own, because a failed assertion in the engine ends the process. Takes llama-server's flags, a
few of them; the host's binary gets all that were given. Must not import anything of the platform.
Read next: ../domain/engine_llamacpp.py, which writes its command line.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from typing import Any

CONTEXT, SLOTS = 8192, 4
"""Tokens shared by all requests, and requests at once; a model's own context may be more than the host can hold."""
_POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}


def parser() -> argparse.ArgumentParser:
    """The flags that the embedded server takes."""
    flags = argparse.ArgumentParser(prog="llamacpp", allow_abbrev=False)
    flags.add_argument("--model", "-m", required=True)
    flags.add_argument("--alias", "-a", default="")
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=8080)
    flags.add_argument("--threads", "-t", type=int, default=1)
    flags.add_argument("--threads-http", type=int, default=-1)
    flags.add_argument("--ctx-size", "-c", type=int, default=CONTEXT, help="0: the model's own")
    flags.add_argument("--parallel", "-np", type=int, default=SLOTS)
    flags.add_argument("--batch-size", "-b", type=int, default=2048)
    flags.add_argument("--ubatch-size", "-ub", type=int, default=512)
    flags.add_argument("--n-gpu-layers", "--gpu-layers", "-ngl", type=int, default=-1)
    flags.add_argument("--embeddings", "--embedding", action="store_true")
    flags.add_argument("--pooling", choices=sorted(_POOLING), default=None)
    flags.add_argument("--slot-save-path", default="")
    flags.add_argument("--no-warmup", action="store_true")
    flags.add_argument("--binary", default="", help="run this llama-server instead of the embedded one")
    return flags


def main(argv: Sequence[str]) -> int:
    """Serve until a signal; the exit status."""
    options, others = parser().parse_known_args(argv)
    if not os.path.isfile(options.model):  # noqa: PTH113 - no imports beside what is needed
        sys.stderr.write(f"the model file {options.model} does not exist\n")
        return 2
    binary = options.binary or ("" if _embedded() else shutil.which("llama-server") or "")
    if binary:
        os.execvp(binary, [binary, *_without(argv, "--binary")])  # noqa: S606 - no shell is wanted
    if not _embedded():
        sys.stderr.write("neither the Python package xllamacpp nor a llama-server on PATH is there; install one\n")
        return 3
    if others:
        parser().error(f"unknown arguments: {' '.join(others)}")
    return _serve(options)


def _serve(options: argparse.Namespace) -> int:
    import xllamacpp

    stop = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)  # before the engine's threads, which inherit it
    server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), options))
    sys.stderr.write(f"serving {options.alias or options.model} on {server.listening_address}\n")
    number = signal.sigwait(stop)
    sys.stderr.flush()
    os._exit(128 + number)  # the engine's own end waits for idle keep-alive connections


def _parameters(params: Any, options: argparse.Namespace) -> Any:
    params.model.path = options.model
    params.model_alias = {options.alias} if options.alias else set()
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size
    params.n_parallel = options.parallel
    params.kv_unified = True
    params.n_batch, params.n_ubatch = options.batch_size, options.ubatch_size
    params.n_gpu_layers = options.n_gpu_layers
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.n_threads_http = options.threads_http
    params.endpoint_metrics = params.endpoint_props = params.endpoint_slots = True
    params.ui = False
    params.warmup = not options.no_warmup
    if options.slot_save_path:
        params.slot_save_path = options.slot_save_path
    if options.embeddings:
        params.embedding = True
    if options.pooling or options.embeddings:
        params.pooling_type = _pooling(type(params.pooling_type), options.pooling or "mean")
    return params


def _pooling(kind: Any, name: str) -> Any:
    value = _POOLING[name]
    return value if kind is int else kind(value)


def _embedded() -> bool:
    from importlib.util import find_spec

    return find_spec("xllamacpp") is not None


def _without(argv: Sequence[str], flag: str) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in argv:
        if skip:
            skip = False
        elif word == flag:
            skip = True
        elif not word.startswith(f"{flag}="):
            kept.append(word)
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
