"""A real decamp serve, which test/clients starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from decamp_client import Server

URL = os.environ["DECAMP_TEST_URL"]
FINGERPRINT = os.environ["DECAMP_TEST_FINGERPRINT"]
DIR = Path(os.environ["DECAMP_TEST_DIR"])
SOURCE = os.environ["DECAMP_TEST_SOURCE"]


def connect(role: str = "operate") -> Server:
    """Return a client with the token of a role."""
    return Server(URL, token_file=DIR / f"{role}.token", fingerprint=FINGERPRINT)


def plan_text(name: str, folder: str, vm: str, options: str = "") -> str:
    """Return the text of a plan for one VM."""
    return (
        f"version: 1\nname: {name}\nsource:\n  url: {SOURCE}\n  credentials: {{name: lab}}\n"
        f"vms:\n  - vm: {vm}\n    to: ['dir:{DIR / folder}']\n{options}"
    )


@pytest.fixture
def server() -> Iterator[Server]:
    with connect() as s:
        yield s
