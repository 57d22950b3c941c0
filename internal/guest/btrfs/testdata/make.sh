#!/bin/sh
# Makes kernel.img.gz with the kernel's own btrfs, on a loop device, as root. The tests
# take it as it is; this is how it came to be. It has what mkfs.btrfs cannot make:
# subvolumes, compressed files, holes, many extents.
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
m=$tmp/mnt
clean() {
	umount "$m" 2>/dev/null || true
	[ -z "${loop:-}" ] || losetup -d "$loop"
	rm -rf "$tmp"
}
trap clean EXIT
mkdir "$m"
truncate -s 128M "$tmp/img"
mkfs.btrfs -q -U 8b6ecb2a-6c8a-4b52-a1f5-3e5b41f0de02 "$tmp/img"
loop=$(losetup -f --show "$tmp/img")
mount -t btrfs "$loop" "$m"
btrfs -q subvolume create "$m/@root"
btrfs -q subvolume create "$m/@root/inner"
echo inside >"$m/@root/inner/file"
mkdir -p "$m/@root/etc" "$m/@root/usr/lib" "$m/@root/many"
echo 'ID=seed' >"$m/@root/usr/lib/os-release"
ln -s ../usr/lib/os-release "$m/@root/etc/os-release"
for how in none zlib zstd lzo; do
	[ $how = none ] || btrfs property set "$m/@root/usr/lib" compression $how
	awk -v how=$how 'BEGIN { for (i = 0; i < 12000; i++) printf "%-4s%07d\n", how, i }' >"$m/@root/usr/lib/$how"
	echo "tiny $how $how $how $how $how $how $how $how" >"$m/@root/usr/lib/tiny-$how"
	sync
done
dd if=/dev/zero of="$m/@root/holes" bs=4k count=1 seek=100 status=none
echo end >>"$m/@root/holes"
fallocate -l 64k "$m/@root/unwritten"
for n in $(seq 300); do echo "$n" >"$m/@root/many/a-rather-long-name-of-a-file-$n"; done
for n in $(seq 100); do
	awk -v n="$n" 'BEGIN { for (i = 0; i < 256; i++) printf "%015d\n", n * 256 + i }' >>"$m/@root/broken"
	sync "$m/@root/broken"
done
btrfs subvolume set-default "$m/@root"
umount "$m"
losetup -d "$loop"
loop=
gzip -9n <"$tmp/img" >kernel.img.gz
