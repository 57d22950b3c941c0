package bombs

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strings"
	"unicode/utf16"
)

// fatImage returns a FAT32 whose root folder is a chain of clusters of 32 KiB. All entries of the
// folder refer to the root itself.
func fatImage(chain int) *Image {
	const cluster, clusters = 32 << 10, 2 << 20
	m := newImage(clusters*cluster + 64<<20)
	boot := make([]byte, 512)
	// Offsets: 11 bytes of a sector, 13 sectors of a cluster, 14 reserved sectors, 16 tables, 32 sectors,
	// 36 sectors of a table, 44 cluster of the root.
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
	// Each cluster leads to the next one, up to the end of the chain.
	table := make([]byte, 8<<20)
	for i := 2; i < len(table)/4; i++ {
		le32(table, 4*i, uint32(i+1))
	}
	le32(table, 4*(1+chain), 0xfffffff)
	m.put(32*512, table)
	// Entry of a folder named EFI whose first cluster is that of the root.
	line := make([]byte, 32)
	copy(line, "EFI        ")
	line[11] = 0x10
	le16(line, 26, 2)
	m.put((32+tableSectors)*512, bytes.Repeat(line, chain*cluster/32))
	return m
}

// xfsImage returns an XFS whose root folder uses the same block at many offsets.
func xfsImage() *Image {
	const block, dirBlock = 4096, 64 << 10
	m := newImage(64 << 20)
	s := make([]byte, 512)
	copy(s, "XFSB")
	// Offsets in the superblock: 4 block size, 8 blocks, 56 root inode, 84 blocks of a group, 100 version,
	// 104 inode size, 123 and 124 logarithms of inodes per block and of group blocks, 192 directory block size.
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
	// The folder claims a size of 1 GiB.
	be64(inode, 56, 1<<30)
	be16(inode, 100, 1)
	// The root of the extent tree fills the inode's literal area.
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
			// All extents refer to the block 1024.
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

// btrfsImage returns a btrfs with a tree of eight levels and one block on each level. All branches
// of a block lead to the block below, so the tree has an astronomical number of paths. It is the
// chunk tree if chunks is true, and the root tree otherwise.
func btrfsImage(chunks bool) *Image {
	const node = 64 << 10
	m := newImage(64 << 20)
	// block writes a tree block; its address is at 48, the number of items at 96, its level at 100.
	block := func(at uint64, level byte, build func(p []byte)) {
		p := make([]byte, node)
		le64(p, 48, at)
		p[100] = level
		build(p)
		m.put(int64(at), p)
	}
	// wide writes a tree whose inner blocks have the maximum number of links, all to the block below.
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
		block(base, 0, func(p []byte) { le32(p, 96, (node-101)/25) }) // all keys are 0 and precede every searched key
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
	// Offsets: 80 root tree, 88 chunk tree, 112 size, 148 node size, 160 size of the system chunks, 198 and 199
	// levels of both trees, 201 device, 811 system chunks.
	le64(s, 80, rootTree+7*node)
	le64(s, 88, chunkTree+uint64(top)*node)
	le64(s, 112, uint64(m.size))
	le32(s, 148, node)
	le32(s, 160, 17+48+32)
	s[198], s[199] = 7, top
	le64(s, 201, 1)
	chunk := s[811:]
	// A chunk item (type 228) maps all logical addresses to the same physical ones.
	chunk[8] = 228
	le64(chunk, 17, uint64(m.size))
	le16(chunk, 17+44, 1)
	le64(chunk, 17+48, 1)
	m.put(64<<10, s)
	return m
}

// lvmImage returns a physical volume with text as the description of its group.
func lvmImage(text string) *Image {
	const areaSize = 8 << 20
	m := newImage(16 << 20)
	// LVM's CRC-32 starts with 0xf597a6cf and is not inverted.
	crc := func(p []byte) uint32 { return ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, p) }
	label := make([]byte, 512)
	copy(label, "LABELONE")
	// Label header: sector of the label, CRC, offset of the content, type; then the header of the volume.
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
	// Metadata area: its size, then offset, length and CRC of the text.
	le64(area, 32, areaSize)
	le64(area, 40, 512)
	le64(area, 48, uint64(len(text)))
	le32(area, 56, crc([]byte(text)))
	le32(area, 0, crc(area[4:]))
	m.put(4096, area)
	m.put(4096+512, []byte(text))
	return m
}

// ldmImage returns a dynamic disk whose database is full of volumes.
func ldmImage() *Image {
	m := newImage(64 << 20)
	mbr := make([]byte, 512)
	// One partition of the type of dynamic disks.
	mbr[446+4] = 0x42
	le32(mbr, 446+8, 63)
	le32(mbr, 446+12, uint32(m.size/512)-4096)
	mbr[510], mbr[511] = 0x55, 0xaa
	m.put(0, mbr)
	head := make([]byte, 512)
	copy(head, "PRIVHEAD")
	be16(head, 0xc, 2)
	copy(head[0x30:], "00000000-0000-0000-0000-000000000000")
	// The private header contains the sector of the database, 1 MiB before the end of the disk.
	base := uint64(m.size/512 - 2048)
	be64(head, 0x12b, base)
	m.put(6*512, head)
	db := make([]byte, 1<<20)
	at := 17 * 512
	copy(db[at:], "VMDB")
	// Number of records, size of a record, offset of the first record.
	be32(db, at+4, 1<<31)
	be32(db, at+8, 128)
	be32(db, at+12, 512)
	record := 0
	// add writes the next record with the fields.
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
	// One disk record, then a volume, a component and a partition for each volume.
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

// gptImage returns a disk with count partitions that all contain the same range, inner.
func gptImage(inner *Image, count int) *Image {
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
	// Offsets: 12 header size, 24 own sector, 72 sector of the entries, 80 their number, 84 their size, 88 and
	// 16 checksums.
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

// hiveFile returns a registry hive whose root has a list of lists of subkeys. All entries refer to one
// key.
func hiveFile() []byte {
	cells := make([]byte, 1<<20)
	next := 32
	// cell stores b in a new cell and returns its offset.
	cell := func(b []byte) uint32 {
		at := next
		le32(cells, at, uint32(-int32(len(b)+4)))
		copy(cells[at+4:], b)
		next = (at + 4 + len(b) + 7) &^ 7
		return uint32(at)
	}
	// key returns a key with 32,768 subkeys in the list.
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
	// list stores a list of count equal entries.
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
	ntfsRecord  = 4096 // bytes of a record of the master file table
	ntfsCluster = 4096 // bytes of a cluster
)

// An ntfsVolume is an NTFS under construction.
type ntfsVolume struct {
	*Image
	mft  int64 // offset of the master file table
	next int64 // first free cluster
}

// newNTFS returns a volume whose master file table has space for count records. It contains the
// records that every reader requires.
func newNTFS(count int) *ntfsVolume {
	v := &ntfsVolume{Image: newImage(1 << 30), mft: 4 * ntfsCluster, next: 4 + int64(count)}
	v.put(0, ntfsBoot(ntfsCluster/512, uint64(v.size/512), 4))
	// Record 0 is the MFT itself.
	v.putRecord(0, 0, clusterAttribute(0x80, "", int64(count)*ntfsRecord, encodeRun(int64(count), 4)))
	upcase := make([]byte, 128<<10)
	for i := range 1 << 16 {
		r := uint16(i)
		if 'a' <= i && i <= 'z' {
			r -= 32
		}
		le16(upcase, 2*i, r)
	}
	v.putRecord(10, 0, v.addData(upcase))
	// $VOLUME_INFORMATION of version 3.0 without flags.
	about := make([]byte, 12)
	about[8] = 3
	v.putRecord(3, 0, residentAttribute(0x70, "", about))
	// A journal of 0xff bytes was never used.
	v.putRecord(2, 0, residentAttribute(0x80, "", bytes.Repeat([]byte{0xff}, 512)))
	return v
}

// ntfsBoot returns the boot sector of a volume of count sectors, with perCluster sectors in a cluster and
// the master file table at cluster mft. Values of perCluster above 128 are negative powers of two.
func ntfsBoot(perCluster byte, count, mft uint64) []byte {
	boot := make([]byte, 512)
	copy(boot[3:], "NTFS    ")
	// Offsets: 0x0b bytes of a sector, 0x0d sectors of a cluster, 0x28 sectors, 0x30 cluster of the MFT, 0x40
	// size of a record.
	le16(boot, 0x0b, 512)
	boot[0x0d] = perCluster
	le64(boot, 0x28, count)
	le64(boot, 0x30, mft)
	boot[0x40] = 0xf4 // 2^12 bytes
	return boot
}

// addData stores b in new clusters and returns the $DATA attribute for it.
func (v *ntfsVolume) addData(b []byte) []byte {
	clusters := int64(len(b)+ntfsCluster-1) / ntfsCluster
	v.put(v.next*ntfsCluster, b)
	a := clusterAttribute(0x80, "", int64(len(b)), encodeRun(clusters, v.next))
	v.next += clusters
	return a
}

// putRecord writes record n of the master file table with fixups. flags 2 marks a folder.
func (v *ntfsVolume) putRecord(n int64, flags uint16, attributes ...[]byte) {
	b := make([]byte, ntfsRecord)
	copy(b, "FILE")
	// Offsets: 4 fixups, 6 their number, 0x10 sequence, 0x14 first attribute, 0x16 flags, 0x18 used bytes.
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
	v.put(v.mft+n*ntfsRecord, b)
}

// utf16Bytes encodes s as little-endian UTF-16.
func utf16Bytes(s string) []byte {
	u := utf16.Encode([]rune(s))
	b := make([]byte, 2*len(u))
	for i, c := range u {
		le16(b, 2*i, c)
	}
	return b
}

// residentAttribute returns an attribute whose value is in its record.
func residentAttribute(kind uint32, name string, value []byte) []byte {
	n := utf16Bytes(name)
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

// clusterAttribute returns an attribute of size bytes whose value is in clusters. runs is the run list.
func clusterAttribute(kind uint32, name string, size int64, runs []byte) []byte {
	n := utf16Bytes(name)
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

// encodeRun returns the run list of a value with a single run: count clusters from cluster at on.
func encodeRun(count, at int64) []byte {
	b := make([]byte, 9)
	b[0] = 0x44
	le32(b, 1, uint32(count))
	le32(b, 5, uint32(at))
	return b
}

// indexEntry returns an entry of a folder's tree. An entry without a name is the last of its block.
// below is the block with smaller names; -1 if none exists.
func indexEntry(name string, record int64, folder bool, below int64) []byte {
	key := []byte{}
	if name != "" {
		key = append(make([]byte, 0x42), utf16Bytes(name)...)
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
	// Offsets: 0 reference, 8 length, 10 length of the key, 12 flags, 16 key.
	le16(b, 8, uint16(length))
	le16(b, 10, uint16(len(key)))
	le16(b, 12, flags)
	copy(b[16:], key)
	if below >= 0 {
		le64(b, length-8, uint64(below))
	}
	return b
}

// putFolder writes a folder to record n. entries are in the root of its tree; more are further
// attributes.
func (v *ntfsVolume) putFolder(n int64, entries []byte, more ...[]byte) {
	root := make([]byte, 32, 32+len(entries))
	le32(root, 8, 4096)
	le32(root, 16, 16)
	le32(root, 20, uint32(16+len(entries)))
	v.putRecord(n, 2, append([][]byte{residentAttribute(0x90, "$I30", append(root, entries...))}, more...)...)
}

// putWindows adds the two registry files that an examination reads, with the same content.
func (v *ntfsVolume) putWindows(registry []byte) *Image {
	for i, name := range []string{"Windows", "System32", "config"} {
		n := []int64{5, 16, 17}[i]
		v.putFolder(n, append(indexEntry(name, int64(16+i), true, -1), indexEntry("", 0, false, -1)...))
	}
	v.putFolder(18, append(append(indexEntry("SOFTWARE", 19, false, -1), indexEntry("SYSTEM", 19, false, -1)...), indexEntry("", 0, false, -1)...))
	v.putRecord(19, 0, v.addData(registry))
	return v.Image
}

// ntfsFolders returns a volume with a loop in the tree of its root folder: each entry of a block
// has that block itself as its child.
func ntfsFolders() *Image {
	v := newNTFS(64)
	block := make([]byte, 4096)
	copy(block, "INDX")
	// Offsets: 4 fixups, 6 their number, 24 index header.
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
	v.putFolder(5, indexEntry("", 0, false, 0), clusterAttribute(0xa0, "$I30", 4096, encodeRun(1, v.next)))
	return v.Image
}

// ntfsHole returns a volume with clusters of 1 MiB whose $UpCase is a hole of 2^43 clusters, so that the
// size of the hole in bytes is 2^63.
func ntfsHole() *Image {
	v := &ntfsVolume{Image: newImage(2 << 20), mft: 1 << 20}
	v.put(0, ntfsBoot(0xf5, uint64(v.size/512), 1)) // 2^11 sectors
	v.putRecord(0, 0, clusterAttribute(0x80, "", 1<<20, encodeRun(1, 1)))
	v.putRecord(10, 0, clusterAttribute(0x80, "", 128<<10, []byte{6, 0, 0, 0, 0, 0, 8}))
	return v.Image
}

// ntfsPieces returns a volume whose $UpCase is spread over many records, each with the maximum
// number of runs.
func ntfsPieces() *Image {
	const count = 8000
	v := newNTFS(count + 64)
	var list []byte
	for i := range int64(count) {
		// An entry of an attribute list: type, length, reference of the record.
		e := make([]byte, 32)
		le32(e, 0, 0x80)
		le16(e, 4, 32)
		le64(e, 16, uint64(64+i)|1<<48)
		list = append(list, e...)
		pairs := bytes.Repeat([]byte{1, 1}, (ntfsRecord-0x200)/2) // holes of one cluster
		a := clusterAttribute(0x80, "", 128<<10, pairs)
		le64(a, 16, uint64(i)*uint64(len(pairs)/2))
		v.putRecord(64+i, 0, a)
	}
	a := v.addData(list)
	le32(a, 0, 0x20)
	v.putRecord(10, 0, a)
	return v.Image
}
