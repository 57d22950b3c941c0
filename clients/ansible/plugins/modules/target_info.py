#!/usr/bin/python
# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: target_info
short_description: Check that the server offers a destination
version_added: 0.1.0
description:
  - Returns the folders that workers offer and the named places that plans of the token's role may use. With O(destination) it fails if none matches.
  - A folder is offered by C(decamp serve --offer) or C(decamp worker --offer). An administrator writes places into the access file. The API cannot change them.
options:
  destination:
    description: A destination of a plan, V(dir:/FOLDER) or V(place:NAME?staging=/FOLDER).
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
- name: Check the folder before a plan uses it
  decamp.decamp.target_info:
    destination: dir:/srv/vm
"""

RETURN = r"""
folders:
  description: The offered folders, each with the names of the workers that offer it and are not drained.
  returned: success
  type: dict
places:
  description: The named places, each with C(name) and C(to).
  returned: success
  type: list
  elements: dict
"""

import posixpath
from urllib.parse import parse_qs

from ansible_collections.decamp.decamp.plugins.module_utils.decamp import DecampError, run_module


def offered_folders(workers):
    """Return the workers of each folder. Those that have left or are drained begin no VM."""
    folders = {}
    for worker in workers:
        if worker["alive"] and not worker.get("drains"):
            for folder in worker["offers"]:
                folders.setdefault(folder, []).append(worker["name"])
    return folders


def check_destination(destination, folders, places):
    """Raise an error if the server does not offer a destination."""
    kind, sep, address = destination.partition(":")
    address, sep, query = address.partition("?")
    if kind == "place":
        if address not in [p["name"] for p in places]:
            raise DecampError(
                "not-found",
                "the server has no place %r for plans of this role" % address,
                "an administrator adds it to access.yaml on the server and on each worker, with roles: [operate]",
            )
        address = (parse_qs(query).get("staging") or [""])[0]
    elif kind != "dir":
        raise DecampError("invalid", "the destination is %r" % destination, "write dir:/FOLDER or place:NAME?staging=/FOLDER")
    folder = posixpath.normpath(address)
    if not any(folder == f or folder.startswith(f.rstrip("/") + "/") for f in folders):
        raise DecampError("not-found", "no worker offers the folder %s" % folder, "offer it: decamp serve --offer, decamp worker --offer")


def do(module, server):
    folders, places = offered_folders(server.items("/v1/workers")), server.items("/v1/places")
    if module.params["destination"]:
        check_destination(module.params["destination"], folders, places)
    return dict(changed=False, folders=folders, places=places)


def main():
    run_module(dict(destination=dict(type="str")), do)


if __name__ == "__main__":
    main()
