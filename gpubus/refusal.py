"""The one error a person sees: a sentence that says what is wrong and the way out.

Must not carry tracebacks or secrets. Read next: gpubus/main.py, which prints it.
"""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - the command refuses, it does not fail
    """What the command will not do and how to get past it, in one sentence; exit code 1 unless said."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code
