"""How the demo looks: colours, a bar and a streamed answer on a terminal; plain lines elsewhere.

Plain: no colour or cursor codes, one line a fact, progress every tenth, the answer on one line, never a prompt.
Must not decide what happens. Read next: gpubus/demo/story.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from gpubus.facts import FactLine, size
from gpubus.terminal import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_STEP = 10
_GOOD = frozenset({"ready", "available", "admitted", "resolved", "formed", "joined", "found"})
_BAD = frozenset({"failed", "lost", "degraded", "unready"})


class Screen(Protocol):
    """What the story needs to show."""

    def title(self, text: str) -> None:
        """The beginning of a part."""

    def step(self, name: str, text: str) -> None:
        """Something that this command did."""

    def fact(self, line: FactLine) -> None:
        """Something that happened in the system."""

    def progress(self, done: int, total: int) -> None:
        """Bytes of the weights; called with done == total at the end."""

    def answer(self, who: str, pieces: Iterable[str]) -> str:
        """Somebody's words as they come; the whole of them."""

    def lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """A list of (name, text)."""

    def failed(self, sentence: str, log: Sequence[str]) -> None:
        """Why it did not work, and the last words of whoever knows more."""


def screen() -> Screen:
    """The right one for standard output."""
    return Coloured() if is_terminal() else Plain()


class Plain:
    """Lines."""

    def __init__(self) -> None:
        self._shown = 0

    def title(self, text: str) -> None:
        """A line of its own."""
        print(f"\n{text}", flush=True)

    def step(self, name: str, text: str) -> None:
        """Two columns."""
        print(f"{name:<10} {text}", flush=True)

    def fact(self, line: FactLine) -> None:
        """One line."""
        print(line.plain(), flush=True)

    def progress(self, done: int, total: int) -> None:
        """A line for every tenth that is passed."""
        tenth = (100 * done // total) // _STEP * _STEP if total else 100
        if tenth > self._shown:
            self._shown = tenth
            print(f"weights    {tenth} % of {size(total)}", flush=True)

    def answer(self, who: str, pieces: Iterable[str]) -> str:
        """On one line."""
        whole = "".join(pieces)
        print(f"{who:<10} {' '.join(whole.split())}", flush=True)
        return whole

    def lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Two columns."""
        for name, text in lines:
            print(f"{name:<10} {text}", flush=True)

    def failed(self, sentence: str, log: Sequence[str]) -> None:
        """To standard error."""
        print(f"demo: {sentence}", *(f"  {line}" for line in log), sep="\n", file=sys.stderr, flush=True)


class Coloured:
    """A terminal, through rich."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def title(self, text: str) -> None:
        """A rule."""
        self._console.print()
        self._console.rule(f"[bold]{text}[/bold]", align="left", style="dim")

    def step(self, name: str, text: str) -> None:
        """A tick and two columns."""
        from rich.markup import escape

        self._print(f"[green]✓[/green] [bold]{name:<10}[/bold] {escape(text)}")

    def fact(self, line: FactLine) -> None:
        """Time, what, about whom, and the rest dimmed."""
        from rich.markup import escape

        word = line.what.rpartition(".")[2]
        mark, colour = ("●", "green") if word in _GOOD else ("●", "red") if word in _BAD else ("○", "cyan")
        self._print(
            f"[{colour}]{mark}[/{colour}] [dim]{line.time}[/dim]  [{colour}]{line.what:<20}[/{colour}] "
            f"{escape(line.about):<34} [dim]{escape(line.text)}[/dim]"
        )

    def progress(self, done: int, total: int) -> None:
        """A bar that leaves a full one behind."""
        if self._bar is None:
            self._bar, self._task = _bar(self._console, total)
        assert self._task is not None, "a bar has its task"
        self._bar.update(self._task, completed=done, total=total)
        if done >= total:
            self._bar.stop()
            self._bar = None

    def answer(self, who: str, pieces: Iterable[str]) -> str:
        """Word by word."""
        from rich.text import Text

        self._console.print(f"[bold cyan]{who:<10}[/bold cyan] ", end="")
        whole = ""
        for piece in pieces:
            whole += piece
            self._console.print(Text(piece), end="", soft_wrap=True)
        self._console.print()
        return whole

    def lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Two columns."""
        from rich.markup import escape

        for name, text in lines:
            self._print(f"  [bold]{name:<10}[/bold] {escape(text)}")

    def failed(self, sentence: str, log: Sequence[str]) -> None:
        """In red, the log dimmed."""
        from rich.markup import escape

        if self._bar is not None:
            self._bar.stop()
        self._print(f"[bold red]✗[/bold red] {escape(sentence)}")
        for line in log:
            self._print(f"  [dim]{escape(line)}[/dim]")


def _bar(console: object, total: int) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    assert isinstance(console, Console), "the screen's own"
    bar = Progress(
        TextColumn("[cyan]◌[/cyan] [dim]        [/dim]  weights             "), BarColumn(bar_width=34), DownloadColumn(binary_units=True),
        TransferSpeedColumn(), console=console,
    )  # fmt: skip
    bar.start()
    return bar, bar.add_task("weights", total=total)
