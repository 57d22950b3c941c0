#!/bin/sh
# Generates the Python client from docs/schema/openapi/v1.json into the folder $1; default: the client's.
set -eu
cd "$(dirname "$0")/.."
bin=$(pwd)/build/clients/bin
[ -x "$bin/openapi-python-client" ] || { echo "generate-client: no build/clients: run scripts/setup.sh test" >&2; exit 1; }
out=${1-clients/python/src/decamp_client/generated}
rm -rf "$out"
PATH="$bin:$PATH" RUFF_NO_CACHE=true PYTHONHASHSEED=0 openapi-python-client generate --path docs/schema/openapi/v1.json \
	--meta none --config clients/python/generator.yml --output-path "$out" --fail-on-warning >/dev/null
