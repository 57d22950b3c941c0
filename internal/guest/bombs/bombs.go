// Package bombs makes disks of hostile guests: small images that would cost their reader
// unbounded memory or work. Tests and benchmarks examine them; nothing else uses them.
package bombs

import (
	"fmt"
	"strings"
)

// A Bomb is a hostile disk.
type Bomb struct {
	Name string
	Disk func() *Image

	// Limit is a part of the reason why something on the disk is not examined. It is empty for a
	// disk that is examined in full within the limits.
	Limit string
}

// All returns the corpus.
func All() []Bomb {
	all := append(archives(), configurations()...)
	return append(append(all, extBombs()...), volumes()...)
}

// initramfs makes a bomb of a guest with that initramfs.
func initramfs(name, limit string, build func() string) Bomb {
	return Bomb{"initramfs: " + name, func() *Image { return ext(linux(build(), nil), nil, nil) }, limit}
}

func archives() []Bomb {
	small := whole("a")
	sparse := func(initramfs string, size int64) *Image {
		return ext(linux(initramfs, nil), map[string]int64{"boot/initrd.img-6.1.0": size}, nil)
	}
	return []Bomb{
		initramfs("64 MiB of dictionary for each of 200 xz archives", "", func() string { return repeat(xz(small), 200) }),
		initramfs("64 MiB of dictionary for each of 20,000 xz archives", "archives", func() string { return repeat(xz(small), 20000) }),
		initramfs("64 MiB of dictionary for each of 100,000 xz blocks", "operations", func() string {
			return "\xfd7zXZ\x00\x00\x00...." + repeat(xzBlock(small), 100_000) + repeat([]byte{0}, 20)
		}),
		initramfs("64 MiB of dictionary for each of 200 lzma archives", "memory", func() string { return repeat(lzmaAlone(small), 200) }),
		initramfs("an lzma archive of 64 MiB", "packed into", func() string { return string(lzmaAlone(append(cpio("large", 64<<20), make([]byte, 64<<20)...))) }),
		initramfs("a zstd archive of 1 GiB", "packed into", func() string { return string(zstd(1 << 30)) }),
		initramfs("128 MiB of window for each of 200 zstd archives", "", func() string {
			return repeat(zstdOf(small), 200)
		}),
		initramfs("a gzip archive of 1 GiB", "packed into", func() string { return string(gz(1 << 30)) }),
		initramfs("8 MiB for each of 200 lz4 archives", "", func() string { return repeat(lz4(small), 200) }),
		initramfs("20,000 plain archives", "archives", func() string { return repeat(small, 20_000) }),
		initramfs("400,000 names", "names", func() string { return repeat(cpio("a", 0), 400_000) }),
		initramfs("25,000 modules with names of 4,000 bytes", "", func() string { return modules(25_000, 4000) }),
		initramfs("250,000 modules with names of 250 bytes", "modules", func() string { return modules(250_000, 240) }),
		{"initramfs: a hole of 256 MiB", func() *Image { return sparse(string(small), 256<<20) }, ""},
		{"initramfs: files of 4 GiB in a hole of 256 MiB", func() *Image { return sparse(string(cpio("large", 0xfffffff0)), 256<<20) }, "unpacks to"},
		{"initramfs: a hole that a file covers", func() *Image { return sparse(string(cpio("large", 255<<20)), 256<<20) }, ""},
	}
}

// modules is an archive of so many modules whose names have length bytes and a number.
func modules(count, length int) string {
	var b strings.Builder
	for i := range count {
		b.Write(cpio(fmt.Sprintf("%d%s.ko", i, strings.Repeat("n", length)), 0))
	}
	b.Write(cpio("TRAILER!!!", 0))
	return b.String()
}

// configurations are guests whose text files are large, many, or refer to themselves.
func configurations() []Bomb {
	many := func(pattern, content string, n int) files {
		all := files{}
		for i := range n {
			all[fmt.Sprintf(pattern, i)] = content
		}
		return all
	}
	guest := func(name, limit string, more func() files) Bomb {
		return Bomb{"configuration: " + name, func() *Image { return ext(linux(string(whole("a")), more()), nil, nil) }, limit}
	}
	full := func(line string) string { return strings.Repeat(line, 256<<10/len(line)) }
	return []Bomb{
		guest("13,000 network cards in one file", "not examined", func() files { return files{"etc/network/interfaces": full("iface a inet dhcp\n")} }),
		guest("13,000 ports in one file", "not examined", func() files {
			return files{"etc/network/interfaces": full("iface a inet dhcp\nslaves b c d e f g h\n")}
		}),
		guest("900 files of cards", "", func() files {
			return many("etc/systemd/network/%d.network", "[Match]\nName=a\n[Network]\nDHCP=yes\n", 900)
		}),
		guest("aliases of aliases in YAML", "", func() files {
			var b strings.Builder
			b.WriteString("network:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
			for i := 1; i < 30; i++ {
				fmt.Fprintf(&b, "  a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 8), i-1)
			}
			b.WriteString("  ethernets:\n    eth0:\n      addresses: *a29\n")
			return files{"etc/netplan/a.yaml": b.String()}
		}),
		guest("deep YAML", "", func() files { return files{"etc/netplan/a.yaml": strings.Repeat("[", 200_000)} }),
		guest("500 files of YAML", "operations", func() files { return many("etc/netplan/%d.yaml", full("- {a: b}\n"), 500) }),
		guest("1,000 files of a boot loader", "operations", func() files { return many("boot/loader/entries/%d.conf", full("linux /dev/sda1 /dev/sd\n"), 1000) }),
		guest("1,000 rules of udev", "operations", func() files { return many("etc/udev/rules.d/%d.rules", full(`ATTR{address}=="a" NAME="b"`+"\n"), 1000) }),
		guest("3,000 kernels", "not examined", func() files { return many("boot/vmlinuz-6.1.%d", "kernel", 3000) }),
		guest("60,000 kernels", "not examined", func() files { return many("boot/vmlinuz-6.1.%d", "kernel", 60_000) }),
		guest("an os-release of 64 KiB", "", func() files { return files{"etc/os-release": "ID=" + strings.Repeat("a", 60<<10)} }),
		guest("a mount for each line of fstab", "", func() files { return files{"etc/fstab": full("/dev/sda1 /boot ext4\n")} }),
		guest("a disk's name of 256 KiB", "", func() files { return files{"etc/fstab": "/dev/disk/by-path/" + strings.Repeat("a", 255<<10)} }),
	}
}

func extBombs() []Bomb {
	deep := strings.Repeat("d/", 1500)
	loop := make([]byte, 60) // an extent tree whose root leads to a block that is a root again
	le16(loop, 0, 0xf30a)
	le16(loop, 2, 1)
	le16(loop, 4, 4)
	le16(loop, 6, 5)
	le32(loop, 16, 1)
	return []Bomb{
		{"ext: links in a circle", func() *Image {
			return ext(linux("-> a", files{"boot/a": "-> b", "boot/b": "-> a", "etc/default": "-> default", "etc/crypttab": "-> ../etc/crypttab"}), nil, nil)
		}, ""},
		{"ext: links that double the path", func() *Image {
			return ext(linux("-> "+strings.Repeat("../boot/", 5)+"a", files{"boot/a": "-> " + strings.Repeat("../boot/", 400) + "b", "boot/b": "-> " + strings.Repeat("./", 2000) + "a"}), nil, nil)
		}, ""},
		{"ext: folders 1,500 deep", func() *Image {
			return ext(linux("-> "+strings.Repeat("d/", 1500)+"f", files{"boot/" + deep + "f": string(whole("a"))}), nil, nil)
		}, ""},
		{"ext: a folder of 150,000 names", func() *Image {
			all := files{}
			for i := range 150_000 {
				all[fmt.Sprintf("etc/NetworkManager/system-connections/%d", i)] = ""
			}
			return ext(linux(string(whole("a")), all), nil, nil)
		}, ""},
		{"ext: a tree of extents that leads to itself", func() *Image {
			return ext(linux("x", nil), map[string]int64{"boot/initrd.img-6.1.0": 255 << 20}, map[string][]byte{"boot/initrd.img-6.1.0": loop})
		}, ""},
	}
}

func volumes() []Bomb {
	sections := func(n int, of func(i int) string) string {
		var b strings.Builder
		b.WriteString("vg{id=\"a\" seqno=1 extent_size=8192 physical_volumes{pv0{id=\"" + strings.Repeat("a", 32) + "\" pe_start=24576}} logical_volumes{")
		for i := range n {
			b.WriteString(of(i))
		}
		return b.String() + "}}"
	}
	logical := func(i int) string {
		return fmt.Sprintf(`l%d{status=["VISIBLE"] s{start_extent=0 extent_count=1 type="striped" stripes=["pv0",0]}}`, i)
	}
	pv := func(text string) func() *Image { return func() *Image { return lvm(text) } }
	return []Bomb{
		{"LVM: a million sections", pv("a{}" + strings.Repeat("b{}", 1<<20)), "memory"},
		{"LVM: an array of a million elements", pv("vg{a=[" + strings.Repeat("1,", 1<<20) + "]}"), ""},
		{"LVM: 4 MiB of comments", pv("a{}" + strings.Repeat("#\n", 2<<20-8)), ""},
		{"LVM: 30,000 volumes", pv(sections(30_000, logical)), "not examined"},
		{"LVM: 1,000 partitions with the same group", func() *Image { return gpt(lvm(sections(2000, logical)), 1000) }, "not examined"},
		{"dynamic disks: a database full of volumes", ldm, ""},
		{"FAT: a root folder of 2 MiB", func() *Image { return fat(64) }, ""},
		{"FAT: 8,000 partitions with the same 8 MiB of table", func() *Image { return gpt(fat(1), 8000) }, "memory"},
		{"XFS: a folder that reads one block over and over", xfs, "would be read"},
		{"btrfs: a tree of trees that branches into itself", func() *Image { return btrfs(false) }, "blocks"},
		{"btrfs: a tree of chunks that branches into itself", func() *Image { return btrfs(true) }, "blocks"},
		{"btrfs: 1,000 partitions with that", func() *Image { return gpt(btrfs(true), 1000) }, "blocks"},
		{"NTFS: a registry of lists of lists", func() *Image { return ntfs(64).windows(hive()) }, "cells"},
		{"NTFS: a folder whose tree leads to itself", ntfsFolders, ""},
		{"NTFS: 1,000 partitions with that", func() *Image { return gpt(ntfsFolders(), 1000) }, "memory"},
		{"NTFS: an attribute in 8,000 records of 1,800 runs", ntfsPieces, ""},
	}
}
