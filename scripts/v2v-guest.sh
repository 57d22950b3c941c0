#!/bin/sh
# Builds build/v2v/debian.raw, a Debian guest of VMware: its root is /dev/sda1, and its initramfs has pvscsi, but not
# virtio. It prints V2V-MARKER at boot. The first run takes two minutes and 1 GiB, and requires root.
set -eu
cd "$(dirname "$0")/.."
[ ! -e build/v2v/debian.raw ] || exit 0
PATH="$PATH:/usr/sbin:/sbin"
mkdir -p build/v2v
tmp=$(mktemp -d build/v2v/new.XXXXXX)
trap 'umount "$tmp/root/proc" 2>/dev/null || true; rm -rf "$tmp"' EXIT
root=$tmp/root image=$tmp/debian.raw
mkdir "$root"

mmdebstrap --quiet --variant=minbase --include=systemd-sysv,udev,linux-image-cloud-amd64,grub-pc,initramfs-tools \
	--aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/doc/*' bookworm "$tmp/root.tar"
tar -C "$root" -xf "$tmp/root.tar" --exclude='./dev/*'

echo deb12 >"$root/etc/hostname"
echo '/dev/sda1 / ext4 errors=remount-ro 0 1' >"$root/etc/fstab"
sed -i 's/^MODULES=.*/MODULES=list/' "$root/etc/initramfs-tools/initramfs.conf"
printf 'ext4\nsd_mod\nvmw_pvscsi\nvmxnet3\n' >"$root/etc/initramfs-tools/modules"
mount -t proc proc "$root/proc"
chroot "$root" update-initramfs -u -k all >/dev/null
umount "$root/proc"

cat >"$root/etc/systemd/system/marker.service" <<'UNIT'
[Unit]
After=local-fs.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo "V2V-MARKER root=$(findmnt -no SOURCE /) drv=$(basename $(readlink /sys/block/?da/device/driver))" > /dev/ttyS0'
[Install]
WantedBy=multi-user.target
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants" "$root/boot/grub"
ln -sf ../marker.service "$root/etc/systemd/system/multi-user.target.wants/marker.service"
kernel=$(ls "$root"/boot/vmlinuz-*)
kernel=${kernel##*/vmlinuz-}
cat >"$root/boot/grub/grub.cfg" <<GRUB
set timeout=0
menuentry 'Debian GNU/Linux' {
	search --no-floppy --set=root --file /boot/vmlinuz-$kernel
	linux /boot/vmlinuz-$kernel root=/dev/sda1 ro console=ttyS0,115200 no_timer_check
	initrd /boot/initrd.img-$kernel
}
GRUB
printf 'GRUB_TIMEOUT=0\nGRUB_DISTRIBUTOR=Debian\nGRUB_CMDLINE_LINUX="root=/dev/sda1 console=ttyS0,115200"\n' >"$root/etc/default/grub"

truncate -s 1536M "$image"
printf 'label: dos\nstart=2048, type=83, bootable\n' | sfdisk -q "$image"
mke2fs -q -t ext4 -E offset=1048576,root_owner=0:0 -d "$root" "$image" $((1536 * 1024 - 1024))k
printf 'search --no-floppy --set=root --file /boot/grub/grub.cfg\nset prefix=($root)/boot/grub\n' >"$tmp/early.cfg"
grub-mkimage -O i386-pc -p /boot/grub -c "$tmp/early.cfg" -o "$tmp/core.img" biosdisk part_msdos ext2 search search_fs_file normal configfile linux
dd if=/usr/lib/grub/i386-pc/boot.img of="$image" bs=440 count=1 conv=notrunc status=none
dd if="$tmp/core.img" of="$image" bs=512 seek=1 conv=notrunc status=none
mv "$image" build/v2v/debian.raw
