#!/usr/bin/env bash
# Records the terminal screens of the documentation into docs/screens: commands on an emulated host.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/docs-venv.sh

folder=$(mktemp -d)
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
./decamp-lab --config "$folder/config.json" --json >"$folder/lab.json" &
lab=$!
trap 'kill "$lab" 2>/dev/null; wait "$lab" 2>/dev/null || :; rm -rf "$folder"' EXIT
for _ in $(seq 600); do
	[ ! -s "$folder/lab.json" ] || break
	kill -0 "$lab" 2>/dev/null || { echo "screens: the emulator did not start" >&2; exit 1; }
	sleep 0.1
done
# fact NAME prints a value of the line that the emulator printed.
fact() { grep -o "\"$1\":\"[^\"]*\"" "$folder/lab.json" | head -n 1 | cut -d '"' -f 4; }
"$venv/bin/python" scripts/screens.py docs/screens "$(fact url)" "$(fact passwordFile)" "$(fact fingerprint)"
ls docs/screens
