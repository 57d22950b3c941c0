#!/bin/sh
# Runs a private libvirt with the socket FOLDER/sock/libvirt-sock:
#
#   unshare --mount --net --pid --fork --kill-child --mount-proc sh libvirtd.sh FOLDER
#
# It reads commands from standard input, and repeats the name of each on standard output when it is done:
#
#   start         start libvirtd
#   kill          kill libvirtd
#   network       create the network "default"
#   boot NAME     start a domain, and copy the output of its serial port to FOLDER/console
#   vg NAME FILE  create a volume group in a file (lvm.sh)
#   novg NAME     remove the volume group
#
# All folders of libvirt are new and private, so the libvirt of the machine is not changed. The script ends with its
# input, and all its processes end with it.
set -eu
folder=$1
virsh="virsh -q -c qemu:///system?socket=$folder/sock/libvirt-sock"

# The locks of consoles in /var/lock have names of terminals, such as pts/0, which several libvirts have.
for each in /etc/libvirt /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /var/lock; do
	mkdir -p "$each"
	mount -t tmpfs tmpfs "$each"
done
# No control groups: the domains of another libvirt would have the same names.
! mountpoint -q /sys/fs/cgroup || umount -R -l /sys/fs/cgroup
mkdir -p /etc/libvirt/qemu/networks "$folder/sock"
printf 'security_driver = "none"\nnamespaces = []\nuser = "root"\ngroup = "root"\nswtpm_user = "root"\nswtpm_group = "root"\n' >/etc/libvirt/qemu.conf
printf 'unix_sock_dir = "%s"\nauth_unix_rw = "none"\nlog_outputs = "3:file:%s"\n' "$folder/sock" "$folder/log" >/etc/libvirt/libvirtd.conf

# A /dev without kvm: tests use emulation only. If KVM exists and does not work, libvirt would probe the capabilities of
# QEMU again for each command.
mount -t tmpfs tmpfs /mnt
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /mnt
mkdir /mnt/pts /mnt/shm /mnt/net
cp -a /dev/net/tun /mnt/net
mount -t devpts -o newinstance,ptmxmode=0666 devpts /mnt/pts
ln -s pts/ptmx /mnt/ptmx
cp -a /dev/loop-control /mnt
mount --bind /dev/shm /mnt/shm # the folder of temporary files may be there
mount --move /mnt /dev

# LVM with our replacement of the device mapper.
echo "$folder" >/run/libvirt/folder
mkdir "$folder/lvm"
lvm=$(readlink -f /usr/sbin/lvm)
cp "$lvm" /run/libvirt/lvm
cp "$folder/lvm.sh" /run/libvirt/lvm.sh
chmod +x /run/libvirt/lvm.sh
mount --bind /run/libvirt/lvm.sh "$lvm"

main() {
	virtlogd -d -p /run/libvirt/virtlogd.pid # others may run on this machine
	while read -r word name; do
		case $word in
		start)
			rm -f "$folder/sock/libvirt-sock"
			libvirtd -d -p /run/libvirt/test.pid
			until [ -S "$folder/sock/libvirt-sock" ]; do sleep 0.1; done
			;;
		kill) kill -9 "$(cat /run/libvirt/test.pid)" ;;
		network)
			echo '<network><name>default</name><bridge name="virbr0"/></network>' >/run/libvirt/default.xml
			$virsh net-create /run/libvirt/default.xml >&2
			;;
		vg) lvm make "${name%% *}" "${name#* }" ;;
		novg) lvm unmake "$name" ;;
		boot)
			$virsh start --paused "$name" >&2
			cat "$($virsh ttyconsole "$name" | head -n 1)" >"$folder/console" 2>/dev/null & # ends with the guest
			$virsh resume "$name" >&2
			;;
		esac
		echo "$word"
	done
}

# This shell is process 1 of the namespace and must reap orphans: libvirt waits until each QEMU that it probed has ended.
exec 3<&0
main <&3 &
wait $!
