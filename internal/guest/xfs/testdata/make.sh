#!/bin/sh
# Makes v5.img.gz with the kernel's own XFS, on a loop device, as root. The tests take it
# as it is; this is how it came to be. It has what mkfs.xfs cannot make: folders and
# files in many extents, holes, links too long for an inode.
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
truncate -s 24M "$tmp/img"
# mkfs.xfs makes nothing so small but for its own tests.
TEST_DIR=x TEST_DEV=x QA_CHECK_FS=1 mkfs.xfs -q -b size=1024 -m uuid=8b6ecb2a-6c8a-4b52-a1f5-3e5b41f0de01 "$tmp/img"
loop=$(losetup -f --show "$tmp/img")
mount -t xfs "$loop" "$m"
cd "$m"
mkdir -p etc usr/lib many some deep/a/b/c
echo 'ID=seed' >usr/lib/os-release
ln -s ../usr/lib/os-release etc/os-release
ln -s usr/lib lib
long=$(printf '../%.0s' $(seq 200))
ln -s "${long}usr/lib/os-release" etc/long
for n in $(seq 30); do echo "$n" >some/name$n; done
echo other >other
# Two files and a folder that grow by turns are in many extents each.
for n in $(seq 400); do
	awk -v n="$n" 'BEGIN { for (i = 0; i < 64; i++) printf "%015d\n", n * 64 + i }' >>deep/a/b/c/broken
	printf '%01024d' "$n" >>other
	sync deep/a/b/c/broken other
	ln deep/a/b/c/broken many/a-rather-long-name-of-a-file-$n
	ln other many/another-name-$n
done
dd if=/dev/zero of=holes bs=1k count=1 seek=100 status=none
echo end >>holes
fallocate -l 64k unwritten
echo start | dd of=unwritten conv=notrunc status=none
cd - >/dev/null
umount "$m"
losetup -d "$loop"
loop=
for path in deep/a/b/c/broken many etc/long; do
	xfs_db -r -c "path /$path" -c 'print core.format' "$tmp/img" | sed "s|^|$path: |"
done
gzip -9n <"$tmp/img" >v5.img.gz
