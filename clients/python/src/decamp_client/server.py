"""A server, as programs use it."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional, TypeVar, Union, cast
from urllib.parse import quote

import httpx

from .errors import DecampError
from .events import Event, parse_events
from .generated import errors as generated_errors
from .generated.api.admin import drop_plan
from .generated.api.operate import check_plan, command_plan, command_vm, submit_plan
from .generated.api.view import get_plan, get_vm, list_plans, list_v_ms
from .generated.client import AuthenticatedClient
from .generated.models import (
    ListVMsStateItem,
    Order,
    OrderCommand,
    Plan,
    PlanCheck,
    Problem,
    VmCommandBody,
    VmCommandBodyCommand,
    VmItem,
)
from .generated.types import UNSET, File, Response
from .tls import FingerprintError, make_context

T = TypeVar("T")

FINAL = ("ended", "failed")  # states of a plan that has ended
_RECONNECT = 2.0  # seconds before a broken stream is opened again
_SILENCE = 45.0  # seconds without data after which a stream is broken; the server sends a comment every 15 s


class Server:
    """A decamp server.

    url is the address, such as https://mover:8470. token is a secret of `decamp token add`; token_file is a file with
    it. fingerprint is the SHA-256 fingerprint that `decamp serve` prints; without it the certificate must be signed by
    a CA of ca_file, or of the system. cert is a client certificate: its file and its key's file. timeout is the limit
    of one request, in seconds.

    api has the client for all operations in decamp_client.generated.api.
    """

    api: AuthenticatedClient

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: Union[str, Path, None] = None,
        fingerprint: Optional[str] = None,
        ca_file: Optional[str] = None,
        cert: Optional[tuple[str, str]] = None,
        timeout: float = 60.0,
    ) -> None:
        if not url.startswith(("https://", "http://")):
            raise DecampError("invalid", f"the URL of the server is {url!r}", "write https://HOST:8470")
        if token_file is not None:
            token = _read_token(token_file)
        if url.startswith("http://") and not _is_loopback(httpx.URL(url).host):
            raise DecampError("invalid", f"{url} would send the token in clear", "write https://HOST:8470")
        self.url = url.rstrip("/")
        self.api = AuthenticatedClient(
            base_url=self.url,
            token=token,
            verify_ssl=make_context(fingerprint, ca_file, cert),
            timeout=httpx.Timeout(timeout),
            raise_on_unexpected_status=True,
        )

    def close(self) -> None:
        """Close the connections."""
        self.api.get_httpx_client().close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, plan: Union[str, bytes, Mapping[str, Any]]) -> Plan:
        """Submit a plan: the text of a plan file, or its content. The same text again changes nothing."""
        return self._call(lambda: submit_plan.sync_detailed(client=self.api, body=_encode_plan(plan)))

    def check(self, plan: Union[str, bytes, Mapping[str, Any]]) -> PlanCheck:
        """Check a plan as submit does, without submitting it, and compare it with the submitted plan of its name."""
        return self._call(lambda: check_plan.sync_detailed(client=self.api, body=_encode_plan(plan)))

    def plans(self) -> list[Plan]:
        """Return all plans, without their texts."""
        return self._call(lambda: list_plans.sync_detailed(client=self.api)).items

    def plan(self, name: str) -> Plan:
        """Return a plan with its text."""
        return self._call(lambda: get_plan.sync_detailed(quote(name, safe=""), client=self.api))

    def drop(self, name: str) -> None:
        """Remove a plan that has ended. Migrated VMs are kept."""
        self._call(lambda: drop_plan.sync_detailed(quote(name, safe=""), client=self.api))

    def vms(self, plan: str, states: Sequence[str] = ()) -> Iterator[VmItem]:
        """Yield the VMs of a plan in its order; with states only those in one of them."""
        chosen = [ListVMsStateItem(s) for s in states] or UNSET
        after = 0
        while True:
            page = self._call(
                lambda: list_v_ms.sync_detailed(quote(plan, safe=""), client=self.api, state=chosen, after=after, limit=1000)
            )
            yield from page.items
            if not page.next_:
                return
            after = page.next_

    def vm(self, plan: str, name: str) -> VmItem:
        """Return a VM by its reference, such as vm-42, or by its name."""
        try:
            return self._call(lambda: get_vm.sync_detailed(quote(plan, safe=""), quote(name, safe=""), client=self.api))
        except DecampError as error:
            if error.kind not in ("not-found", "invalid"):  # invalid: a name that no reference can have
                raise
            if error.kind == "not-found":
                self.plan(plan)  # it does not exist: its error names it
        found = [vm for vm in self.vms(plan) if vm.name.lower() == name.lower()]
        if len(found) != 1:
            refs = ", ".join(vm.vm for vm in found)
            raise DecampError(
                "conflict" if found else "not-found",
                f"plan {plan} has {len(found)} VMs with the name {name!r}" + (f": {refs}" if refs else ""),
                "use the reference of a VM" if found else f"decamp status {plan} --all lists them",
            )
        return found[0]

    def command(self, plan: str, command: str, vm: Optional[str] = None) -> None:
        """Send a command to a plan, or to one VM of it: resume, pause, cutover, cancel, retry, rollback, withdraw."""
        if vm is None:
            body = Order(OrderCommand(command))
            self._call(lambda: command_plan.sync_detailed(quote(plan, safe=""), client=self.api, body=body))
            return
        ref = quote(self.vm(plan, vm).vm, safe="")
        of_vm = VmCommandBody(VmCommandBodyCommand(command))
        self._call(lambda: command_vm.sync_detailed(quote(plan, safe=""), ref, client=self.api, body=of_vm))

    def events(self, plan: str = "", since: int = -1) -> Iterator[Event]:
        """Yield the events of a plan, or of all plans, without end. A broken connection is opened again at its event."""
        for event in self._events(plan, since, None):
            if event is not None:
                yield event

    def wait(self, plan: str, timeout: Optional[float] = None) -> Plan:
        """Wait until a plan has ended, and return it. Its counts show how the VMs ended.

        After timeout seconds, TimeoutError is raised.
        """
        return self._wait(plan, timeout, lambda: _final(self.plan(plan)))

    def wait_for_vm(
        self, plan: str, vm: str, is_reached: Callable[[VmItem], bool], timeout: Optional[float] = None
    ) -> VmItem:
        """Wait until is_reached is true for a VM, or until the VM has ended, and return it."""

        def reached() -> Optional[VmItem]:
            try:
                item = self.vm(plan, vm)
            except DecampError as error:
                if error.kind != "not-found":
                    raise
                if self.plan(plan).state == "listing":
                    return None
                item = self.vm(plan, vm)  # the VM may have been listed since the first request
            return item if is_reached(item) or item.state in ("done", "failed", "canceled") else None

        return self._wait(plan, timeout, reached)

    def _wait(self, plan: str, timeout: Optional[float], reached: Callable[[], Optional[T]]) -> T:
        """Call reached after each change of a plan, until it returns a result."""
        deadline = None if timeout is None else time.monotonic() + timeout
        result = reached()
        if result is not None:
            return result
        for event in self._events(plan, -1, deadline):
            # the stream begins with hello: changes before it are in the result of reached
            if event is not None and event.name in ("hello", "changes"):
                result = reached()
                if result is not None:
                    return result
        raise TimeoutError(f"plan {plan} has not reached the state in {timeout} seconds")

    def _events(self, plan: str, since: int, deadline: Optional[float]) -> Iterator[Optional[Event]]:
        """Yield events, and None for comments, until the deadline."""
        while True:
            try:
                for event in self._stream(plan, since, deadline):
                    if event is not None and event.id is not None:
                        since = event.id
                    yield event
                    if deadline is not None and time.monotonic() > deadline:
                        return
            except httpx.TransportError as error:
                wrong = _cause_of(error, FingerprintError)
                if wrong is not None:
                    raise self._error_of(error) from error
            except DecampError as error:
                if error.kind not in ("transient", "unreachable"):
                    raise
            pause = _RECONNECT if deadline is None else min(_RECONNECT, deadline - time.monotonic())
            if pause <= 0:
                return
            time.sleep(pause)

    def _stream(self, plan: str, since: int, deadline: Optional[float]) -> Iterator[Optional[Event]]:
        """Yield the events of one connection."""
        left = _SILENCE if deadline is None else max(0.1, min(_SILENCE, deadline - time.monotonic()))
        query: dict[str, Union[str, int]] = {"plan": plan, "since": since}
        client = self.api.get_httpx_client()
        with client.stream("GET", "/v1/events", params=query, timeout=httpx.Timeout(left)) as response:
            if response.status_code != 200:
                response.read()
                raise _problem_of(response)
            yield from parse_events(response.iter_lines())

    def _call(self, send: Callable[[], Response[Union[T, Problem]]]) -> T:
        """Return the result of an operation, or raise its error."""
        try:
            response = send()
        except httpx.TransportError as error:
            raise self._error_of(error) from error
        except generated_errors.UnexpectedStatus as error:
            raise _foreign(error.status_code) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _foreign(0) from error
        if isinstance(response.parsed, Problem):
            raise _raised(response.parsed)
        return cast(T, response.parsed)

    def _error_of(self, error: httpx.TransportError) -> DecampError:
        """Return the error of a request without a response."""
        wrong = _cause_of(error, FingerprintError)
        if isinstance(wrong, FingerprintError):
            return DecampError(
                "denied",
                f"{self.url}: the server shows the certificate {wrong.shown}, want {wrong.want}",
                "the server is another one, or the connection is intercepted; decamp serve prints its fingerprint when it starts",
            )
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return DecampError("denied", f"{self.url}: {error}", "set fingerprint or ca_file; decamp serve prints its fingerprint when it starts")
        return DecampError("unreachable", f"{self.url}: {error or type(error).__name__}", "check the address, and that decamp serve runs there")


def _final(plan: Plan) -> Optional[Plan]:
    return plan if plan.state in FINAL else None


def _is_loopback(host: str) -> bool:
    """Report whether connections to a host stay on this machine."""
    return host in ("localhost", "::1") or re.match(r"^127(\.[0-9]{1,3}){3}$", host) is not None


def _encode_plan(plan: Union[str, bytes, Mapping[str, Any]]) -> File:
    """Return a plan as the body of a request."""
    text = plan if isinstance(plan, (str, bytes)) else json.dumps(plan)
    raw = text.encode() if isinstance(text, str) else text
    return File(cast(io.BytesIO, raw))  # a plan with a file object would be sent in chunks


def _read_token(file: Union[str, Path]) -> str:
    """Return the token in a file."""
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise DecampError("invalid", f"token file: {error}", "create a token: decamp token add NAME --role operate") from error
    if not token or len(token.split()) != 1:
        raise DecampError("invalid", f"the token file {file} does not contain one token", "create a token: decamp token add NAME --role operate")
    return token


def _cause_of(error: Optional[BaseException], kind: type[BaseException]) -> Optional[BaseException]:
    """Return the error of that kind in the chain of causes."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _problem_of(response: httpx.Response) -> DecampError:
    """Return the error in a response."""
    try:
        return _raised(Problem.from_dict(response.json()))
    except (ValueError, KeyError, TypeError, AttributeError):
        return _foreign(response.status_code)


def _raised(problem: Problem) -> DecampError:
    """Return a problem of the API as an error."""
    findings = [f"line {f.line}: {f.text}" for f in problem.findings or ()]
    return DecampError(str(problem.kind), problem.detail, problem.remedy or "", problem.status, findings)


def _foreign(status: int) -> DecampError:
    """Return the error for a response that is not from decamp's API."""
    return DecampError("unreachable", f"the response with the status {status} is not from decamp" if status else "the response is not from decamp", "check the URL: a proxy or another program answers there", status)
