"""Server-sent events (WHATWG HTML)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Event:
    """An event of the stream; docs/server.md lists the names and the data."""

    name: str
    data: Any  # decoded JSON
    id: Optional[int] = None  # revision to continue from; None for an event without one


def parse_events(lines: Iterable[str]) -> Iterator[Optional[Event]]:
    """Yield the events in lines, and None for each comment, which the server sends while nothing happens."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(":"):
            yield None
        elif line:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value[1:] if value.startswith(" ") else value)
        else:
            if "data" in fields:
                last = fields.get("id", [""])[-1]
                yield Event(
                    fields.get("event", ["message"])[-1],
                    json.loads("\n".join(fields["data"])),
                    int(last) if last.isdigit() else None,
                )
            fields = {}
