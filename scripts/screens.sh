#!/usr/bin/env bash
# Records the terminal screens of the documentation into docs/screens: commands on an emulated host.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/docs-venv.sh
. scripts/lab.sh

folder=$(mktemp -d)
trap 'stop_lab; rm -rf "$folder"' EXIT
cat >"$folder/config.json" <<'END'
{
  "addr": "127.0.0.1:0",
  "vms": [
    {"name": "web01", "changeTracking": true, "cpus": 2, "memoryMB": 2048, "nics": [{}], "disks": [{"capacity": "2GiB", "fill": 30, "seed": 1}]},
    {"name": "db01", "poweredOn": true, "cpus": 8, "memoryMB": 16384, "nics": [{}], "disks": [{"capacity": "8GiB", "fill": 40, "seed": 4}]},
    {"name": "old01", "snapshots": ["before update"], "nics": [{"model": "e1000"}], "disks": [{"capacity": "1GiB", "fill": 50, "seed": 5}]}
  ],
  "limits": {"connRate": 55000000, "datastoreRate": 300000000}
}
END
start_lab "$folder"
"$venv/bin/python" scripts/screens.py docs/screens "$(lab_value url)" "$(lab_value passwordFile)" "$(lab_value fingerprint)"
ls docs/screens
