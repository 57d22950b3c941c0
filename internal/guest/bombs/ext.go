package bombs

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// files are what an ext file system holds, by path. A content that starts with "-> " is a link.
type files map[string]string

// A extFile is an inode of extImage.
type extFile struct {
	mode uint16
	size int64
	data []byte // its first bytes; the rest is a hole
	raw  []byte // block map of the inode, instead of data
}

const extBlock = 4096

// linux returns the files of a Linux with one kernel whose initramfs is given, and those of more.
func linux(initramfs string, more files) files {
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

// ext returns a disk with an ext4 file system of one group. Sizes make files larger than their
// content: the rest is a hole. Roots replace the 60 bytes that locate an inode's blocks.
func ext(content files, sizes map[string]int64, roots map[string][]byte) *Image {
	nodes := map[string]*extFile{"": {mode: 0x41ed}}
	below := map[string][]string{}
	var add func(name string)
	add = func(name string) {
		if nodes[name] == nil {
			nodes[name] = &extFile{mode: 0x41ed}
		}
		if name == "" || slices.Contains(below[parent(name)], name) {
			return
		}
		add(parent(name))
		below[parent(name)] = append(below[parent(name)], name)
	}
	for _, name := range slices.Sorted(maps.Keys(content)) {
		data := []byte(content[name])
		nodes[name] = &extFile{mode: 0x81a4, data: data, size: max(int64(len(data)), sizes[name]), raw: roots[name]}
		if target, ok := strings.CutPrefix(content[name], "-> "); ok {
			nodes[name] = &extFile{mode: 0xa1ff, data: []byte(target), size: int64(len(target))}
		}
		up := parent(name)
		add(up)
		below[up] = append(below[up], name)
	}
	return layOut(nodes, below)
}

func parent(name string) string {
	if dir := path.Dir(name); dir != "." {
		return dir
	}
	return ""
}

// layOut gives inodes and blocks to nodes: 1 superblock, 1 block of descriptors, the inodes, data.
func layOut(nodes map[string]*extFile, below map[string][]string) *Image {
	names := slices.Sorted(maps.Keys(nodes))
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
	m.size = next*extBlock + 16<<20
	super := make([]byte, 1024)
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
	le32(group, 8, 2)
	m.put(extBlock, group)
	m.put(2*extBlock, table)
	return m
}

// extentRoot describes so many blocks in a row.
func extentRoot(first int64, blocks int) []byte {
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

// folderBlocks are the blocks of a folder with those names.
func folderBlocks(names []string, nodes map[string]*extFile, number map[string]uint32) []byte {
	out := []byte{}
	block := make([]byte, 0, extBlock)
	last := 0
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
