#!/bin/sh
# Runs a libvirt of its own, whose socket is FOLDER/sock/libvirt-sock:
#
#   unshare --mount --net --pid --fork --kill-child --mount-proc sh libvirtd.sh FOLDER
#
# It reads words: start has libvirtd run, kill kills it, network makes the network default, boot NAME
# starts a domain, whose serial port is copied to FOLDER/console, vg NAME FILE makes a volume group in a file, and
# novg NAME takes it away (lvm.sh). Each is repeated on standard output once it is done. All of libvirt's folders are new here, so the machine's own libvirt sees nothing of it
# and keeps nothing; whatever is still running ends with this script, which is when its input ends.
set -eu
folder=$1
virsh="virsh -q -c qemu:///system?socket=$folder/sock/libvirt-sock"

# /var/lock has the locks of consoles by the names of their terminals, such as pts/0, which each libvirt here has.
for each in /etc/libvirt /run/libvirt /var/lib/libvirt /var/cache/libvirt /var/log/libvirt /var/lock; do
	mkdir -p "$each"
	mount -t tmpfs tmpfs "$each"
done
# Without control groups: those of another libvirt's domain have the same names.
! mountpoint -q /sys/fs/cgroup || umount -R -l /sys/fs/cgroup
mkdir -p /etc/libvirt/qemu/networks "$folder/sock"
printf 'security_driver = "none"\nnamespaces = []\nuser = "root"\ngroup = "root"\nswtpm_user = "root"\nswtpm_group = "root"\n' >/etc/libvirt/qemu.conf
printf 'unix_sock_dir = "%s"\nauth_unix_rw = "none"\nlog_outputs = "3:file:%s"\n' "$folder/sock" "$folder/log" >/etc/libvirt/libvirtd.conf

# A /dev without kvm: only emulation is asked for, and where KVM is there but does not
# work well, libvirt asks QEMU for its capabilities again at every step.
mount -t tmpfs tmpfs /mnt
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /mnt
mkdir /mnt/pts /mnt/shm /mnt/net
cp -a /dev/net/tun /mnt/net
mount -t devpts -o newinstance,ptmxmode=0666 devpts /mnt/pts
ln -s pts/ptmx /mnt/ptmx
cp -a /dev/loop-control /mnt
mount --bind /dev/shm /mnt/shm # the folder of temporary files may be there
mount --move /mnt /dev

# LVM, with a device mapper of ours.
echo "$folder" >/run/libvirt/folder
mkdir "$folder/lvm"
lvm=$(readlink -f /usr/sbin/lvm)
cp "$lvm" /run/libvirt/lvm
cp "$folder/lvm.sh" /run/libvirt/lvm.sh
chmod +x /run/libvirt/lvm.sh
mount --bind /run/libvirt/lvm.sh "$lvm"

main() {
	virtlogd -d -p /run/libvirt/virtlogd.pid # there may be others
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
			cat "$($virsh ttyconsole "$name" | head -n 1)" >"$folder/console" 2>/dev/null & # ends when the guest does
			$virsh resume "$name" >&2
			;;
		esac
		echo "$word"
	done
}

# This shell is process 1 here and has to bury the children of others: libvirt waits
# for each QEMU it asked for its capabilities to be gone.
exec 3<&0
main <&3 &
wait $!
