#!/bin/sh
# Prints a line about this boot on the serial port, in the form of package boot.
set -u

# driver DEVICE prints the driver of the controller that a device in /sys belongs to.
driver() {
	dir=$(readlink -f "$1")
	while [ "$dir" != /sys ] && [ "$dir" != / ]; do
		name=$(basename "$(readlink "$dir/driver" || :)")
		case $name in
		'' | sd) ;;
		*)
			echo "$name"
			return
			;;
		esac
		dir=$(dirname "$dir")
	done
	echo '?'
}

# cards prints NAME=MAC/DRIVER of each network card, separated by commas.
cards() {
	for link in /sys/class/net/*; do
		[ ! -e "$link/device" ] || echo "$(basename "$link")=$(cat "$link/address")/$(driver "$link/device")"
	done | paste -sd, -
}

# addresses prints ADDRESS@NAME/MAC of each IPv4 address, separated by commas.
addresses() {
	ip -o -4 addr show scope global | while read -r _ name _ address _; do
		echo "$address@$name/$(cat "/sys/class/net/$name/address")"
	done | paste -sd, -
}

# kernel_argument NAME prints the value of an argument of the kernel.
kernel_argument() {
	tr ' ' '\n' </proc/cmdline | sed -n "s/^$1=//p"
}

root=$(findmnt -nvo SOURCE /)
part=$(basename "$(readlink -f "$root")")
while below=$(ls "/sys/class/block/$part/slaves" 2>/dev/null | head -n 1) && [ -n "$below" ]; do
	part=$below # the partition of a logical volume
done
disk=$(basename "$(dirname "$(readlink -f "/sys/class/block/$part")")")

boots=$(($(cat /var/lib/boots) + 1))
echo $boots >/var/lib/boots
firmware=bios
[ ! -d /sys/firmware/efi ] || firmware=efi

left=120
while [ -z "$(addresses)" ] && [ $left -gt 0 ]; do
	left=$((left - 1))
	sleep 1
done

net=$(cards)
ip=$(addresses)
printf '\nDECAMP-MARKER boot=ok n=%s root=%s by=%s disk=%s,%s net=%s ip=%s uuid=%s fw=%s up=%s\n' \
	"$boots" "$root" "$(kernel_argument root)" "$disk" "$(driver "/sys/class/block/$disk/device")" "${net:-none}" "${ip:-none}" \
	"$(cat /sys/class/dmi/id/product_uuid)" "$firmware" "$(cut -d ' ' -f 1 /proc/uptime)" >/dev/ttyS0
