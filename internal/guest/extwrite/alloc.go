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

// allocate takes n blocks, from goal on where they are free. The runs have no place in a
// file yet.
func (fs *FS) allocate(goal, n int64) ([]run, error) {
	s, err := fs.superblock()
	if err != nil {
		return nil, err
	}
	if free := fs.freeBlocks(s); n > free {
		return nil, fs.full(n, free)
	}
	if goal < fs.firstBlock || goal >= fs.blocks {
		goal = fs.firstBlock
	}
	var runs []run
	first := (goal - fs.firstBlock) / fs.blocksPerGroup
	from := (goal - fs.firstBlock) % fs.blocksPerGroup
	for i := int64(0); i <= fs.groups && n > 0; i++ { // the first group twice: what is before goal comes last
		got, err := fs.allocateIn((first+i)%fs.groups, from, n)
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

func (fs *FS) full(n, free int64) error {
	return fault.New(fault.Full, "the guest's file system has %d KiB free, %d KiB are needed", free*fs.blockSize/1024, n*fs.blockSize/1024).
		WithHint("free space in the guest (old kernels: apt autoremove, dnf remove --oldinstallonly), and copy it again")
}

// allocateIn takes up to n blocks of a group, from bit from on.
func (fs *FS) allocateIn(group, from, n int64) ([]run, error) {
	d, err := fs.group(group)
	if err != nil || fs.groupCount(d, 0xc, 0x2c) == 0 {
		return nil, err
	}
	bits, err := fs.blockBitmap(group)
	if err != nil {
		return nil, err
	}
	var runs []run
	base, taken := fs.firstBlock+group*fs.blocksPerGroup, int64(0)
	for i := from; i < fs.groupBlocks(group) && taken < n; i++ {
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
	return runs, fs.addFreeBlocks(group, -taken)
}

// free gives blocks back.
func (fs *FS) free(disk, n int64) error {
	for end := disk + n; disk < end; disk++ {
		if disk <= fs.firstBlock || disk >= fs.blocks {
			return corrupt("a file has block %d of %d", disk, fs.blocks)
		}
		group, bit := (disk-fs.firstBlock)/fs.blocksPerGroup, (disk-fs.firstBlock)%fs.blocksPerGroup
		bits, err := fs.blockBitmap(group)
		if err != nil {
			return err
		}
		if !bits.has(bit) {
			return corrupt("block %d belongs to a file and is free", disk)
		}
		bits.clear(bit)
		if err := fs.addFreeBlocks(group, 1); err != nil {
			return err
		}
	}
	return nil
}

// newInode takes an inode, near the folder it will be in.
func (fs *FS) newInode(parent uint32, folder bool) (uint32, error) {
	first := int64((parent - 1) / fs.inodesPerGroup)
	for i := range fs.groups {
		group := (first + i) % fs.groups
		d, err := fs.group(group)
		if err != nil {
			return 0, err
		}
		if fs.groupCount(d, 0xe, 0x2e) == 0 {
			continue
		}
		num, err := fs.newInodeIn(group, folder)
		if num != 0 || err != nil {
			return num, err
		}
	}
	return 0, fault.New(fault.Full, "the guest's file system has no free inode").
		WithHint("remove files in the guest, and copy it again")
}

func (fs *FS) newInodeIn(group int64, folder bool) (uint32, error) {
	bits, err := fs.inodeBitmap(group)
	if err != nil {
		return 0, err
	}
	for i := range int64(fs.inodesPerGroup) {
		num := uint32(group)*fs.inodesPerGroup + uint32(i) + 1
		if bits.has(i) || num < fs.firstInode {
			continue
		}
		bits.set(i)
		if err := fs.beginTable(group, i); err != nil {
			return 0, err
		}
		return num, fs.takeInode(group, folder)
	}
	return 0, nil
}

// beginTable counts inode i of a group to the part of its table that is in use.
func (fs *FS) beginTable(group, i int64) error {
	d, err := fs.editGroup(group)
	if err != nil || !fs.uninitGroups() {
		return err
	}
	rest := int64(fs.inodesPerGroup) - i - 1
	if fs.groupCount(d, 0x1c, 0x32) > rest {
		fs.putGroupCount(d, 0x1c, 0x32, rest)
	}
	return nil
}
