# Copyright the decamp authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations


class ModuleDocFragment:

    DOCUMENTATION = r"""
options:
  server_url:
    description:
      - Address of C(decamp serve), such as V(https://mover:8470).
      - If the option is not set, the environment variable E(DECAMP_SERVER) is used.
    type: str
    required: true
  server_fingerprint:
    description:
      - SHA-256 fingerprint of the certificate of the server, which C(decamp serve) prints.
      - Without it, a CA of O(server_ca) or of the system must have signed the certificate.
    type: str
  server_ca:
    description: PEM file with the CA of the server.
    type: path
  token:
    description: Token of C(decamp token add). It takes precedence over O(token_file).
    type: str
  token_file:
    description:
      - File with the token.
      - If the option is not set, the environment variable E(DECAMP_TOKEN_FILE) is used.
    type: path
  request_timeout:
    description: Time limit of one request, in seconds.
    type: int
    default: 60
author:
  - The decamp authors (@decamp)
"""
