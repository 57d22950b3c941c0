"""The error of all functions of this package."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class DecampError(Exception):
    """An error that the server returned, or a server that cannot be used.

    kind is a stable word for programs: internal, transient, unreachable, denied, not-found, conflict, unsupported,
    corrupt, full, invalid, canceled or changed.
    """

    kind: str
    detail: str
    remedy: str = ""
    status: int = 0  # HTTP status; 0 if the server did not answer
    findings: list[str] = field(default_factory=list)  # mistakes in a plan, each with its line

    def __str__(self) -> str:
        parts = [self.detail]  # of a plan with one mistake, the mistake
        if len(self.findings) > 1:
            parts += self.findings
        if self.remedy:
            parts.append(f"Remedy: {self.remedy}")
        return "\n".join(parts)
