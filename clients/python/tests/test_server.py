"""Plans on a real server, which migrates VMs of an emulated host."""

from __future__ import annotations

import json

import pytest
from conftest import DIR, FINGERPRINT, SOURCE, URL, connect, plan_text

from decamp_client import DecampError, Server
from decamp_client.generated.types import Unset

PATIENCE = 180.0  # seconds that anything may take under the heaviest load


def test_a_plan_is_submitted_and_followed_to_its_end(server: Server) -> None:
    text = plan_text("cold", "cold", "web01")
    submitted = server.submit(text)
    assert (submitted.name, submitted.state, submitted.by, submitted.role) == ("cold", "listing", "operate", "operate")
    assert server.submit(text.encode()).created == submitted.created  # the same text again changes nothing

    states: list[str] = []
    with connect("view") as viewer:
        for event in viewer.events("cold", since=0):
            if event.name == "changes":
                states += [vm["state"] for vm in event.data.get("vms", [])]
                if any(p["state"] in ("ended", "failed") for p in event.data.get("plans", [])):
                    break
    assert states[-1] == "done"
    ended = server.wait("cold", PATIENCE)
    assert (ended.state, ended.counts.to_dict(), ended.text) == ("ended", {"done": 1}, text)

    vms = list(server.vms("cold", ["done"]))
    assert [(vm.name, vm.state, vm.to) for vm in vms] == [("web01", "done", [f"dir:{DIR / 'cold'}"])]
    assert list(server.vms("cold", ["failed", "queued"])) == []
    assert server.vm("cold", "WEB01").vm == server.vm("cold", vms[0].vm).vm == vms[0].vm
    assert "cold" in [p.name for p in server.plans()]


def test_a_running_vm_is_cut_over(server: Server) -> None:
    server.submit(plan_text("warm", "warm", "db01", "    mode: warm\n    transport: nfc\n"))
    ready = server.wait_for_vm("warm", "db01", lambda vm: vm.step == "wait", PATIENCE)
    assert (ready.state, ready.step) == ("running", "wait"), ready.failure
    with pytest.raises(TimeoutError, match="plan warm"):
        server.wait("warm", 0.5)  # it waits for the cutover
    server.command("warm", "cutover", "db01")
    done = server.wait_for_vm("warm", "db01", lambda vm: vm.state == "done", PATIENCE)
    assert done.state == "done", done.failure
    assert server.wait("warm", PATIENCE).counts.to_dict() == {"done": 1}


def test_a_failure_has_a_remedy(server: Server) -> None:
    server.submit(plan_text("fails", "cold", "nothing"))
    assert server.wait("fails", PATIENCE).counts.to_dict() == {"failed": 1}
    (vm,) = server.vms("fails")
    assert not isinstance(vm.failure, Unset)
    assert vm.failure.kind == "not-found" and vm.failure.hint
    with pytest.raises(DecampError) as refused:
        server.drop("fails")
    assert (refused.value.kind, refused.value.status) == ("denied", 403) and "admin" in str(refused.value)
    with connect("admin") as admin:
        admin.drop("fails")
    with pytest.raises(DecampError) as gone:
        server.plan("fails")
    assert (gone.value.kind, gone.value.status) == ("not-found", 404)
    assert "Remedy: list the plans: decamp status" in str(gone.value)


def test_a_plan_with_another_text_is_refused(server: Server) -> None:
    plan = {
        "version": 1,
        "name": "kept",
        "source": {"url": SOURCE, "credentials": {"name": "lab"}},
        "vms": [{"vm": "nothing", "to": [f"dir:{DIR / 'cold'}"]}],
    }
    server.submit(plan)
    with pytest.raises(DecampError) as refused:
        server.submit(json.dumps(plan, indent=1))
    assert (refused.value.kind, refused.value.status) == ("conflict", 409) and refused.value.remedy
    checked = server.check(json.dumps(plan, indent=1))
    assert checked.name == "kept" and checked.diff.startswith("diff submitted checked\n"), checked
    assert server.check(plan).diff == ""


def test_mistakes_in_a_plan_have_lines(server: Server) -> None:
    with pytest.raises(DecampError) as refused:
        server.submit("version: 1\nname: broken\nbogus: 1\n")
    assert refused.value.kind == "invalid"
    assert any(f.startswith("line 3: ") and "bogus" in f for f in refused.value.findings), refused.value.findings
    with pytest.raises(DecampError) as several:
        server.check("version: 1\nname: broken\nbogus: 1\nother: 2\n")
    assert "bogus" in str(several.value) and "other" in str(several.value), str(several.value)


@pytest.mark.parametrize("name", ["no such", "a/b", "../plans", "ü"])
def test_names_stay_in_their_place(server: Server, name: str) -> None:
    with pytest.raises(DecampError) as refused:
        server.plan(name)
    assert refused.value.kind in ("not-found", "invalid")


def test_a_vm_that_does_not_exist(server: Server) -> None:
    for plan in ("nowhere", "cold"):
        with pytest.raises(DecampError) as missing:
            server.vm(plan, "no such VM")
        assert missing.value.kind == "not-found" and missing.value.remedy


def test_a_wrong_token_is_refused() -> None:
    with Server(URL, token="decamp_wrong", fingerprint=FINGERPRINT) as stranger:
        with pytest.raises(DecampError) as refused:
            stranger.plans()
        assert (refused.value.kind, refused.value.status) == ("denied", 403) and "decamp token add" in refused.value.remedy
        with pytest.raises(DecampError) as stream:
            next(stranger.events())
        assert stream.value.kind == "denied"


def test_the_certificate_is_pinned() -> None:
    secret = (DIR / "view.token").read_text().strip()
    lower = FINGERPRINT.replace(":", "").lower()
    with Server(URL, token=secret, fingerprint=lower) as server:
        assert isinstance(server.plans(), list)
    other = "00" * 32
    for fingerprint in (other, None):
        with Server(URL, token=secret, fingerprint=fingerprint) as server:
            with pytest.raises(DecampError) as refused:
                server.plans()
            assert refused.value.kind == "denied" and "decamp serve prints its fingerprint" in refused.value.remedy
            assert secret not in str(refused.value)
            if fingerprint:
                assert FINGERPRINT in refused.value.detail
                with pytest.raises(DecampError) as stream:
                    next(server.events())
                assert stream.value.kind == "denied"
    with pytest.raises(DecampError, match="not a SHA-256 fingerprint"):
        Server(URL, fingerprint="AB:CD")
    with Server(URL, token=secret, ca_file=str(DIR / "state" / "tls.pem")) as server:
        assert isinstance(server.plans(), list)
    with pytest.raises(DecampError, match="the CA or the client certificate"):
        Server(URL, ca_file="/nonexistent")
