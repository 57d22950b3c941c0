#!/usr/bin/python
# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: source_info
short_description: Check that the server has a credential for a source
version_added: 0.1.0
description:
  - Returns the named credentials that plans of the token's role may use, without secrets. With O(name) or O(url) it fails if none matches.
  - An administrator writes credentials into the access file of the server and of each worker. The API cannot change them.
options:
  name:
    description: Name of a credential.
    type: str
  url:
    description: URL of a source, such as V(esxi://root@esx1), which the credential must be bound to.
    type: str
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
- name: Check the credential before a plan uses it
  decamp.decamp.source_info:
    name: vc1
    url: vcenter://ops@vsphere.local@vc1.example.com
"""

RETURN = r"""
credentials:
  description: The credentials that match, each with C(name), C(url) and C(fingerprint), or C(hosts) if it is for SSH.
  returned: success
  type: list
  elements: dict
"""

from urllib.parse import urlsplit

from ansible_collections.decamp.decamp.plugins.module_utils.decamp import DecampError, run_module


def source_of(url):
    """Return the parts of a URL that identify a source."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.username, parts.hostname, parts.port or 443
    except ValueError as error:
        raise DecampError("invalid", "url: %s" % error, "write esxi://USER@HOST or vcenter://USER@HOST")


def do(module, server):
    name, url = module.params["name"], module.params["url"]
    found = server.items("/v1/credentials")
    if name:
        found = [c for c in found if c["name"] == name]
        if not found:
            raise DecampError(
                "not-found",
                "the server has no credential %r for plans of this role" % name,
                "an administrator adds it to access.yaml on the server and on each worker, with roles: [operate]",
            )
    if url:
        bound = [c for c in found if c.get("url") and source_of(c["url"]) == source_of(url)]
        if not bound:
            to = " is bound to %s, not to %s" % (found[0].get("url") or "SSH", url) if name else "s of the server are not bound to %s" % url
            raise DecampError("conflict" if name else "not-found", "the credential" + to, "an administrator adds a credential with this url to access.yaml")
        found = bound
    return dict(changed=False, credentials=found)


def main():
    run_module(dict(name=dict(type="str"), url=dict(type="str")), do)


if __name__ == "__main__":
    main()
