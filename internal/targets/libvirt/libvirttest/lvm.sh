#!/bin/sh
# Replaces lvm and its commands in the namespaces of libvirtd.sh. The real LVM manages the volume group on a loop device.
# A loop device for each volume, with the volume's part of the same file, replaces the kernel's device mapper: some
# kernels have none, and it has no namespaces. As on a real machine, a new volume has the old content of its blocks.
#
# FOLDER/lvm/VG/pv contains the loop device of the group and its file, LV.dev the loop device of an active volume and its
# offset in that file, and LV.pid the process that keeps it open. A loop device is removed when no process has it open, so
# none remains when the namespaces end.
set -eu
state=$(cat /run/libvirt/folder)/lvm
real=/run/libvirt/lvm
export LVM_SUPPRESS_FD_WARNINGS=1
start=1048576 # offset of the first extent in bytes; --dataalignment of vgcreate

print_error() {
	echo "$*" >&2
}

# lvm runs the real lvm, which sees only our loop devices and does not use the device mapper.
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

# loop FILE OPTION... creates a loop device, and sets made to its path.
loop() {
	file=$1
	shift
	for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		made=$(losetup -f)
		[ -e "$made" ] || mknod "$made" b 7 "${made#/dev/loop}"
		losetup "$@" "$made" "$file" 2>/dev/null && return 0 # another process may have been first
	done
	print_error "no loop device for $file, try $try"
	return 1
}

# is_attached DEVICE FILE OFFSET reports whether a loop device is still attached to this part of a file. As soon as the
# kernel removes a loop device, another process can create one with the same name.
is_attached() {
	attached=/sys/block/${1#/dev/}/loop
	[ "$(cat "$attached/backing_file" 2>/dev/null)" = "$2" ] && [ "$(cat "$attached/offset" 2>/dev/null)" = "$3" ]
}

# hold DEVICE FILE OFFSET PIDFILE starts a process that keeps a loop device until it is killed, and writes its ID to
# PIDFILE. It fails if the device was removed.
hold() {
	exec 9<"$1"
	is_attached "$1" "$2" "$3" || { exec 9<&-; return 1; } # nothing removes it while it is open
	setsid sleep 2147483647 </dev/null >/dev/null 2>&1 3>&- &
	echo $! >"$4"
	exec 9<&-
	losetup -d "$1" # the kernel removes it after the last close
}

# activate VG LV creates the device of a volume.
activate() {
	at=$state/$1/$2
	[ ! -e "$at.dev" ] || return 0
	file=$(tail -n 1 "$state/$1/pv")
	set -- "$1" "$2" $(lvm lvs --noheadings --nosuffix --units b --options devices,seg_size,vg_extent_size "$1/$2" 2>/dev/null)
	first=${3##*\(}
	offset=$((start + ${first%\)} * $5))
	loop "$file" --offset $offset --sizelimit "$4"
	hold "$made" "$file" $offset "$at.pid"
	mkdir -p "/dev/$1"
	ln -sf "$made" "/dev/$1/$2"
	echo "$made $offset" >"$at.dev"
}

# deactivate VG LV removes the device of a volume, and fails if it is open.
deactivate() {
	at=$state/$1/$2
	[ -e "$at.dev" ] || return 0
	file=$(tail -n 1 "$state/$1/pv")
	read -r device offset <"$at.dev"
	kill "$(cat "$at.pid")" 2>/dev/null || :
	for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do # the kernel removes the device with a delay
		is_attached "$device" "$file" "$offset" || break
		sleep 0.05
	done
	if hold "$device" "$file" "$offset" "$at.pid" 2>/dev/null; then
		print_error "  Logical volume $1/$2 in use. ($try)"
		return 5
	fi
	rm -f "$at.dev" "$at.pid" "/dev/$1/$2"
	rmdir "/dev/$1" 2>/dev/null || :
}

# each FUNCTION VG calls a function for each volume of a group.
each() {
	for name in $(lvm lvs --noheadings --options lv_name "$2" 2>/dev/null); do
		"$1" "$2" "$name"
	done
}

# last prints the last argument that is not an option, without a leading /dev.
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
	hold "$made" "$2" 0 "$state/$1/pv.pid"
	output=$(lvm vgcreate -y --dataalignment ${start}b "$1" "$made" 2>&1) || { print_error "$output"; exit 1; }
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
	dd if=/dev/zero of="/dev/$group/$2" bs=4096 count=1 conv=notrunc status=none # lvcreate wipes the start of an active volume
	;;
lvremove\ *)
	volume=$(last "$@")
	deactivate "${volume%/*}" "${volume#*/}"
	lvm lvremove -f "$volume" >&2
	;;
lvs\ *) lvm lvs "$@" | sed -E 's/(....)XX(....)$/\1a-\2/' ;;
*) lvm "$name" "$@" ;;
esac
