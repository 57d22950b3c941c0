#!/usr/bin/env bash
# Migrates a VM with a real Linux guest from an emulated ESXi, verifies the images, and boots the guest from the
# definition that decamp wrote.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lab.sh

demo=$PWD/build/demo
mac=00:50:56:9a:bc:01
uuid=564d4e6f-1c2b-4a3d-8e5f-0123456789ab

# show prints a command as one would type it, and runs it.
show() {
	printf '\n\033[1m$ %s\033[0m\n' "$*"
	"$@"
}

go run ./test/guest/cmd/buildguest >/dev/null
rm -rf "$demo"
mkdir -p "$demo/vms"
cat >"$demo/config.json" <<END
{
  "addr": "127.0.0.1:0",
  "vms": [
    {
      "name": "web01", "changeTracking": true, "guestId": "debian12_64Guest",
      "uuid": "$uuid", "cpus": 2, "memoryMB": 512, "poweredOn": true,
      "guest": {"shutdownDelay": "1s"},
      "nics": [{"model": "vmxnet3", "mac": "$mac", "addressType": "manual"}],
      "disks": [
        {"file": "$PWD/build/guest/tiny-novirtio.raw", "controller": "pvscsi"},
        {"capacity": "1GiB", "fill": 40, "seed": 7, "controller": "pvscsi"}
      ]
    },
    {
      "name": "db01", "poweredOn": true, "snapshots": ["before update"],
      "disks": [{"capacity": "16GiB", "fill": 10, "seed": 8}]
    }
  ],
  "limits": {"connRate": 55000000, "datastoreRate": 300000000}
}
END

trap stop_lab EXIT
start_lab "$demo"

export DECAMP_PASSWORD_FILE
DECAMP_PASSWORD_FILE=$(lab_value passwordFile)
source=$(lab_value url)
args=(--fingerprint "$(lab_value fingerprint)" --state "$demo/state")

show ./decamp ls "$source" "${args[@]}"
show ./decamp migrate "$source" web01 --to "dir:$demo/vms" --power-off --domain-type qemu "${args[@]}"
show ./decamp verify "$demo/vms/web01"
(cd "$demo/vms/web01" && for sums in *.sha256; do show sha256sum -c "$sums"; done)

printf '\nBooting %s under QEMU without KVM:\n' "$demo/vms/web01/domain.xml"
show go run ./test/boot/cmd/bootvm -mac "$mac" -uuid "$uuid" -driver vmw_pvscsi -card vmxnet3 \
	-firmware bios -log "$demo/serial.log" "$demo/vms/web01/domain.xml"
printf '\nweb01 moved, its images verified, and booted with its identity. See %s.\n' "$demo/vms/web01"
