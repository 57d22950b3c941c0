#!/usr/bin/python
# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_info
short_description: Return plans, VMs, workers and limits
version_added: 0.1.0
description:
  - Returns the plans with their VMs, the workers and the limits of a server.
options:
  plan:
    description: Name of the plan to return. Without it, all plans are returned.
    type: str
  vms:
    description: Return the VMs of the plans.
    type: bool
    default: true
attributes:
  check_mode:
    description: The module changes nothing.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
extends_documentation_fragment:
  - decamp.decamp.server
"""

EXAMPLES = r"""
- name: Read the VMs of a plan
  decamp.decamp.fleet_info:
    plan: wave-1
  register: fleet

- name: Show VMs that failed
  ansible.builtin.debug:
    msg: "{{ fleet.vms | selectattr('state', 'equalto', 'failed') | map(attribute='failure.text') }}"
"""

RETURN = r"""
plans:
  description: The plans with the numbers of their VMs by state.
  returned: success
  type: list
  elements: dict
vms:
  description: The VMs of the plans with state, step, progress and failure.
  returned: success
  type: list
  elements: dict
workers:
  description: The workers with the folders that they offer.
  returned: success
  type: list
  elements: dict
limits:
  description: The limits that operators set.
  returned: success
  type: list
  elements: dict
"""

from ansible_collections.decamp.decamp.plugins.module_utils.decamp import run_module


def do(module, server):
    name = module.params["plan"]
    plans = [server.need_plan(name)] if name else server.items("/v1/plans")
    vms = []
    for plan in plans if module.params["vms"] else ():
        vms += server.vms(plan["name"])
    return dict(changed=False, plans=plans, vms=vms, workers=server.items("/v1/workers"), limits=server.items("/v1/limits"))


def main():
    run_module(dict(plan=dict(type="str"), vms=dict(type="bool", default=True)), do)


if __name__ == "__main__":
    main()
