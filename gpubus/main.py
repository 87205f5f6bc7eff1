"""The `gpubus` command: every verb, its flags, and one sentence on stderr when it cannot.

Owns the flags only; each verb's module is imported when it runs, so `--help` and `down` are quick.
Read next: gpubus/up.py, gpubus/resources.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from gpubus.refusal import Refusal

app = typer.Typer(
    name="gpubus",
    help="Turns a heap of accelerators into served models: start it, look at it, use it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
dead_letters = typer.Typer(help="Messages no handler could take.", no_args_is_help=True, rich_markup_mode=None)
hub = typer.Typer(
    help="The local hub: models for hosts without a route to huggingface.co.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
node = typer.Typer(help="Hosts that join.", no_args_is_help=True, rich_markup_mode=None)
credentials = typer.Typer(help="Users of external NATS and Redis servers.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(hub, name="hub")
app.add_typer(node, name="node")
app.add_typer(credentials, name="credentials")

DataDirOption = Annotated[
    str, typer.Option("--data-dir", help="Default: GPUBUS_DATA_DIR, else ~/.local/share/gpubus.", show_default=False)
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace.")]
Files = Annotated[list[str], typer.Option("--filename", "-f", help="A YAML or JSON file; - is standard input.")]


@app.command()
def up(  # noqa: PLR0913 - the flags are the contract
    data_dir: DataDirOption = "",
    host: Annotated[str, typer.Option(help="Where the API listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Plain HTTP for SDKs; 0 picks a free port, for TLS too.")] = 8080,
    tls_port: Annotated[int | None, typer.Option(help="TLS for kubectl.", show_default="port + 1")] = None,
    runtime: Annotated[str, typer.Option(help="How this host runs Pods: process or simulated.")] = "process",
    fleet: Annotated[Path | None, typer.Option(help="File of simulated nodes to add.")] = None,
    nats: Annotated[str, typer.Option(help="A NATS server to use instead of the embedded one.")] = "",
    redis: Annotated[str, typer.Option(help="A Redis server to use instead of the embedded one.")] = "",
    listen: Annotated[str, typer.Option(help="Address[:port] on which other hosts may join, with TLS.")] = "",
    workers: Annotated[int, typer.Option(help="Gateway workers; 0 is one a core but one.")] = 0,
    detach: Annotated[bool, typer.Option("--detach", help="Return when everything answers.")] = False,  # noqa: FBT002
) -> None:
    """Start everything on this host."""
    from gpubus.datadir import resolve
    from gpubus.show_up import run
    from gpubus.up import UpOptions

    options = UpOptions(
        host=host, port=port, tls_port=tls_port, runtime=runtime, fleet=fleet, nats=nats, redis=redis, listen=listen,
        workers=workers,
    )  # fmt: skip
    raise typer.Exit(run(resolve(data_dir), options, detach=detach))


@app.command()
def down(data_dir: DataDirOption = "") -> None:
    """Stop everything, Pods first."""
    from gpubus.datadir import resolve
    from gpubus.down import down as stop

    where = resolve(data_dir)
    stopped = stop(where)
    for name in stopped.killed:
        print(f"{name} did not end in time and was killed")
    print(f"stopped {where.root}" if stopped.ran else f"not running: {where.root}")


@app.command()
def status(data_dir: DataDirOption = "") -> None:
    """Show the processes of the stack: pid, uptime, ready, memory. Exits 1 when it is not running."""
    from gpubus.datadir import resolve
    from gpubus.status import show

    raise typer.Exit(show(resolve(data_dir)))


@app.command()
def get(
    kind: Annotated[str, typer.Argument(help="KIND, KIND,KIND or KIND/NAME.")],
    name: Annotated[str, typer.Argument(show_default=False)] = "",
    namespace: Namespace = "default",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A")] = False,  # noqa: FBT002
    output: Annotated[str, typer.Option("--output", "-o", help="wide, json, yaml or name.")] = "",
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on with changes.")] = False,  # noqa: FBT002
    data_dir: DataDirOption = "",
) -> None:
    """Show resources."""
    from gpubus.resources import get as show

    show((kind, name), "" if all_namespaces else namespace, output, watch=watch, data_dir=data_dir)


@app.command()
def apply(
    filename: Files,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="For documents that name none.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only.")] = False,  # noqa: FBT002
    data_dir: DataDirOption = "",
) -> None:
    """Apply manifests, each document on its own."""
    from gpubus.resources import apply as put

    raise typer.Exit(put(filename, namespace, dry_run=dry_run, data_dir=data_dir))


@app.command()
def delete(
    words: Annotated[list[str] | None, typer.Argument(help="KIND NAME..., or KIND/NAME...", show_default=False)] = None,
    filename: Annotated[list[str] | None, typer.Option("--filename", "-f", help="What these files name.")] = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "",
    data_dir: DataDirOption = "",
) -> None:
    """Delete resources."""
    from gpubus.resources import delete as remove

    raise typer.Exit(remove(tuple(words or ()), filename or [], namespace, data_dir))


@app.command()
def describe(
    kind: Annotated[str, typer.Argument(help="KIND or KIND/NAME.")],
    name: Annotated[str, typer.Argument(show_default=False)] = "",
    namespace: Namespace = "default",
    data_dir: DataDirOption = "",
) -> None:
    """Show everything about one resource."""
    from gpubus.explain import describe as show

    show(kind, name, namespace, data_dir)


@app.command()
def why(
    workload: Annotated[str, typer.Argument(help="A workload, or the deployment or Pod it is for.")],
    namespace: Namespace = "default",
    data_dir: DataDirOption = "",
) -> None:
    """Say why a workload waits, or where it was admitted."""
    from gpubus.explain import why as explain

    explain(workload, namespace, data_dir)


@app.command()
def logs(
    pod: Annotated[str, typer.Argument(help="A Pod.")],
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,  # noqa: FBT002
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the run before.")] = False,  # noqa: FBT002
    tail: Annotated[int, typer.Option(help="How many last lines first.")] = 100,
    namespace: Namespace = "default",
    data_dir: DataDirOption = "",
) -> None:
    """Show what a Pod says."""
    from gpubus.explain import logs as show

    show(pod, namespace, follow=follow, previous=previous, lines=tail, data_dir=data_dir)


@app.command()
def simulate(filename: Files, namespace: Namespace = "default", data_dir: DataDirOption = "") -> None:
    """Say what would happen to these manifests now, writing nothing. Exits 1 when something would wait."""
    from gpubus.simulate import simulate as ask

    raise typer.Exit(ask(filename, namespace, data_dir))


@app.command()
def chat(
    model: Annotated[str, typer.Argument(help="A served model, as /v1/models names it.")],
    prompt: Annotated[str, typer.Option("--prompt", "-p", help="Answer this and end.")] = "",
    system: Annotated[str, typer.Option(help="System message.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Longest answer; 0 is the engine's own limit.")] = 0,
    data_dir: DataDirOption = "",
) -> None:
    """Talk to a model."""
    from gpubus.chat import chat as talk

    talk(model, prompt, system, max_tokens, data_dir)


@app.command()
def events(
    subject: Annotated[
        str, typer.Argument(help="`workload`, `workload.admitted`, or a whole subject.", show_default=False)
    ] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Subjects and envelopes as they are.")] = False,  # noqa: FBT002
    data_dir: DataDirOption = "",
) -> None:
    """Show facts as they happen."""
    from gpubus.events import tail

    tail(subject, raw=raw, data_dir=data_dir)


@dead_letters.command("list")
def dead_letters_list(
    service: Annotated[str, typer.Option(help="Only this service's.")] = "", data_dir: DataDirOption = ""
) -> None:
    """Show them, oldest first."""
    from gpubus.events import list_dead_letters

    list_dead_letters(service, data_dir)


@dead_letters.command("redrive")
def dead_letters_redrive(
    numbers: Annotated[list[int] | None, typer.Argument(show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every one that was not tried again yet.")] = False,  # noqa: FBT002
    data_dir: DataDirOption = "",
) -> None:
    """Give them to their handlers again."""
    from gpubus.events import redrive

    raise typer.Exit(redrive(numbers or [], everything=everything, data_dir=data_dir))


@hub.command("add")
def hub_add(
    directory: Annotated[Path, typer.Argument(help="Folder with the model's files.")],
    repo: Annotated[str, typer.Option(help="OWNER/NAME under which it is served.")],
    revision: Annotated[str, typer.Option(help="Branch or tag that will name this commit.")] = "main",
    data_dir: DataDirOption = "",
) -> None:
    """Put a folder into the local hub."""
    from gpubus.hub import add

    raise typer.Exit(add(directory, repo, revision, data_dir))


@node.command("credentials")
def node_credentials(
    name: Annotated[str, typer.Argument(help="The host's node name.")], data_dir: DataDirOption = ""
) -> None:
    """Print the credentials a host needs to join as NAME; redirect them into a file that only its root can read."""
    from gpubus.access import node_credentials as issue

    print(issue(name, data_dir), end="")


@credentials.command("export")
def credentials_export(data_dir: DataDirOption = "") -> None:
    """Print the NATS users and Redis ACLs to install on external servers."""
    from gpubus.access import export

    print(export(data_dir), end="")


@credentials.command("write", hidden=True)
def credentials_write(
    node_name: Annotated[str, typer.Option("--node", help="The node whose agents run in containers.")],
    data_dir: DataDirOption = "",
) -> None:
    """Write credentials and server configurations for docker-compose.yml."""
    from gpubus.access import write_for_containers
    from gpubus.datadir import resolve

    write_for_containers(resolve(data_dir), node_name)


@app.command()
def agent(
    join: Annotated[str, typer.Option(help="nats://HOST:PORT of the system to join.")],
    credentials: Annotated[Path, typer.Option(help="What `gpubus node credentials` printed.")],
    data_dir: DataDirOption = "",
    allow_process: Annotated[bool, typer.Option("--allow-process", help="Pods may be processes here.")] = False,  # noqa: FBT002
    detach: Annotated[bool, typer.Option("--detach", help="Return when the agents are ready.")] = False,  # noqa: FBT002
) -> None:
    """Add this host to a running system."""
    from gpubus.agent import run
    from gpubus.datadir import resolve

    raise typer.Exit(run(resolve(data_dir), join, credentials, allow_process=allow_process, detach=detach))


@app.command(hidden=True)
def migrate() -> None:
    """Declare streams and durables on the server of GPUBUS_NATS_URL."""
    from gpubus.migrate import run

    run()


def main() -> NoReturn:
    """Run the command line; a refusal is one sentence on stderr."""
    try:
        app()
    except Refusal as refusal:
        print(f"gpubus: {refusal.sentence}", file=sys.stderr)
        sys.exit(refusal.code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
