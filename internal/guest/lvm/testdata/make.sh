#!/bin/sh
# Makes pv0.img.gz and pv1.img.gz with lvm2, on loop devices, as root. The tests take them
# as they are; this is how they came to be. Nothing is activated: it needs no device mapper.
#
# The volumes hold 4 KiB blocks of their own name and the number of the block, laid where
# lvs says that the volume's extents are.
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
config='devices{use_devicesfile=0 dir="/dev" scan=["/dev"]} backup{backup=0 archive=0}'
lvm() { command lvm "$@" --driverloaded n --config "$config"; }
group=decamptest
loops=
clean() {
	for l in $loops; do losetup -d "$l"; done
	rm -rf "$tmp"
}
trap clean EXIT
for n in 0 1; do
	truncate -s 8M "$tmp/pv$n.img"
	loops="$loops $(losetup -f --show "$tmp/pv$n.img")"
done
lvm vgcreate -q --metadatasize 64k --dataalignment 128k -s 256k $group $loops
lvm lvcreate -q -an -Zn -l 3 -n root $group
lvm lvcreate -q -an -Zn -l 2 -n between $group
lvm lvcreate -q -an -Zn -l 8 -i 2 -I 8k -n striped $group
lvm lvextend -q -l +29 $group/root # past between, and onto the second PV
# So many changes that the ring of descriptions begins again.
for n in $(seq 40); do lvm vgchange -q --addtag "t$n" $group >/dev/null; done

# fill VOLUME STRIPE writes the volume's blocks, KiB of a stripe as given.
fill() {
	lvm lvs --noheadings --segments --units k --nosuffix -o seg_start,seg_size,stripes,devices $group/"$1" |
		while read -r start size stripes devices; do
			start=${start%.*} size=${size%.*}
			row=0
			while [ $row -lt "$size" ]; do # in steps of 4 KiB
				stripe=$((row / $2)) # of the segment
				on=$((stripe % stripes))
				device=$(echo "$devices" | cut -d, -f$((on + 1)))
				pe=${device#*(}
				block=$(((start + row) / 4))
				seek=$((128 + ${pe%)} * 256 + stripe / stripes * $2 + row % $2))
				awk -v name="$1" -v b=$block 'BEGIN { for (i = 0; i < 256; i++) printf "%-8s%07d\n", name, b }' |
					dd of="${device%(*}" bs=1k seek=$seek conv=notrunc iflag=fullblock status=none
				row=$((row + 4))
			done
		done
}
fill root 1048576
fill striped 8
sync
for l in $loops; do losetup -d "$l"; done
loops=
for n in 0 1; do
	gzip -9n <"$tmp/pv$n.img" >pv$n.img.gz
done
