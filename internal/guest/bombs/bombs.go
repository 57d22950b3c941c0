// Package bombs creates disks of hostile guests: small images that would cost their reader
// unbounded memory or work. Tests and benchmarks examine them; nothing else uses them.
package bombs

import (
	"fmt"
	"strings"
)

// A Bomb is a hostile disk with the expected result of an examination.
type Bomb struct {
	Name string        // name of the test: format and trick
	Disk func() *Image // builds the disk; each call returns a new one

	// Limit is a part of the reason why something on the disk is not examined. It is empty for a
	// disk that is examined in full within the limits.
	Limit string
}

// All returns all bombs.
func All() []Bomb {
	all := append(initramfsBombs(), configBombs()...)
	return append(append(all, extBombs()...), volumeBombs()...)
}

// initramfsBomb returns a guest whose newest kernel has the initramfs that build returns.
func initramfsBomb(name, limit string, build func() string) Bomb {
	return Bomb{"initramfs: " + name, func() *Image { return extImage(linuxFiles(build(), nil), nil, nil) }, limit}
}

// initramfsBombs returns guests whose initramfs requires much memory, unpacks to many bytes, or
// contains many archives, names or modules.
func initramfsBombs() []Bomb {
	small := cpioArchive("a")
	sparse := func(initramfs string, size int64) *Image {
		return extImage(linuxFiles(initramfs, nil), map[string]int64{"boot/initrd.img-6.1.0": size}, nil)
	}
	return []Bomb{
		initramfsBomb("64 MiB of dictionary for each of 200 xz archives", "", func() string { return repeatBytes(xzArchive(small), 200) }),
		initramfsBomb("64 MiB of dictionary for each of 20,000 xz archives", "archives", func() string { return repeatBytes(xzArchive(small), 20000) }),
		initramfsBomb("64 MiB of dictionary for each of 100,000 xz blocks", "operations", func() string {
			return "\xfd7zXZ\x00\x00\x00...." + repeatBytes(xzBlock(small), 100_000) + repeatBytes([]byte{0}, 20)
		}),
		initramfsBomb("64 MiB of dictionary for each of 200 lzma archives", "memory", func() string { return repeatBytes(lzmaAlone(small), 200) }),
		initramfsBomb("an lzma archive of 64 MiB", "packed into", func() string { return string(lzmaAlone(append(cpioEntry("large", 64<<20), make([]byte, 64<<20)...))) }),
		initramfsBomb("a zstd archive of 1 GiB", "packed into", func() string { return string(zstdBomb(1 << 30)) }),
		initramfsBomb("128 MiB of window for each of 200 zstd archives", "", func() string {
			return repeatBytes(zstdArchive(small), 200)
		}),
		initramfsBomb("a gzip archive of 1 GiB", "packed into", func() string { return string(gzipBomb(1 << 30)) }),
		initramfsBomb("8 MiB for each of 200 lz4 archives", "", func() string { return repeatBytes(lz4Archive(small), 200) }),
		initramfsBomb("20,000 plain archives", "archives", func() string { return repeatBytes(small, 20_000) }),
		initramfsBomb("400,000 names", "names", func() string { return repeatBytes(cpioEntry("a", 0), 400_000) }),
		initramfsBomb("25,000 modules with names of 4,000 bytes", "", func() string { return moduleArchive(25_000, 4000) }),
		initramfsBomb("250,000 modules with names of 250 bytes", "modules", func() string { return moduleArchive(250_000, 240) }),
		{"initramfs: a hole of 256 MiB", func() *Image { return sparse(string(small), 256<<20) }, ""},
		{"initramfs: files of 4 GiB in a hole of 256 MiB", func() *Image { return sparse(string(cpioEntry("large", 0xfffffff0)), 256<<20) }, "unpacks to"},
		{"initramfs: a hole that a file covers", func() *Image { return sparse(string(cpioEntry("large", 255<<20)), 256<<20) }, ""},
	}
}

// moduleArchive returns an archive of count modules. Their names have a number and length more bytes.
func moduleArchive(count, length int) string {
	var b strings.Builder
	for i := range count {
		b.Write(cpioEntry(fmt.Sprintf("%d%s.ko", i, strings.Repeat("n", length)), 0))
	}
	b.Write(cpioEntry("TRAILER!!!", 0))
	return b.String()
}

// configBombs returns guests whose text files are large, many, or refer to themselves.
func configBombs() []Bomb {
	many := func(pattern, content string, n int) files {
		all := files{}
		for i := range n {
			all[fmt.Sprintf(pattern, i)] = content
		}
		return all
	}
	guest := func(name, limit string, more func() files) Bomb {
		return Bomb{"configuration: " + name, func() *Image { return extImage(linuxFiles(string(cpioArchive("a")), more()), nil, nil) }, limit}
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

// extBombs returns guests whose ext4 file system has link loops, deep folders, large folders or
// extent trees with loops.
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
			return extImage(linuxFiles("-> a", files{"boot/a": "-> b", "boot/b": "-> a", "etc/default": "-> default", "etc/crypttab": "-> ../etc/crypttab"}), nil, nil)
		}, ""},
		{"ext: links that double the path", func() *Image {
			return extImage(linuxFiles("-> "+strings.Repeat("../boot/", 5)+"a", files{"boot/a": "-> " + strings.Repeat("../boot/", 400) + "b", "boot/b": "-> " + strings.Repeat("./", 2000) + "a"}), nil, nil)
		}, ""},
		{"ext: folders 1,500 deep", func() *Image {
			return extImage(linuxFiles("-> "+strings.Repeat("d/", 1500)+"f", files{"boot/" + deep + "f": string(cpioArchive("a"))}), nil, nil)
		}, ""},
		{"ext: a folder of 150,000 names", func() *Image {
			all := files{}
			for i := range 150_000 {
				all[fmt.Sprintf("etc/NetworkManager/system-connections/%d", i)] = ""
			}
			return extImage(linuxFiles(string(cpioArchive("a")), all), nil, nil)
		}, ""},
		{"ext: a tree of extents that leads to itself", func() *Image {
			return extImage(linuxFiles("x", nil), map[string]int64{"boot/initrd.img-6.1.0": 255 << 20}, map[string][]byte{"boot/initrd.img-6.1.0": loop})
		}, ""},
	}
}

// volumeBombs returns disks with hostile metadata of LVM, dynamic disks, and file systems other than
// ext.
func volumeBombs() []Bomb {
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
	pv := func(text string) func() *Image { return func() *Image { return lvmImage(text) } }
	return []Bomb{
		{"LVM: a million sections", pv("a{}" + strings.Repeat("b{}", 1<<20)), "memory"},
		{"LVM: an array of a million elements", pv("vg{a=[" + strings.Repeat("1,", 1<<20) + "]}"), ""},
		{"LVM: 4 MiB of comments", pv("a{}" + strings.Repeat("#\n", 2<<20-8)), ""},
		{"LVM: 30,000 volumes", pv(sections(30_000, logical)), "not examined"},
		{"LVM: 1,000 partitions with the same group", func() *Image { return gptImage(lvmImage(sections(2000, logical)), 1000) }, "not examined"},
		{"dynamic disks: a database full of volumes", ldmImage, ""},
		{"FAT: a root folder of 2 MiB", func() *Image { return fatImage(64) }, ""},
		{"FAT: 8,000 partitions with the same 8 MiB of table", func() *Image { return gptImage(fatImage(1), 8000) }, "memory"},
		{"XFS: a folder that reads one block over and over", xfsImage, "would be read"},
		{"btrfs: a tree of trees that branches into itself", func() *Image { return btrfsImage(false) }, "blocks"},
		{"btrfs: a tree of chunks that branches into itself", func() *Image { return btrfsImage(true) }, "blocks"},
		{"btrfs: 1,000 partitions with that", func() *Image { return gptImage(btrfsImage(true), 1000) }, "blocks"},
		{"NTFS: a registry of lists of lists", func() *Image { return newNTFS(64).putWindows(hiveFile()) }, "cells"},
		{"NTFS: a folder whose tree leads to itself", ntfsFolders, ""},
		{"NTFS: 1,000 partitions with that", func() *Image { return gptImage(ntfsFolders(), 1000) }, "memory"},
		{"NTFS: an attribute in 8,000 records of 1,800 runs", ntfsPieces, ""},
		{"NTFS: a hole of 2^63 bytes", ntfsHole, ""},
	}
}
