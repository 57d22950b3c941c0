# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

"""Client of the API of decamp serve, for the modules and the inventory plugin."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import time
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from ansible.module_utils.basic import AnsibleModule, env_fallback

FINAL = ("done", "failed", "canceled")  # states of a VM that has ended
ENDED = ("ended", "failed")  # states of a plan that has ended
UNDOING = ("cancel", "rollback", "withdraw")  # commands that remove results
PAGE = 1000  # VMs of one request

SERVER_ARGS = dict(
    server_url=dict(type="str", required=True, fallback=(env_fallback, ["DECAMP_SERVER"])),
    server_fingerprint=dict(type="str"),
    server_ca=dict(type="path"),
    token=dict(type="str", no_log=True),
    token_file=dict(type="path", fallback=(env_fallback, ["DECAMP_TOKEN_FILE"])),
    request_timeout=dict(type="int", default=60),
)


class DecampError(Exception):
    """An error of the server, or a server that cannot be used."""

    def __init__(self, kind, detail, remedy="", findings=()):
        super(DecampError, self).__init__(detail)
        self.kind = kind
        self.detail = detail
        self.remedy = remedy
        self.findings = list(findings)

    def text(self):
        """Return the error with its remedy, for users."""
        lines = [self.detail]  # of a plan with one mistake, the mistake
        if len(self.findings) > 1:
            lines += ["%s:%s: %s" % (f.get("line", "?"), f.get("column", "?"), f.get("text", "")) for f in self.findings]
        if self.remedy:
            lines.append("Remedy: " + self.remedy)
        return "\n".join(lines)


class FingerprintError(ssl.SSLError):
    """The server has another certificate than the expected one."""


class PinnedContext(ssl.SSLContext):
    """A context that accepts one certificate, before anything is sent."""

    fingerprint = ""

    def wrap_socket(self, sock, *args, **kwargs):
        kwargs["do_handshake_on_connect"] = True
        wrapped = super(PinnedContext, self).wrap_socket(sock, *args, **kwargs)
        shown = hashlib.sha256(wrapped.getpeercert(binary_form=True)).hexdigest()
        if shown != self.fingerprint:
            wrapped.close()
            raise FingerprintError(1, "the server shows the certificate %s, want %s" % (colons(shown), colons(self.fingerprint)))
        return wrapped

    def wrap_bio(self, *args, **kwargs):
        raise ssl.SSLError(1, "a fingerprint is not supported through an HTTPS proxy")


class NoRedirects(HTTPRedirectHandler):
    """A token is sent to the configured address only."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


def colons(digits):
    """Return a fingerprint as AB:CD:..."""
    return ":".join(digits[i:i + 2] for i in range(0, len(digits), 2)).upper()


def make_context(fingerprint, ca_file):
    """Return a context that accepts the certificate by its fingerprint; without one, by its CA."""
    if not fingerprint:
        try:
            return ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise DecampError("invalid", "server_ca: %s" % error, "name a PEM file with the CA of the server")
    digits = fingerprint.replace(":", "").lower()
    if not re.match("^[0-9a-f]{64}$", digits):
        raise DecampError("invalid", "%r is not a SHA-256 fingerprint" % fingerprint, "decamp serve prints its fingerprint when it starts")
    context = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.fingerprint = digits
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # wrap_socket compares the certificate
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def is_loopback(host):
    """Report whether connections to a host stay on this machine."""
    return host in ("localhost", "::1") or re.match(r"^127(\.[0-9]{1,3}){3}$", host) is not None


class Server:
    """A decamp server."""

    def __init__(self, url, token="", fingerprint=None, ca_file=None, timeout=60):
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise DecampError("invalid", "the URL of the server is %r" % url, "write https://HOST:8470")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise DecampError("invalid", "%s would send the token in clear" % url, "write https://HOST:8470")
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout
        self.opener = build_opener(NoRedirects(), HTTPSHandler(context=make_context(fingerprint, ca_file)))

    def request(self, method, path, query=None, body=None, content_type="application/json"):
        """Return the decoded response of a request; None if it is empty."""
        url = self.url + path
        if query:
            url += "?" + urlencode(query)
        headers = {"Accept": "application/json", "Authorization": "Bearer " + self.token}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            response = self.opener.open(Request(url, data=body, headers=headers, method=method), timeout=self.timeout)
            text = response.read()
        except HTTPError as error:
            raise self.problem(error)
        except (URLError, HTTPException, OSError) as error:
            raise self.unreachable(getattr(error, "reason", error))
        if not text:
            return None
        try:
            return json.loads(text)
        except ValueError:
            raise self.foreign(200)

    def problem(self, response):
        """Return the error in a response."""
        try:
            problem = json.loads(response.read())
            detail = problem["detail"]
            for each in problem.get("errors", ()):  # of a request: each with its place
                detail += "; %s: %s" % (each.get("location", ""), each.get("message", ""))
            return DecampError(problem["kind"], detail, problem.get("remedy", ""), problem.get("findings", ()))
        except (ValueError, KeyError, TypeError, AttributeError, HTTPException, OSError):
            return self.foreign(response.code)

    def foreign(self, status):
        return DecampError(
            "unreachable",
            "the response of %s with the status %s is not from decamp" % (self.url, status),
            "check server_url: a proxy or another program answers there",
        )

    def unreachable(self, reason):
        """Return the error of a request without a response."""
        detail = "%s: %s" % (self.url, reason)
        if isinstance(reason, FingerprintError):
            remedy = "the server is another one, or the connection is intercepted; decamp serve prints its fingerprint when it starts"
            return DecampError("denied", "%s: %s" % (self.url, reason.args[1]), remedy)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return DecampError("denied", detail, "set server_fingerprint or server_ca; decamp serve prints its fingerprint when it starts")
        if isinstance(reason, (socket.timeout, OSError, HTTPException)):
            return DecampError("unreachable", detail, "check the address, and that decamp serve runs there")
        return DecampError("unreachable", detail)

    def items(self, path):
        return self.request("GET", path)["items"]

    def plan(self, name):
        """Return a plan with its text; None if it does not exist."""
        try:
            return self.request("GET", "/v1/plans/" + quote(name, safe=""))
        except DecampError as error:
            if error.kind == "not-found":
                return None
            raise

    def need_plan(self, name):
        plan = self.plan(name)
        if plan is None:
            raise DecampError("not-found", "plan %s does not exist" % name, "submit it with decamp.decamp.plan")
        return plan

    def vms(self, plan):
        """Return all VMs of a plan, in its order."""
        found, after = [], 0
        while True:
            page = self.request("GET", "/v1/plans/%s/vms" % quote(plan, safe=""), {"after": after, "limit": PAGE})
            found += page["items"]
            after = page.get("next", 0)
            if not after:
                return found

    def submit(self, text):
        return self.request("POST", "/v1/plans", body=text.encode("utf-8"), content_type="application/yaml")

    def check(self, text):
        """Raise the error of the submission of a text, without submitting it."""
        self.request("POST", "/v1/plan-checks", body=text.encode("utf-8"), content_type="application/yaml")

    def drop(self, plan):
        self.request("DELETE", "/v1/plans/" + quote(plan, safe=""))

    def command(self, plan, command, vm=None):
        """Send a command to a plan, or to a VM by its reference."""
        path = "/v1/plans/" + quote(plan, safe="")
        if vm:
            path += "/vms/" + quote(vm, safe="")
        self.request("POST", path + "/commands", body=json.dumps({"command": command}).encode("utf-8"))


def choose_vms(vms, plan, name):
    """Return the VM with a reference or a name; all without a name."""
    if not name:
        return vms
    found = [vm for vm in vms if vm["vm"] == name] or [vm for vm in vms if vm["name"].lower() == name.lower()]
    if not found:
        raise DecampError("not-found", "plan %s has no VM %r" % (plan, name), "decamp.decamp.fleet_info lists the VMs of a plan")
    if len(found) > 1:
        refs = ", ".join(vm["vm"] for vm in found)
        raise DecampError("conflict", "%d VMs of plan %s have the name %r: %s" % (len(found), plan, name, refs), "use the reference of a VM")
    return found


def failure_of(vm):
    """Return the failure of a VM as an error."""
    failure = vm.get("failure") or {}
    kind = failure.get("kind", "canceled")
    detail = "VM %s (%s/%s) is %s" % (vm["name"], vm["plan"], vm["vm"], vm["state"])
    if failure.get("text"):
        detail += ": " + failure["text"]
    return DecampError(kind, detail, failure.get("hint") or "to start it again: decamp retry %s/%s" % (vm["plan"], vm["vm"]))


def read_token(token, token_file):
    """Return the token, or the one in a file."""
    remedy = "create a token: decamp token add NAME --role operate"
    if token:
        return token.strip()
    if not token_file:
        raise DecampError("invalid", "no token: set token or token_file", remedy)
    try:
        with open(token_file) as f:
            text = f.read().strip()
    except (OSError, ValueError) as error:
        raise DecampError("invalid", "token_file: %s" % error, remedy)
    if len(text.split()) != 1:
        raise DecampError("invalid", "the token file %s does not contain one token" % token_file, remedy)
    return text


def poll(check, timeout, pause, what):
    """Call check until it returns a result other than None."""
    deadline = time.monotonic() + timeout  # not the time of day, which may be set
    while True:
        result = check()
        if result is not None:
            return result
        if time.monotonic() + pause > deadline:
            remedy = "set a longer timeout; decamp.decamp.fleet_info returns the state of the VMs"
            raise DecampError("transient", "%s within %d seconds" % (what, timeout), remedy)
        time.sleep(pause)


def run_module(arguments, do, **options):
    """Run a module: do(module, server) returns its result."""
    module = AnsibleModule(argument_spec=dict(SERVER_ARGS, **arguments), supports_check_mode=True, **options)
    p = module.params
    try:
        token = read_token(p["token"], p["token_file"])
        module.no_log_values.add(token)
        result = do(module, Server(p["server_url"], token, p["server_fingerprint"], p["server_ca"], p["request_timeout"]))
    except DecampError as error:
        module.fail_json(msg=error.text(), kind=error.kind, remedy=error.remedy)
    module.exit_json(**result)
