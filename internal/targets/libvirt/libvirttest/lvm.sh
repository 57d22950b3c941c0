#!/bin/sh
# Stands in for lvm in the namespaces of libvirtd.sh, under the names that libvirt calls: LVM itself keeps the volume
# group, on a loop device, and what would be the kernel's device mapper is a loop device for each volume, which has
# the volume's bytes of the same file. So a volume holds what was there before, as on a real machine, wherever the
# tests run: not every kernel has a device mapper, and each has only one, whatever the namespaces.
#
# FOLDER/lvm/VG/pv names the loop device of the group and its file; FOLDER/lvm/VG/LV.dev that of an active volume, and
# LV.pid who holds it: a loop device goes when nobody has it open any more, so none outlives the namespaces.
set -eu
state=$(cat /run/libvirt/folder)/lvm
real=/run/libvirt/lvm
export LVM_SUPPRESS_FD_WARNINGS=1
start=1048576 # of the first extent, in bytes: vgcreate's --dataalignment

say() {
	echo "$*" >&2
}

# lvm runs the real one, which sees only what is ours and never asks the device mapper.
lvm() {
	command=$1
	shift
	filter='"r|.*|"'
	for pv in "$state"/*/pv; do
		[ ! -e "$pv" ] || filter="\"a|^$(head -n 1 "$pv")\$|\",$filter"
	done
	"$real" "$command" --driverloaded n --config "devices { use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source=\"none\" hints=\"none\" filter=[$filter] }
		backup { backup=0 archive=0 } activation { udev_sync=0 udev_rules=0 verify_udev_operations=0 }" "$@"
}

# loop FILE OPTION... makes a loop device, and names it in made.
loop() {
	file=$1
	shift
	for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		made=$(losetup -f)
		[ -e "$made" ] || mknod "$made" b 7 "${made#/dev/loop}"
		losetup "$@" "$made" "$file" 2>/dev/null && return 0 # or else somebody else was first
	done
	say "no loop device for $file, try $try"
	return 1
}

# hold DEVICE PIDFILE keeps a loop device until its holder is killed.
hold() {
	exec 9<"$1"
	setsid sleep 2147483647 </dev/null >/dev/null 2>&1 3>&- &
	echo $! >"$2"
	exec 9<&-
	losetup -d "$1" # once it is let go
}

# activate VG LV makes the device of a volume.
activate() {
	at=$state/$1/$2
	[ ! -e "$at.dev" ] || return 0
	set -- "$1" "$2" $(lvm lvs --noheadings --nosuffix --units b --options devices,seg_size,vg_extent_size "$1/$2" 2>/dev/null)
	first=${3##*\(}
	loop "$(tail -n 1 "$state/$1/pv")" --offset $((start + ${first%\)} * $5)) --sizelimit "$4"
	hold "$made" "$at.pid"
	mkdir -p "/dev/$1"
	ln -sf "$made" "/dev/$1/$2"
	echo "$made" >"$at.dev"
}

# deactivate VG LV refuses what is still open.
deactivate() {
	at=$state/$1/$2
	[ -e "$at.dev" ] || return 0
	device=$(cat "$at.dev")
	kill "$(cat "$at.pid")" 2>/dev/null || :
	for try in 1 2 3 4 5 6 7 8 9 10; do # the kernel takes a moment
		[ -e "/sys/block/${device#/dev/}/loop" ] || break
		sleep 0.05
	done
	if [ -e "/sys/block/${device#/dev/}/loop" ]; then
		hold "$device" "$at.pid"
		say "  Logical volume $1/$2 in use. ($try)"
		return 5
	fi
	rm -f "$at.dev" "$at.pid" "/dev/$1/$2"
	rmdir "/dev/$1" 2>/dev/null || :
}

# each VERB VG does it to all volumes of a group.
each() {
	for name in $(lvm lvs --noheadings --options lv_name "$2" 2>/dev/null); do
		"$1" "$2" "$name"
	done
}

# last prints the last argument that is no option, without a leading /dev.
last() {
	for each; do
		case $each in -*) ;; *) found=$each ;; esac
	done
	echo "${found#/dev/}"
}

name=$(basename "$0")
[ "$name" != lvm ] || { name=$1; shift; }
case "$name $*" in
"make "*) # VG FILE
	loop "$2"
	mkdir -p "$state/$1"
	printf '%s\n%s\n' "$made" "$2" >"$state/$1/pv"
	hold "$made" "$state/$1/pv.pid"
	told=$(lvm vgcreate -y --dataalignment ${start}b "$1" "$made" 2>&1) || { say "$told"; exit 1; }
	;;
"unmake "*) # VG
	each deactivate "$1"
	kill "$(cat "$state/$1/pv.pid")"
	rm -r "${state:?}/$1"
	;;
vgchange\ *-a*n\ *) each deactivate "$(last "$@")" ;;
vgchange\ *) each activate "$(last "$@")" ;;
lvchange\ *-a*n\ *) volume=$(last "$@"); deactivate "${volume%/*}" "${volume#*/}" ;;
lvcreate\ *--name\ *)
	group=$(last "$@")
	lvm lvcreate --alloc contiguous -an -Zn -Wn "$@" >&2
	while [ "$1" != --name ]; do shift; done
	activate "$group" "$2"
	dd if=/dev/zero of="/dev/$group/$2" bs=4096 count=1 conv=notrunc status=none # as lvcreate does to an active one
	;;
lvremove\ *)
	volume=$(last "$@")
	deactivate "${volume%/*}" "${volume#*/}"
	lvm lvremove -f "$volume" >&2
	;;
lvs\ *) lvm lvs "$@" | sed -E 's/(....)XX(....)$/\1a-\2/' ;;
*) lvm "$name" "$@" ;;
esac
