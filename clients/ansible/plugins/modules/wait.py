#!/usr/bin/python
# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: wait
short_description: Wait for a plan or a VM
version_added: 0.1.0
description:
  - Waits until a plan or a VM of it has ended, or until warm VMs are ready for their cutover.
  - The module fails if a VM failed or was canceled, with the failure and its remedy.
options:
  plan:
    description: Name of the plan.
    type: str
    required: true
  vm:
    description: Reference or name of a VM. Without it, the module waits for all VMs of the plan.
    type: str
  until:
    description:
      - V(ended), the VMs are published, failed or canceled.
      - V(ready), warm VMs are copied and wait for their cutover; other VMs have ended.
    type: str
    choices: [ended, ready]
    default: ended
  timeout:
    description: Time limit in seconds.
    type: int
    default: 3600
  pause:
    description: Seconds between two requests.
    type: float
    default: 5
  ignore_failures:
    description: Do not fail if VMs failed or were canceled.
    type: bool
    default: false
attributes:
  check_mode:
    description: Does not wait if the plan does not exist, because an earlier task would have submitted it.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
extends_documentation_fragment:
  - decamp.decamp.server
"""

EXAMPLES = r"""
- name: Wait for a plan
  decamp.decamp.wait:
    plan: wave-1
    timeout: 7200
"""

RETURN = r"""
plan:
  description: The plan as the server has it, without its text.
  returned: success
  type: dict
vms:
  description: The VMs that the module waited for.
  returned: success
  type: list
  elements: dict
"""

from ansible_collections.decamp.decamp.plugins.module_utils.decamp import ENDED, FINAL, DecampError, choose_vms, failure_of, poll, run_module


class Wait:
    """A wait for the VMs of a plan."""

    def __init__(self, module, server):
        self.params, self.server, self.name = module.params, server, module.params["plan"]

    def check(self):
        """Return the plan and its VMs if the wait is over; otherwise None."""
        plan = self.server.need_plan(self.name)
        plan.pop("text", None)
        vms = self.server.vms(self.name)
        is_listed = plan["state"] != "listing"
        if self.params["vm"]:
            try:
                vms = choose_vms(vms, self.name, self.params["vm"])
            except DecampError:
                if is_listed:
                    raise
                return None
        elif plan["state"] == "failed":
            return plan, vms
        elif not is_listed or self.params["until"] == "ended" and plan["state"] not in ENDED:
            return None
        return (plan, vms) if all(self.is_reached(vm) for vm in vms) else None

    def is_reached(self, vm):
        return vm["state"] in FINAL or self.params["until"] == "ready" and vm.get("step") == "wait"


def do(module, server):
    wait = Wait(module, server)
    if module.check_mode and server.plan(wait.name) is None:
        return dict(changed=False, plan={}, vms=[])
    what = "plan %s is not %s" % (wait.name, module.params["until"])
    plan, vms = poll(wait.check, module.params["timeout"], module.params["pause"], what)
    if not module.params["ignore_failures"]:
        failed = [vm for vm in vms if vm["state"] in ("failed", "canceled")]
        if failed:
            error = failure_of(failed[0])
            if len(failed) > 1:
                error.detail += " (and %d more VMs)" % (len(failed) - 1)
            raise error
        if plan.get("failure") and not module.params["vm"]:
            raise DecampError(plan["failure"]["kind"], "plan %s: %s" % (wait.name, plan["failure"]["text"]), plan["failure"].get("hint", ""))
    return dict(changed=False, plan=plan, vms=vms)


def main():
    run_module(
        dict(
            plan=dict(type="str", required=True),
            vm=dict(type="str"),
            until=dict(type="str", default="ended", choices=["ended", "ready"]),
            timeout=dict(type="int", default=3600),
            pause=dict(type="float", default=5),
            ignore_failures=dict(type="bool", default=False),
        ),
        do,
    )


if __name__ == "__main__":
    main()
