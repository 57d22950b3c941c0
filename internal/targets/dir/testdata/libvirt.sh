#!/bin/sh
# Runs a libvirt of its own and boots a domain with it:
#
#   unshare --mount --net --pid --fork --kill-child --mount-proc sh libvirt.sh define.d [boot.xml]
#
# All of libvirt's folders are new here, so the machine's own libvirt sees nothing of it
# and keeps nothing; whatever is still running ends with this script. Every domain in
# define.d is defined and undefined again; boot.xml is started, and its serial port
# copied to standard output.
set -eu
define=$1 boot=${2-}

for folder in /etc/libvirt /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt; do
	mkdir -p "$folder"
	mount -t tmpfs tmpfs "$folder"
done
mkdir -p /etc/libvirt/qemu/networks
printf 'security_driver = "none"\nnamespaces = []\n' >/etc/libvirt/qemu.conf

# A /dev without kvm: only emulation is asked for, and where KVM is there but does not
# work well, libvirt asks QEMU for its capabilities again at every step.
mount -t tmpfs tmpfs /mnt
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /mnt
mkdir /mnt/pts /mnt/shm /mnt/net
cp -a /dev/net/tun /mnt/net
mount -t devpts -o newinstance,ptmxmode=0666 devpts /mnt/pts
ln -s pts/ptmx /mnt/ptmx
mount --move /mnt /dev

say() { echo "libvirt.sh: $*" >&2; }

main() {
	virtlogd -d
	libvirtd -d
	tries=0
	until virsh -q list >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || { say "libvirtd does not answer"; exit 1; }
		sleep 0.2
	done
	echo '<network><name>default</name><bridge name="virbr0"/></network>' >/run/libvirt/default.xml
	virsh -q net-create /run/libvirt/default.xml >&2

	for xml in "$define"/*.xml; do
		name=$(virsh define --validate "$xml" | sed -n "s/^Domain '\(.*\)' defined from .*/\1/p")
		[ -n "$name" ] || { say "cannot define $xml"; exit 1; }
		virsh -q undefine --nvram "$name" >&2
		echo "DEFINED $(basename "$xml")"
	done

	[ -n "$boot" ] || return 0
	virsh -q define --validate "$boot" >&2
	name=$(virsh -q list --all --name | head -n 1)
	virsh -q start --paused "$name" >&2
	cat "$(virsh ttyconsole "$name" | head -n 1)" &
	virsh -q resume "$name" >&2
	wait
}

# This shell is process 1 here and has to bury the children of others: libvirt waits
# for each QEMU it asked for its capabilities to be gone.
main &
wait $!
