"""Connections that break, and servers that are no decamp."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from pathlib import Path
from typing import Callable

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from decamp_client import DecampError, Server
from decamp_client.events import Event, parse_events


def answering(handler: Callable[[httpx.Request], httpx.Response]) -> Server:
    """Return a client of a server that is a function."""
    server = Server("https://server.invalid", token="t")
    server.api.set_httpx_client(httpx.Client(base_url=server.url, transport=httpx.MockTransport(handler)))
    return server


def test_events_are_parsed() -> None:
    lines = ["retry: 2000", "", ":", "event: changes", "id: 7", 'data: {"rev":', "data: 7}", "", "data:1", "", "event: empty", ""]
    assert list(parse_events(lines)) == [None, Event("changes", {"rev": 7}, 7), Event("message", 1)]


def test_a_broken_stream_continues_at_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decamp_client.server._RECONNECT", 0.001)
    asked: list[str] = []

    def stream(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params["since"])
        if len(asked) == 2:
            raise httpx.ReadError("connection reset")
        if len(asked) == 3:
            problem = {"type": "about:blank", "title": "", "status": 503, "detail": "stops", "kind": "transient"}
            return httpx.Response(503, json=problem)
        text = f"event: changes\nid: {len(asked) * 10}\ndata: {{}}\n\n:\n\n"
        return httpx.Response(200, text=text)

    events = answering(stream).events("p")
    assert [next(events).id for _ in range(2)] == [10, 40]
    assert asked == ["-1", "10", "10", "10"]


def test_a_listing_that_ends_between_two_requests() -> None:
    """wait_for_vm finds a VM that is listed after the request for the VMs, and before the one for the plan."""
    texts = {"vm": "vm-1", "name": "db01", "plan": "p", "state": "running", "source": "s", "host": "h", "datastore": "d"}
    vm = {**texts, "seq": 1, "disks": 1, "bytes": 1, "epoch": 1, "rev": 2, "runs": [], "to": []}
    plan = {"name": "p", "state": "running", "created": "2026-11-28T12:00:00Z", "counts": {}, "rev": 1}
    listed: list[object] = []

    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/plans/p":
            return httpx.Response(200, json=plan)
        if request.url.path == "/v1/plans/p/vms":
            page = {"items": listed.copy()}
            listed[:] = [vm]
            return httpx.Response(200, json=page)
        problem = {"type": "about:blank", "title": "", "status": 404, "detail": "no VM db01", "kind": "not-found"}
        return httpx.Response(404, json=problem)

    server = answering(respond)
    assert server.wait_for_vm("p", "db01", lambda found: found.state == "running", 10).vm == "vm-1"


def test_a_token_is_not_sent_in_clear() -> None:
    with pytest.raises(DecampError) as refused:
        Server("http://mover:8470", token="t")
    assert refused.value.kind == "invalid" and "in clear" in refused.value.detail
    Server("http://127.0.0.1:8470", token="t").close()


@pytest.mark.parametrize("status", [200, 401, 502])
def test_another_program_answers(status: int) -> None:
    server = answering(lambda _: httpx.Response(status, text="<html>"))
    with pytest.raises(DecampError) as refused:
        server.plans()
    assert refused.value.kind == "unreachable" and "check the URL" in refused.value.remedy


def test_a_server_that_is_down() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # nothing listens
        with pytest.raises(DecampError) as refused:
            Server(f"https://127.0.0.1:{reserved.getsockname()[1]}", token="t", fingerprint="00" * 32).plans()
    assert refused.value.kind == "unreachable" and "decamp serve" in refused.value.remedy


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(DecampError, match="https://HOST:8470"):
        Server("mover:8470")
    with pytest.raises(DecampError, match="decamp token add"):
        Server("https://mover:8470", token_file=tmp_path / "missing")
    (tmp_path / "two").write_text("a b")
    with pytest.raises(DecampError, match="does not contain one token"):
        Server("https://mover:8470", token_file=tmp_path / "two")


def test_a_stranger_receives_nothing(tmp_path: Path) -> None:
    """A server with another certificate gets no byte of a request."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stranger")])
    now = datetime.datetime.now(datetime.timezone.utc)
    cert = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1)).sign(key, hashes.SHA256())
    )
    pem = cert.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "stranger.pem"
    file.write_bytes(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    received: list[bytes] = []

    def accept(listener: socket.socket) -> None:
        for _ in range(2):
            plain, _ = listener.accept()
            with plain, context.wrap_socket(plain, server_side=True) as connection:
                try:
                    received.append(connection.recv(1))
                except OSError:
                    received.append(b"")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(DecampError, match="shows the certificate"):
            Server(url, token="secret", fingerprint="00" * 32).plans()
        try:
            Server(url, token="secret", fingerprint=cert.fingerprint(hashes.SHA256()).hex()).plans()
        except DecampError:
            pass  # it answers nothing
        thread.join()
    assert received == [b"", b"G"]  # the second one is known, and gets a request
