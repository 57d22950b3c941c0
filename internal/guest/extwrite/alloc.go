package extwrite

import "github.com/decamp/decamp/internal/fault"

// A run is a range of a file's blocks that is contiguous in the file and on the disk.
type run struct {
	file      int64 // number of the first block, counted within the file
	disk      int64 // number of the first block, counted within the file system
	n         int64 // length in blocks
	unwritten bool  // the blocks are allocated but read as zeros (an uninitialized extent)
}

// end returns the number of the first file block after the run.
func (r run) end() int64 { return r.file + r.n }

// An allocator finds free blocks and inodes, marks them as used, and frees blocks. All changes
// go to the staged bitmaps, descriptors and superblock.
type allocator struct {
	super  *super      // geometry of the file system
	groups *groupTable // bitmaps and counts that the allocator changes
}

// allocateBlocks allocates n blocks and returns them as runs whose file numbers are zero; the
// caller sets those. It prefers blocks from goal on, then searches the following groups. A goal
// outside the file system means the first block. The error is fault.Full if fewer than n blocks
// are free, and fault.Corrupt if the bitmaps contradict the counts.
func (a *allocator) allocateBlocks(goal, n int64) ([]run, error) {
	s, err := a.groups.superblock()
	if err != nil {
		return nil, err
	}
	if free := a.super.freeBlocks(s); n > free {
		return nil, a.fullError(n, free)
	}
	if goal < a.super.firstBlock || goal >= a.super.blocks {
		goal = a.super.firstBlock
	}
	var runs []run
	// from is the bit within the first group; later groups are searched from their beginning.
	first := (goal - a.super.firstBlock) / a.super.blocksPerGroup
	from := (goal - a.super.firstBlock) % a.super.blocksPerGroup
	for i := int64(0); i <= a.super.groups && n > 0; i++ { // the first group twice: its blocks before goal come last
		got, err := a.allocateIn((first+i)%a.super.groups, from, n)
		if err != nil {
			return nil, err
		}
		for _, r := range got {
			n -= r.n
		}
		runs, from = append(runs, got...), 0
	}
	if n > 0 {
		return nil, corrupt("%d free blocks are missing", n)
	}
	return runs, nil
}

// fullError returns a fault.Full error that names the free and the required space; n and free are
// in blocks.
func (a *allocator) fullError(n, free int64) error {
	return fault.New(fault.Full, "the guest's file system has %d KiB free, %d KiB are required", free*a.super.blockSize/1024, n*a.super.blockSize/1024).
		WithHint("free space in the guest (old kernels: apt autoremove, dnf remove --oldinstallonly), and copy it again")
}

// allocateIn allocates up to n blocks of one group, starting at bit from. It returns fewer, or
// none, if the group has no more free blocks.
func (a *allocator) allocateIn(group, from, n int64) ([]run, error) {
	d, err := a.groups.readDescriptor(group)
	if err != nil || a.super.groupCount(d, 0xc, 0x2c) == 0 {
		return nil, err
	}
	bits, err := a.groups.blockBitmap(group)
	if err != nil {
		return nil, err
	}
	var runs []run
	base, taken := a.super.firstBlock+group*a.super.blocksPerGroup, int64(0)
	for i := from; i < a.super.groupBlocks(group) && taken < n; i++ {
		if bits.has(i) {
			continue
		}
		bits.set(i)
		taken++
		// Contiguous blocks become one run, and so one extent.
		if last := len(runs) - 1; last >= 0 && runs[last].disk+runs[last].n == base+i {
			runs[last].n++
			continue
		}
		runs = append(runs, run{disk: base + i, n: 1})
	}
	return runs, a.groups.addFreeBlocks(group, -taken)
}

// freeBlocks marks n blocks from block disk on as free. It fails if one of them is outside the
// file system or already free, because both prove that the file's mapping is corrupt.
func (a *allocator) freeBlocks(disk, n int64) error {
	for end := disk + n; disk < end; disk++ {
		if disk <= a.super.firstBlock || disk >= a.super.blocks {
			return corrupt("a file has block %d of %d", disk, a.super.blocks)
		}
		// Group 0 begins at firstBlock, not at block 0.
		group, bit := (disk-a.super.firstBlock)/a.super.blocksPerGroup, (disk-a.super.firstBlock)%a.super.blocksPerGroup
		bits, err := a.groups.blockBitmap(group)
		if err != nil {
			return err
		}
		if !bits.has(bit) {
			return corrupt("block %d belongs to a file and is free", disk)
		}
		bits.clear(bit)
		if err := a.groups.addFreeBlocks(group, 1); err != nil {
			return err
		}
	}
	return nil
}

// newInode allocates an inode and returns its number. It starts in the group of the parent folder
// and tries the following groups in order. The error is fault.Full if all inodes are in use.
func (a *allocator) newInode(parent uint32, folder bool) (uint32, error) {
	first := int64((parent - 1) / a.super.inodesPerGroup)
	for i := range a.super.groups {
		group := (first + i) % a.super.groups
		d, err := a.groups.readDescriptor(group)
		if err != nil {
			return 0, err
		}
		// bg_free_inodes_count: skip full groups without reading their bitmap.
		if a.super.groupCount(d, 0xe, 0x2e) == 0 {
			continue
		}
		num, err := a.newInodeIn(group, folder)
		if num != 0 || err != nil {
			return num, err
		}
	}
	return 0, fault.New(fault.Full, "the guest's file system has no free inode").
		WithHint("remove files in the guest, and copy it again")
}

// newInodeIn allocates an inode of one group. It returns 0 if the bitmap has no free inode that a
// file may use; inodes before firstInode are reserved.
func (a *allocator) newInodeIn(group int64, folder bool) (uint32, error) {
	bits, err := a.groups.inodeBitmap(group)
	if err != nil {
		return 0, err
	}
	for i := range int64(a.super.inodesPerGroup) {
		num := uint32(group)*a.super.inodesPerGroup + uint32(i) + 1
		if bits.has(i) || num < a.super.firstInode {
			continue
		}
		bits.set(i)
		if err := a.growUsedTable(group, i); err != nil {
			return 0, err
		}
		return num, a.groups.countUsedInode(group, folder)
	}
	return 0, nil
}

// growUsedTable lowers a group's count of unused inodes (bg_itable_unused) so that inode i of the
// group belongs to the used part of the inode table. File systems without checksums of
// descriptors do not have the count.
func (a *allocator) growUsedTable(group, i int64) error {
	d, err := a.groups.editDescriptor(group)
	if err != nil || !a.super.uninitGroups() {
		return err
	}
	// rest is the number of inodes after i; the count must not exceed it.
	rest := int64(a.super.inodesPerGroup) - i - 1
	if a.super.groupCount(d, 0x1c, 0x32) > rest {
		a.super.putGroupCount(d, 0x1c, 0x32, rest)
	}
	return nil
}
