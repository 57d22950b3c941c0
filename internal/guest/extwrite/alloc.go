package extwrite

import "github.com/decamp/decamp/internal/fault"

// A run is neighbouring blocks of a file that are neighbours on the disk, too.
type run struct {
	file      int64 // the first one's number in the file
	disk      int64 // and on the disk
	n         int64
	unwritten bool // allocated, reads as zeros
}

func (r run) end() int64 { return r.file + r.n }

// An allocator finds free blocks and free inodes, marks them as used, and gives blocks back.
type allocator struct {
	super  *super
	groups *groupTable
}

// allocate takes n blocks, from goal on where they are free. The runs have no place in a
// file yet.
func (a *allocator) allocate(goal, n int64) ([]run, error) {
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
		return nil, corrupt("%d blocks less are free than are counted", n)
	}
	return runs, nil
}

func (a *allocator) fullError(n, free int64) error {
	return fault.New(fault.Full, "the guest's file system has %d KiB free, %d KiB are needed", free*a.super.blockSize/1024, n*a.super.blockSize/1024).
		WithHint("free space in the guest (old kernels: apt autoremove, dnf remove --oldinstallonly), and copy it again")
}

// allocateIn takes up to n blocks of a group, from bit from on.
func (a *allocator) allocateIn(group, from, n int64) ([]run, error) {
	d, err := a.groups.read(group)
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
		if last := len(runs) - 1; last >= 0 && runs[last].disk+runs[last].n == base+i {
			runs[last].n++
			continue
		}
		runs = append(runs, run{disk: base + i, n: 1})
	}
	return runs, a.groups.addFreeBlocks(group, -taken)
}

// free gives blocks back.
func (a *allocator) free(disk, n int64) error {
	for end := disk + n; disk < end; disk++ {
		if disk <= a.super.firstBlock || disk >= a.super.blocks {
			return corrupt("a file has block %d of %d", disk, a.super.blocks)
		}
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

// newInode takes an inode, near the folder it will be in.
func (a *allocator) newInode(parent uint32, folder bool) (uint32, error) {
	first := int64((parent - 1) / a.super.inodesPerGroup)
	for i := range a.super.groups {
		group := (first + i) % a.super.groups
		d, err := a.groups.read(group)
		if err != nil {
			return 0, err
		}
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
		if err := a.beginTable(group, i); err != nil {
			return 0, err
		}
		return num, a.groups.takeInode(group, folder)
	}
	return 0, nil
}

// beginTable counts inode i of a group to the part of its table that is in use.
func (a *allocator) beginTable(group, i int64) error {
	d, err := a.groups.edit(group)
	if err != nil || !a.super.uninitGroups() {
		return err
	}
	rest := int64(a.super.inodesPerGroup) - i - 1
	if a.super.groupCount(d, 0x1c, 0x32) > rest {
		a.super.putGroupCount(d, 0x1c, 0x32, rest)
	}
	return nil
}
