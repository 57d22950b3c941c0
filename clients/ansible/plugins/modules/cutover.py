#!/usr/bin/python
# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: cutover
short_description: Start the cutover of warm VMs
version_added: 0.1.0
description:
  - Starts the cutover of a warm VM, or of all warm VMs of a plan. The source VM is powered off, the last changes are copied, and the VM is published.
  - A VM that is done, or whose cutover was started, is not changed. The module does not wait; M(decamp.decamp.wait) does.
options:
  plan:
    description: Name of the plan.
    type: str
    required: true
  vm:
    description: Reference or name of a VM. Without it, all warm VMs of the plan are cut over.
    type: str
attributes:
  check_mode:
    description: Starts nothing and reports whether the module would. Reports no change if the plan does not exist, because an earlier task would have submitted it.
    support: full
  diff_mode:
    description: Returns the commands of the VMs.
    support: full
extends_documentation_fragment:
  - decamp.decamp.server
"""

EXAMPLES = r"""
- name: Wait until the VM is copied
  decamp.decamp.wait:
    plan: wave-1
    vm: db01
    until: ready

- name: Cut over
  decamp.decamp.cutover:
    plan: wave-1
    vm: db01
"""

RETURN = r"""
vms:
  description: References of the VMs whose cutover the module started.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.decamp.decamp.plugins.module_utils.decamp import FINAL, DecampError, choose_vms, failure_of, run_module


def is_requested(vm, plan):
    """Report whether the cutover of a VM was started."""
    return "cutover" in (vm.get("command"), plan.get("command")) or vm["state"] == "done"


def do(module, server):
    name, chosen = module.params["plan"], module.params["vm"]
    if module.check_mode and server.plan(name) is None:
        return dict(changed=False, vms=[])
    plan = server.need_plan(name)
    if plan["state"] == "listing":
        raise DecampError("conflict", "the VMs of plan %s are not listed yet" % name, "wait for them: decamp.decamp.wait with until: ready")
    vms = choose_vms(server.vms(name), name, chosen)
    if chosen and not vms[0].get("warm"):
        raise DecampError("conflict", "VM %s is not migrated warm" % vms[0]["name"], "set mode: warm in the plan; a cold VM has no cutover")
    for vm in vms:
        if chosen and vm["state"] in FINAL and vm["state"] != "done":
            raise failure_of(vm)
    pending = [vm for vm in vms if vm.get("warm") and vm["state"] not in FINAL and not is_requested(vm, plan)]
    refs = [vm["vm"] for vm in pending]
    if not module.check_mode:
        for ref in refs:
            server.command(name, "cutover", ref)
    before = "".join("%s: %s\n" % (vm["vm"], vm.get("command") or "no command") for vm in pending)
    after = "".join("%s: cutover\n" % ref for ref in refs)
    return dict(changed=bool(refs), vms=refs, diff=dict(before=before, after=after, before_header=name, after_header=name))


def main():
    run_module(dict(plan=dict(type="str", required=True), vm=dict(type="str")), do)


if __name__ == "__main__":
    main()
