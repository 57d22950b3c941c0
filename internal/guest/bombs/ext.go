package bombs

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// files contains the content of files by path. A content that starts with "-> " is a symbolic link.
type files map[string]string

// An extFile is an inode of an ext4 file system.
type extFile struct {
	mode uint16 // type and permissions
	size int64  // size in bytes; may exceed len(data)
	data []byte // first bytes; the rest of the file is a hole
	raw  []byte // i_block of the inode, instead of data; nil for a valid mapping
}

// extBlock is the size of a block in bytes.
const extBlock = 4096

// linuxFiles returns the files of a Linux with one kernel and the initramfs, and the files of more. An
// empty initramfs is omitted.
func linuxFiles(initramfs string, more files) files {
	all := files{
		"etc/os-release": "ID=debian\n", "etc/fstab": "/dev/sda1 / ext4 defaults 0 1\n", "sbin/init": "", "boot/vmlinuz-6.1.0": "kernel",
		"lib/modules/6.1.0/modules.dep": "kernel/virtio_scsi.ko:\n",
	}
	if initramfs != "" {
		all["boot/initrd.img-6.1.0"] = initramfs
	}
	maps.Copy(all, more)
	return all
}

// extImage returns a disk with an ext4 file system of one group. sizes enlarges files beyond their
// content with a hole. roots replaces the 60 bytes of i_block. Both have paths as keys.
func extImage(content files, sizes map[string]int64, roots map[string][]byte) *Image {
	nodes := map[string]*extFile{"": {mode: 0x41ed}}
	below := map[string][]string{}
	// add creates the folder name and its parents.
	var add func(name string)
	add = func(name string) {
		if nodes[name] == nil {
			nodes[name] = &extFile{mode: 0x41ed}
		}
		if name == "" || slices.Contains(below[parentFolder(name)], name) {
			return
		}
		add(parentFolder(name))
		below[parentFolder(name)] = append(below[parentFolder(name)], name)
	}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		data := []byte(content[name])
		nodes[name] = &extFile{mode: 0x81a4, data: data, size: max(int64(len(data)), sizes[name]), raw: roots[name]}
		if target, ok := strings.CutPrefix(content[name], "-> "); ok {
			nodes[name] = &extFile{mode: 0xa1ff, data: []byte(target), size: int64(len(target))}
		}
		up := parentFolder(name)
		add(up)
		below[up] = append(below[up], name)
	}
	return layOut(nodes, below)
}

// parentFolder returns the folder of a path; the root is empty.
func parentFolder(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

// layOut assigns inodes and blocks to nodes. The order on the disk is superblock, descriptors,
// inodes, data. below contains the paths in each folder.
func layOut(nodes map[string]*extFile, below map[string][]string) *Image {
	names := slices.Sorted(maps.Keys(nodes))
	// Inode 2 is the root; the first inode that is not reserved is 11.
	number := map[string]uint32{"": 2}
	for i, name := range names[1:] {
		number[name] = uint32(11 + i)
	}
	inodes := uint32(len(names) + 16)
	table := make([]byte, (int(inodes)*128+extBlock-1)/extBlock*extBlock)
	next := int64(2 + len(table)/extBlock)
	m := newImage(0)
	for _, name := range names {
		n := nodes[name]
		if n.mode&0xf000 == 0x4000 {
			n.data = folderBlocks(below[name], nodes, number)
			n.size = int64(len(n.data))
		}
		// Inodes of 128 bytes: mode at 0, size at 4 and 0x6c, flags at 0x20 (0x80000: extents), i_block at 0x28.
		inode := table[(number[name]-1)*128:][:128]
		le16(inode, 0, n.mode)
		le32(inode, 4, uint32(n.size))
		le32(inode, 0x6c, uint32(n.size>>32))
		switch {
		case n.raw != nil:
			le32(inode, 0x20, 0x80000)
			copy(inode[0x28:], n.raw)
		case n.mode&0xf000 == 0xa000 && n.size < 60:
			copy(inode[0x28:], n.data)
		default:
			blocks := (len(n.data) + extBlock - 1) / extBlock
			le32(inode, 0x20, 0x80000)
			copy(inode[0x28:], extentRoot(next, blocks))
			if blocks > 0 {
				m.put(next*extBlock, n.data)
			}
			next += int64(blocks)
		}
	}
	// A reader may expect free blocks after the data.
	m.size = next*extBlock + 16<<20
	super := make([]byte, 1024)
	// Offsets: 0 inodes, 4 blocks, 0x18 block size, 0x28 inodes of a group, 0x38 magic, 0x4c revision,
	// 0x58 inode size, 0x60 incompatible features.
	le32(super, 0, inodes)
	le32(super, 4, uint32(m.size/extBlock))
	le32(super, 0x18, 2)
	le32(super, 0x28, inodes)
	le16(super, 0x38, 0xef53)
	le32(super, 0x4c, 1)
	le16(super, 0x58, 128)
	le32(super, 0x60, 0x42) // extents, names with kinds
	m.put(1024, super)
	group := make([]byte, 32)
	// The inode table begins at block 2.
	le32(group, 8, 2)
	m.put(extBlock, group)
	m.put(2*extBlock, table)
	return m
}

// extentRoot returns an i_block with extents for contiguous blocks from first on, at most four extents.
func extentRoot(first int64, blocks int) []byte {
	// Header of 12 bytes (magic, entries, maximum, depth), then entries of 12 bytes.
	root := make([]byte, 60)
	le16(root, 0, 0xf30a)
	le16(root, 4, 4)
	for i := 0; blocks > 0 && i < 4; i++ {
		n := min(blocks, 32768)
		e := root[12+12*i:]
		le32(e, 0, uint32(i*32768))
		le16(e, 4, uint16(n))
		le32(e, 8, uint32(first))
		le16(root, 2, uint16(i+1))
		first, blocks = first+int64(n), blocks-n
	}
	return root
}

// folderBlocks returns the blocks of a folder with the names, which are paths.
func folderBlocks(names []string, nodes map[string]*extFile, number map[string]uint32) []byte {
	out := []byte{}
	block := make([]byte, 0, extBlock)
	last := 0
	// flush extends the last entry to the end of the block and starts a new block.
	flush := func() {
		le16(block, last+4, uint16(extBlock-last))
		out, block = append(out, block[:extBlock]...), make([]byte, 0, extBlock)
	}
	for _, name := range names {
		base := path.Base(name)
		length := (8 + len(base) + 3) &^ 3
		if len(block)+length > extBlock {
			flush()
		}
		last = len(block)
		block = block[:last+length]
		e := block[last:]
		le32(e, 0, number[name])
		le16(e, 4, uint16(length))
		e[6], e[7] = byte(len(base)), map[uint16]byte{0x8000: 1, 0x4000: 2, 0xa000: 7}[nodes[name].mode&0xf000]
		copy(e[8:], base)
	}
	if len(block) > 0 || len(out) == 0 {
		if len(block) == 0 {
			block = block[:8]
		}
		flush()
	}
	return out
}
