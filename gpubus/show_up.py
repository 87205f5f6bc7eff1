"""What `gpubus up` prints: one line a process as it becomes ready, what was repaired, where everything is.

Must not start anything itself. Read next: gpubus/up.py.
"""

from __future__ import annotations

from gpubus.datadir import DataDir
from gpubus.stack.launch import hold, interruptible
from gpubus.terminal import paint, tick
from gpubus.up import Running, UpOptions, start


def run(where: DataDir, options: UpOptions, *, detach: bool) -> int:
    """Bring the stack up; return at once when detached, else when it ends. The exit code.

    Raises:
        Refusal: it could not be brought up.
    """
    interruptible()
    print(paint(f"gpubus in {where.root}", "bold"), flush=True)
    running = start(where, options, lambda name: print(f"  {tick()} {name}", flush=True))
    for note in running.notes:
        print(f"  {paint('!', 'yellow')} {note}")
    print(f"\n{_summary(running)}", flush=True)
    if detach:
        print(running.prepared.url, flush=True)
        return 0
    print(f"{running.prepared.url}   {paint('Ctrl-C stops everything', 'dim')}", flush=True)
    print(hold(running.where, running.supervisor), flush=True)
    return 0


def _summary(running: Running) -> str:
    where = running.where
    return "\n".join(
        (
            f"ready in {running.seconds:.1f} s",
            f"  shell     . {where.env}",
            f"  kubectl   kubectl --kubeconfig {where.kubeconfig} get instancetypes",
            f"  logs      {where.logs}",
        )
    )
