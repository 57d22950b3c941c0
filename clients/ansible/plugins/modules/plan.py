#!/usr/bin/python
# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Submit, pause, cancel, withdraw or remove a plan
version_added: 0.1.0
description:
  - Submits a plan to C(decamp serve) and sends commands to it. The server migrates the VMs; the module does not wait for them.
  - The text of a submitted plan never changes. O(replace) removes a plan that has ended and submits the new text.
options:
  name:
    description: Name of the plan.
    type: str
    required: true
  definition:
    description: Content of the plan file. The keys C(version) and C(name) are added if they are missing.
    type: dict
  content:
    description: Text of the plan file. White space at its end is not compared.
    type: str
  state:
    description:
      - V(present), the plan is submitted.
      - V(paused) and V(resumed), the plan is submitted, and is paused or not.
      - V(canceled), VMs that are not published are canceled, and their images are removed.
      - V(withdrawn), as V(canceled), and published VMs are removed from their target with all data written to them since. This requires the role C(admin).
      - V(absent), the plan is removed; migrated VMs are kept. The plan must have ended. This requires the role C(admin).
    type: str
    choices: [present, paused, resumed, canceled, withdrawn, absent]
    default: present
  replace:
    description: If the plan has another text and has ended, remove it and submit the new one. This requires the role C(admin).
    type: bool
    default: false
attributes:
  check_mode:
    description: Changes nothing and reports whether the module would. The server checks the text of a plan as if it was submitted.
    support: full
  diff_mode:
    description: Returns the text, the state and the command of the plan.
    support: full
extends_documentation_fragment:
  - decamp.decamp.server
"""

EXAMPLES = r"""
- name: Submit a plan
  decamp.decamp.plan:
    server_url: https://mover:8470
    server_fingerprint: "{{ decamp_fingerprint }}"
    token_file: /etc/decamp/ci.token
    name: wave-1
    definition:
      source:
        url: esxi://root@esx1
        credentials: {name: esx1}
      vms:
        - vm: web01
          to: ["dir:/srv/vm"]

- name: Submit a plan of a file
  decamp.decamp.plan:
    name: wave-2
    content: "{{ lookup('file', 'wave-2.yaml') }}"

- name: Begin no further transfer
  decamp.decamp.plan:
    name: wave-1
    state: paused
"""

RETURN = r"""
plan:
  description: The plan as the server has it, without its text. Empty if it does not exist.
  returned: success
  type: dict
  sample: {name: wave-1, state: running, counts: {done: 2, running: 1}}
"""

import json
import re

from ansible_collections.decamp.decamp.plugins.module_utils.decamp import ENDED, FINAL, UNDOING, DecampError, run_module


def wanted_text(params):
    """Return the text that the user wants; None without one."""
    name, definition, content = params["name"], params["definition"], params["content"]
    if definition is not None:
        plan = dict({"version": 1, "name": name}, **definition)
        content = json.dumps(plan, indent=2, sort_keys=True) + "\n"
        written = plan["name"]
    elif content is None:
        return None
    else:
        written = name_in(content)
    if written != name:
        raise DecampError("invalid", "the plan is named %r in its text and %r in the task" % (written, name), "use the same name")
    return content


def name_in(text):
    """Return the name in the text of a plan, in JSON or YAML."""
    try:
        return json.loads(text)["name"]
    except (ValueError, KeyError, TypeError):
        found = re.search(r"^name:\s*([\"']?)([A-Za-z0-9._-]+)\1\s*(#.*)?$", text, re.MULTILINE)
        return found.group(2) if found else ""


class Change:
    """The change of one plan."""

    def __init__(self, module, server):
        self.check, self.params, self.server = module.check_mode, module.params, server
        self.name = module.params["name"]
        self.before = self.after = server.plan(self.name)
        self.changed = False

    def make(self, act, **expected):
        """Make a change, unless in check mode; expected has the fields of the plan after it."""
        self.changed = True
        if self.check:
            self.after = dict(self.after or {"name": self.name, "counts": {}}, **expected)
        else:
            act()
            self.after = self.server.plan(self.name)

    def submit(self):
        """Submit the text, unless the plan has it."""
        text = wanted_text(self.params)
        if text is None:
            if self.before is None:
                raise DecampError("not-found", "plan %s does not exist" % self.name, "set definition or content")
            return
        if self.before is not None and self.before["text"].rstrip() == text.rstrip():
            return
        if self.check:
            self.server.check(text)
        if self.before is None:
            self.make(lambda: self.server.submit(text), text=text, state="listing")
            return
        if self.before["state"] not in ENDED:
            raise DecampError(
                "conflict",
                "plan %s is %s with another text" % (self.name, self.before["state"]),
                "submit the new text under another name; or cancel the plan with state: canceled, and replace it when it has ended",
            )
        if not self.params["replace"]:
            raise DecampError("conflict", "plan %s has ended with another text" % self.name, "set replace: true, or submit the new text under another name")
        self.make(lambda: (self.server.drop(self.name), self.server.submit(text)), text=text, state="listing")

    def command(self, word, stored):
        """Send a command to the plan, unless it has ended or has the command."""
        if self.after["state"] not in ENDED and self.after.get("command", "") != stored:
            self.make(lambda: self.server.command(self.name, word), command=stored)

    def withdraw(self):
        """Withdraw each VM that is not canceled."""
        for vm in self.server.vms(self.name) if self.before else ():
            unused = vm["state"] == "canceled" or vm["state"] == "failed" and not vm.get("began")
            if not unused and vm.get("command") != "withdraw":
                self.make(lambda: self.server.command(self.name, "withdraw", vm["vm"]))

    def cancel(self):
        """Cancel the VMs that have not ended."""
        if self.after.get("command") not in UNDOING:
            active = sum(n for state, n in self.after["counts"].items() if state not in FINAL)
            if active or self.after["state"] not in ENDED:
                self.command("cancel", "cancel")

    def apply(self, state):
        if state == "absent":
            if self.before is not None:
                self.make(lambda: self.server.drop(self.name))
                self.after = None
            return
        if state in ("canceled", "withdrawn") and self.before is None:
            return  # nothing to undo
        if state not in ("canceled", "withdrawn"):
            self.submit()
        if state == "paused":
            self.command("pause", "pause")
        elif state == "resumed" and self.after.get("command") == "pause":
            self.command("resume", "")
        elif state == "canceled":
            self.cancel()
        elif state == "withdrawn":
            self.withdraw()


def described(plan):
    """Return a plan as text, for the diff."""
    if plan is None:
        return ""
    return "%s\n# state: %s\n# command: %s\n" % (plan.get("text", "").rstrip(), plan.get("state", ""), plan.get("command", "") or "none")


def do(module, server):
    change = Change(module, server)
    if module.check_mode and module.params["state"] == "absent" and change.before and change.before["state"] not in ENDED:
        raise DecampError("conflict", "plan %s is %s" % (change.name, change.before["state"]), "cancel it first with state: canceled")
    change.apply(module.params["state"])
    plan = dict(change.after or {})
    plan.pop("text", None)
    diff = dict(before=described(change.before), after=described(change.after), before_header=change.name, after_header=change.name)
    if not change.changed:
        diff["after"] = diff["before"]
    return dict(changed=change.changed, plan=plan, diff=diff)


def main():
    run_module(
        dict(
            name=dict(type="str", required=True),
            definition=dict(type="dict"),
            content=dict(type="str"),
            state=dict(type="str", default="present", choices=["present", "paused", "resumed", "canceled", "withdrawn", "absent"]),
            replace=dict(type="bool", default=False),
        ),
        do,
        mutually_exclusive=[("definition", "content")],
    )


if __name__ == "__main__":
    main()
