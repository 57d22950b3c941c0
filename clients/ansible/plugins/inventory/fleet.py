# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: VMs of decamp plans as hosts
version_added: 0.1.0
description:
  - Returns the VMs of plans as hosts, in the groups C(plan_NAME) and C(state_STATE), and as variables C(decamp_...).
  - The name of the file ends with V(decamp.yml) or V(decamp.yaml).
  - The API does not know the addresses of guests. Without C(compose) for C(ansible_host), Ansible connects to the name of the VM.
options:
  plugin:
    description: Name of the plugin.
    required: true
    choices: [decamp.decamp.fleet]
  server_url:
    description: Address of C(decamp serve), such as V(https://mover:8470).
    type: str
    required: true
    env:
      - name: DECAMP_SERVER
  plans:
    description: Names of the plans. Without it, all plans are used.
    type: list
    elements: str
    default: []
  states:
    description: States of the VMs that become hosts.
    type: list
    elements: str
    default: [done]
  server_fingerprint:
    description: SHA-256 fingerprint of the certificate of the server.
    type: str
  server_ca:
    description: PEM file with the CA of the server.
    type: path
  token:
    description: Token of C(decamp token add). The role C(view) is sufficient.
    type: str
  token_file:
    description: File with the token.
    type: path
    env:
      - name: DECAMP_TOKEN_FILE
  request_timeout:
    description: Time limit of one request, in seconds.
    type: int
    default: 60
extends_documentation_fragment:
  - constructed
author:
  - The decamp authors (@decamp)
"""

EXAMPLES = r"""
# decamp.yml
plugin: decamp.decamp.fleet
server_url: https://mover:8470
server_fingerprint: "AB:CD:..."
token_file: /etc/decamp/view.token
plans: [wave-1]
compose:
  ansible_host: inventory_hostname ~ ".example.com"
"""

from ansible.constants import LOCALHOST
from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable

from ansible_collections.decamp.decamp.plugins.module_utils.decamp import DecampError, Server, read_token

# fields of a VM that become variables
FIELDS = {"vm": "ref"}
FIELDS.update((name, name) for name in ("name", "plan", "state", "to", "source", "worker", "failure"))


class InventoryModule(BaseInventoryPlugin, Constructable):

    NAME = "decamp.decamp.fleet"

    def verify_file(self, path):
        return super(InventoryModule, self).verify_file(path) and path.endswith(("decamp.yml", "decamp.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super(InventoryModule, self).parse(inventory, loader, path, cache)
        self._read_config_data(path)
        try:
            self.add_vms(self.read_vms())
        except DecampError as error:
            raise AnsibleParserError("%s: %s" % (path, error.text()))

    def read_vms(self):
        """Return the chosen VMs of the server."""
        token = read_token(self.get_option("token"), self.get_option("token_file"))
        server = Server(
            self.get_option("server_url"), token, self.get_option("server_fingerprint"), self.get_option("server_ca"), self.get_option("request_timeout")
        )
        plans = self.get_option("plans") or [p["name"] for p in server.items("/v1/plans")]
        return [vm for plan in plans for vm in server.vms(plan) if vm["state"] in self.get_option("states")]

    def add_vms(self, vms):
        """Add the VMs as hosts. VMs with the same name, or with one that means the controller, are named PLAN_REFERENCE."""
        count = {}
        for vm in vms:
            count[vm["name"]] = count.get(vm["name"], 0) + 1
        strict = self.get_option("strict")
        for vm in vms:
            unique = count[vm["name"]] == 1 and vm["name"] not in LOCALHOST
            host = self.inventory.add_host(vm["name"] if unique else "%s_%s" % (vm["plan"], vm["vm"]))
            variables = dict(("decamp_" + to, vm[field]) for field, to in FIELDS.items() if field in vm)
            variables["decamp_warm"] = vm.get("warm", False)
            for name, value in variables.items():
                self.inventory.set_variable(host, name, value)
            variables["inventory_hostname"] = host
            for group in ("plan_" + vm["plan"], "state_" + vm["state"]):
                self.inventory.add_child(self.inventory.add_group(self._sanitize_group_name(group)), host)
            self._set_composite_vars(self.get_option("compose"), variables, host, strict=strict)
            self._add_host_to_composed_groups(self.get_option("groups"), variables, host, strict=strict)
            self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host, strict=strict)
