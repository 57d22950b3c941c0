package bombs

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf16"
)

// fat is a FAT32 whose root folder is a chain of clusters of 32 KiB that ends after so many, and
// whose lines all name a folder that is the root itself.
func fat(chain int) *Image {
	const cluster, clusters = 32 << 10, 2 << 20
	m := newImage(clusters*cluster + 64<<20)
	boot := make([]byte, 512)
	le16(boot, 11, 512)
	boot[13] = cluster / 512
	le16(boot, 14, 32)
	boot[16] = 1
	le32(boot, 32, uint32(m.size/512))
	const tableSectors = (clusters + 4096) * 4 / 512
	le32(boot, 36, tableSectors)
	le32(boot, 44, 2)
	copy(boot[82:], "FAT32   ")
	boot[510], boot[511] = 0x55, 0xaa
	m.put(0, boot)
	table := make([]byte, 8<<20)
	for i := 2; i < len(table)/4; i++ {
		le32(table, 4*i, uint32(i+1))
	}
	le32(table, 4*(1+chain), 0xfffffff)
	m.put(32*512, table)
	line := make([]byte, 32)
	copy(line, "EFI        ")
	line[11] = 0x10
	le16(line, 26, 2)
	m.put((32+tableSectors)*512, bytes.Repeat(line, chain*cluster/32))
	return m
}

// xfs is an XFS whose root folder has one block at many places.
func xfs() *Image {
	const block, dirBlock = 4096, 64 << 10
	m := newImage(64 << 20)
	s := make([]byte, 512)
	copy(s, "XFSB")
	be32(s, 4, block)
	be64(s, 8, uint64(m.size/block))
	be64(s, 56, 16*8) // the root: inode 0 of block 16
	be32(s, 84, uint32(m.size/block))
	be16(s, 100, 4)
	be16(s, 104, 512)
	s[123], s[124], s[192] = 3, 14, 4
	m.put(0, s)
	inode := make([]byte, 512)
	copy(inode, "IN")
	be16(inode, 2, 0x41ed)
	inode[4], inode[5] = 2, 3 // a tree of extents
	be64(inode, 56, 1<<30)
	be16(inode, 100, 1)
	const leaves = (512 - 100 - 4) / 16
	be16(inode, 102, leaves)
	for i := range leaves {
		be64(inode, 100+4+8*leaves+8*i, uint64(32+i))
	}
	m.put(16*block, inode)
	for leaf := range leaves {
		b := make([]byte, block)
		copy(b, "BMAP")
		const count = (block - 24) / 16
		be16(b, 6, count)
		for i := range count {
			off, at := uint64(leaf*count+i)*16, uint64(1024)
			be64(b, 24+16*i, off<<9|at>>43)
			be64(b, 24+16*i+8, at<<21|16)
		}
		m.put(int64(32+leaf)*block, b)
	}
	names := make([]byte, dirBlock)
	copy(names, "XD2D")
	for at := 16; at+8 <= len(names); at += 8 { // free space in the smallest pieces
		be16(names, at, 0xffff)
		be16(names, at+2, 8)
	}
	m.put(1024*block, names)
	return m
}

// btrfs is a btrfs with a tree, that of chunks or that of trees, of one block on each of eight
// levels. All branches of a level lead to the block below.
func btrfs(chunks bool) *Image {
	const node = 64 << 10
	m := newImage(64 << 20)
	block := func(at uint64, level byte, build func(p []byte)) {
		p := make([]byte, node)
		le64(p, 48, at)
		p[100] = level
		build(p)
		m.put(int64(at), p)
	}
	wide := func(base uint64) {
		for level := byte(1); level <= 7; level++ {
			block(base+uint64(level)*node, level, func(p []byte) {
				const links = (node - 101) / 33
				le32(p, 96, links)
				for i := range links {
					link := p[101+33*i:]
					le64(link, 0, 1<<62)
					le64(link, 17, base+uint64(level-1)*node)
				}
			})
		}
		block(base, 0, func(p []byte) { le32(p, 96, (node-101)/25) }) // all items precede the searched one
	}
	const chunkTree, rootTree = 1 << 20, 2 << 20
	top := byte(7)
	if wide(rootTree); chunks {
		wide(chunkTree)
	} else {
		block(chunkTree, 0, func([]byte) {})
		top = 0
	}
	s := make([]byte, 4096)
	copy(s[64:], "_BHRfS_M")
	le64(s, 80, rootTree+7*node)
	le64(s, 88, chunkTree+uint64(top)*node)
	le64(s, 112, uint64(m.size))
	le32(s, 148, node)
	le32(s, 160, 17+48+32)
	s[198], s[199] = 7, top
	le64(s, 201, 1)
	chunk := s[811:]
	chunk[8] = 228
	le64(chunk, 17, uint64(m.size))
	le16(chunk, 17+44, 1)
	le64(chunk, 17+48, 1)
	m.put(64<<10, s)
	return m
}

// lvm is a physical volume whose group has that description.
func lvm(text string) *Image {
	const areaSize = 8 << 20
	m := newImage(16 << 20)
	crc := func(p []byte) uint32 { return ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, p) }
	label := make([]byte, 512)
	copy(label, "LABELONE")
	le64(label, 8, 1)
	le32(label, 20, 32)
	copy(label[24:], "LVM2 001")
	copy(label[32:], strings.Repeat("a", 32))
	le64(label, 32+40, 12<<20) // the area of data
	le64(label, 32+72, 4096)
	le64(label, 32+80, areaSize)
	le32(label, 16, crc(label[20:]))
	m.put(512, label)
	area := make([]byte, 512)
	copy(area[4:], " LVM2 x[5A%r0N*>")
	le64(area, 32, areaSize)
	le64(area, 40, 512)
	le64(area, 48, uint64(len(text)))
	le32(area, 56, crc([]byte(text)))
	le32(area, 0, crc(area[4:]))
	m.put(4096, area)
	m.put(4096+512, []byte(text))
	return m
}

// ldm is a disk of a group of dynamic disks whose database is full of volumes.
func ldm() *Image {
	m := newImage(64 << 20)
	mbr := make([]byte, 512)
	mbr[446+4] = 0x42
	le32(mbr, 446+8, 63)
	le32(mbr, 446+12, uint32(m.size/512)-4096)
	mbr[510], mbr[511] = 0x55, 0xaa
	m.put(0, mbr)
	head := make([]byte, 512)
	copy(head, "PRIVHEAD")
	be16(head, 0xc, 2)
	copy(head[0x30:], "00000000-0000-0000-0000-000000000000")
	base := uint64(m.size/512 - 2048)
	be64(head, 0x12b, base)
	m.put(6*512, head)
	db := make([]byte, 1<<20)
	at := 17 * 512
	copy(db[at:], "VMDB")
	be32(db, at+4, 1<<31)
	be32(db, at+8, 128)
	be32(db, at+12, 512)
	record := 0
	add := func(kind byte, fields ...byte) {
		b := db[at+512+128*record:]
		record++
		copy(b, "VBLK")
		be32(b, 8, uint32(record))
		be16(b, 14, 1)
		b[16+3] = kind
		copy(b[16+8:], fields)
	}
	id := func(n int) []byte { return []byte{2, byte(n >> 8), byte(n)} }
	num := func(n ...byte) []byte { return append([]byte{byte(len(n))}, n...) }
	add(0x34, append(append(id(1), num('D')...), append([]byte{36}, "00000000-0000-0000-0000-000000000000"...)...)...)
	for n := 2; record+3 < (len(db)-at-512)/128; n += 2 {
		volume := append(append(id(n), num('V')...), 0, 0)
		volume = append(append(volume, make([]byte, 21)...), 0)
		volume = append(append(volume, make([]byte, 16)...), 2, 1, 0)
		add(0x51, volume...)
		component := append(append(append(id(n), num('C')...), 0, 2), make([]byte, 4)...)
		component = append(append(append(component, 0), make([]byte, 16)...), id(n)...)
		add(0x32, component...)
		part := append(append(id(n), num('P')...), make([]byte, 28)...)
		part = append(append(append(part, 2, 1, 0), id(n)...), id(1)...)
		add(0x33, part...)
	}
	m.put(int64(base)*512, db)
	return m
}

// gpt gives a disk so many partitions that all begin at the start of inner.
func gpt(inner *Image, count int) *Image {
	const first = 4096 // sectors
	m := newImage(first*512 + inner.size + 1<<20)
	for _, p := range inner.pieces {
		m.put(first*512+p.off, p.data)
	}
	mbr := make([]byte, 512)
	mbr[446+4] = 0xee
	le32(mbr, 446+12, 1)
	mbr[510], mbr[511] = 0x55, 0xaa
	m.put(0, mbr)
	entries := make([]byte, 128*count)
	for i := range count {
		e := entries[128*i:]
		copy(e, "\x28\x73\x2a\xc1\x1f\xf8\xd2\x11\xba\x4b\x00\xa0\xc9\x3e\xc9\x3b") // EFI system partition
		le32(e, 16, uint32(i+1))
		le64(e, 32, first)
		le64(e, 40, uint64(first+inner.size/512-1))
	}
	m.put(2*512, entries)
	head := make([]byte, 512)
	copy(head, "EFI PART")
	le32(head, 12, 92)
	le64(head, 24, 1)
	le64(head, 72, 2)
	le32(head, 80, uint32(count))
	le32(head, 84, 128)
	le32(head, 88, crc32.ChecksumIEEE(entries))
	le32(head, 16, crc32.ChecksumIEEE(head[:92]))
	m.put(512, head)
	return m
}

// hive is a file of the registry whose root has a list of lists of keys, all of them the same.
func hive() []byte {
	cells := make([]byte, 1<<20)
	next := 32
	cell := func(b []byte) uint32 {
		at := next
		le32(cells, at, uint32(-int32(len(b)+4)))
		copy(cells[at+4:], b)
		next = (at + 4 + len(b) + 7) &^ 7
		return uint32(at)
	}
	key := func(list uint32) []byte {
		b := make([]byte, 80)
		copy(b, "nk")
		le16(b, 2, 0x20)
		le32(b, 20, 1<<15)
		le32(b, 28, list)
		le32(b, 40, 0xffffffff)
		le16(b, 72, 4)
		copy(b[76:], "same")
		return b
	}
	list := func(kind string, width, count int, of uint32) uint32 {
		b := make([]byte, 4+count*width)
		copy(b, kind)
		le16(b, 2, uint16(count))
		for i := range count {
			le32(b, 4+i*width, of)
		}
		return cell(b)
	}
	leaf := list("lf", 8, 60000, cell(key(0xffffffff)))
	root := cell(key(list("ri", 4, 60000, leaf)))
	base := make([]byte, 4096)
	copy(base, "regf")
	le32(base, 20, 1)
	le32(base, 36, root)
	le32(base, 40, uint32(len(cells)))
	return append(base, cells...)
}

const (
	ntfsRecord  = 4096
	ntfsCluster = 4096
)

// An ntfsVolume is put together of records.
type ntfsVolume struct {
	*Image
	next int64 // cluster
}

// ntfs returns a volume whose table of files has room for count records.
func ntfs(count int) *ntfsVolume {
	v := &ntfsVolume{newImage(1 << 30), 0}
	boot := make([]byte, 512)
	copy(boot[3:], "NTFS    ")
	le16(boot, 0x0b, 512)
	boot[0x0d] = ntfsCluster / 512
	le64(boot, 0x28, uint64(v.size/512))
	le64(boot, 0x30, 4)
	boot[0x40] = 1
	v.put(0, boot)
	v.next = 4 + int64(count)
	v.record(0, 0, away(0x80, "", int64(count)*ntfsRecord, run(int64(count), 4)))
	upcase := make([]byte, 128<<10)
	for i := range 1 << 16 {
		r := uint16(i)
		if 'a' <= i && i <= 'z' {
			r -= 32
		}
		le16(upcase, 2*i, r)
	}
	v.record(10, 0, v.data(upcase))
	about := make([]byte, 12)
	about[8] = 3
	v.record(3, 0, within(0x70, "", about))
	v.record(2, 0, within(0x80, "", bytes.Repeat([]byte{0xff}, 512)))
	return v
}

// data stores bytes in clusters, and returns the attribute.
func (v *ntfsVolume) data(b []byte) []byte {
	clusters := int64(len(b)+ntfsCluster-1) / ntfsCluster
	v.put(v.next*ntfsCluster, b)
	a := away(0x80, "", int64(len(b)), run(clusters, v.next))
	v.next += clusters
	return a
}

// record writes record number n.
func (v *ntfsVolume) record(n int64, flags uint16, attributes ...[]byte) {
	b := make([]byte, ntfsRecord)
	copy(b, "FILE")
	le16(b, 4, 0x30)
	le16(b, 6, ntfsRecord/512+1)
	le16(b, 0x10, 1)
	le16(b, 0x14, 0x48)
	le16(b, 0x16, 1|flags)
	at := 0x48
	for _, a := range attributes {
		at += copy(b[at:], a)
	}
	le32(b, at, 0xffffffff)
	le32(b, 0x18, uint32(at+8))
	for i := 1; i <= ntfsRecord/512; i++ { // the words at the ends of sectors move to the fixups
		copy(b[0x30+2*i:0x32+2*i], b[512*i-2:512*i])
		le16(b, 512*i-2, 0)
	}
	v.put((4+n)*ntfsCluster, b)
}

func units(s string) []byte {
	u := utf16.Encode([]rune(s))
	b := make([]byte, 2*len(u))
	for i, c := range u {
		le16(b, 2*i, c)
	}
	return b
}

// within is an attribute whose value is in its record.
func within(kind uint32, name string, value []byte) []byte {
	n := units(name)
	at := (0x18 + len(n) + 7) &^ 7
	b := make([]byte, (at+len(value)+7)&^7)
	le32(b, 0, kind)
	le32(b, 4, uint32(len(b)))
	b[9] = byte(len(n) / 2)
	le16(b, 10, 0x18)
	copy(b[0x18:], n)
	le32(b, 16, uint32(len(value)))
	le16(b, 20, uint16(at))
	copy(b[at:], value)
	return b
}

// away is an attribute whose value is in clusters.
func away(kind uint32, name string, size int64, runs []byte) []byte {
	n := units(name)
	at := (0x40 + len(n) + 7) &^ 7
	b := make([]byte, (at+len(runs)+8)&^7)
	le32(b, 0, kind)
	le32(b, 4, uint32(len(b)))
	b[8], b[9] = 1, byte(len(n)/2)
	le16(b, 10, 0x40)
	copy(b[0x40:], n)
	le16(b, 0x20, uint16(at))
	le64(b, 0x30, uint64(size))
	le64(b, 0x38, uint64(size))
	copy(b[at:], runs)
	return b
}

// run is count clusters from cluster at on.
func run(count, at int64) []byte {
	b := make([]byte, 9)
	b[0] = 0x44
	le32(b, 1, uint32(count))
	le32(b, 5, uint32(at))
	return b
}

// indexEntry names a file, or leads to a block of names before it. Without a name it is the last.
func indexEntry(name string, record int64, folder bool, below int64) []byte {
	key := []byte{}
	if name != "" {
		key = append(make([]byte, 0x42), units(name)...)
		key[0x40], key[0x41] = byte(len(name)), 1
		if folder {
			le32(key, 0x38, 0x10000000)
		}
	}
	length := (16 + len(key) + 7) &^ 7
	flags := uint16(0)
	if below >= 0 {
		flags, length = 1, length+8
	}
	if name == "" {
		flags |= 2
	}
	b := make([]byte, length)
	le64(b, 0, uint64(record)|1<<48)
	le16(b, 8, uint16(length))
	le16(b, 10, uint16(len(key)))
	le16(b, 12, flags)
	copy(b[16:], key)
	if below >= 0 {
		le64(b, length-8, uint64(below))
	}
	return b
}

// folder makes record n a folder of entries.
func (v *ntfsVolume) folder(n int64, entries []byte, more ...[]byte) {
	root := make([]byte, 32, 32+len(entries))
	le32(root, 8, 4096)
	le32(root, 16, 16)
	le32(root, 20, uint32(16+len(entries)))
	v.record(n, 2, append([][]byte{within(0x90, "$I30", append(root, entries...))}, more...)...)
}

// windows stores the two files of the registry that are read.
func (v *ntfsVolume) windows(registry []byte) *Image {
	for i, name := range []string{"Windows", "System32", "config"} {
		n := []int64{5, 16, 17}[i]
		v.folder(n, append(indexEntry(name, int64(16+i), true, -1), indexEntry("", 0, false, -1)...))
	}
	v.folder(18, append(append(indexEntry("SOFTWARE", 19, false, -1), indexEntry("SYSTEM", 19, false, -1)...), indexEntry("", 0, false, -1)...))
	v.record(19, 0, v.data(registry))
	return v.Image
}

// ntfsFolders is a volume whose root folder leads to one block of names, and each name of that to
// the same block.
func ntfsFolders() *Image {
	v := ntfs(64)
	block := make([]byte, 4096)
	copy(block, "INDX")
	le16(block, 4, 0x28)
	le16(block, 6, 9)
	at := 0x40
	for i := 0; at < 3900; i++ {
		at += copy(block[at:], indexEntry(fmt.Sprintf("z%02d", i), 20, true, 0))
	}
	at += copy(block[at:], indexEntry("", 0, false, 0))
	le32(block, 24, 0x28)
	le32(block, 28, uint32(at-24))
	for i := 1; i <= 8; i++ {
		copy(block[0x28+2*i:0x2a+2*i], block[512*i-2:512*i])
		le16(block, 512*i-2, 0)
	}
	v.put(v.next*ntfsCluster, block)
	v.folder(5, indexEntry("", 0, false, 0), away(0xa0, "$I30", 4096, run(1, v.next)))
	return v.Image
}

// ntfsPieces is a volume whose $UpCase has a list of attributes in many records, each with as many
// runs as fit.
func ntfsPieces() *Image {
	const count = 8000
	v := ntfs(count + 64)
	var list []byte
	for i := range int64(count) {
		e := make([]byte, 32)
		le32(e, 0, 0x80)
		le16(e, 4, 32)
		le64(e, 16, uint64(64+i)|1<<48)
		list = append(list, e...)
		pairs := bytes.Repeat([]byte{1, 1}, (ntfsRecord-0x200)/2) // holes of one cluster
		a := away(0x80, "", 128<<10, pairs)
		le64(a, 16, uint64(i)*uint64(len(pairs)/2))
		v.record(64+i, 0, a)
	}
	a := v.data(list)
	le32(a, 0, 0x20)
	v.record(10, 0, a)
	return v.Image
}
