package extwrite

import "fmt"

const roOrphanPresent = 0x10000

// A feature is a bit of a superblock with its name, as mke2fs and dumpe2fs have it.
type feature struct {
	bit  uint32
	name string
}

// Features that change nothing for who writes here, or are done right by it.
const (
	knownCompat = 0x1 | compatJournal | 0x8 /* ext_attr */ | 0x10 /* resize_inode */ | 0x20 /* dir_index */ |
		compatSparseSuper2 | 0x400 /* fast_commit */ | 0x800 /* stable_inodes */ | 0x1000 /* orphan_file */
	knownIncompat = incompatFileType | incompatExtents | incompat64Bit | 0x200 /* flex_bg */ |
		incompatCSumSeed | 0x4000 /* large_dir */
	knownROCompat = roSparseSuper | 0x2 /* large_file */ | roHugeFile | roGroupCSum | 0x20 /* dir_nlink */ |
		0x40 /* extra_isize */ | roMetadataCSum
)

// Names of those that are refused.
var (
	incompatNames = []feature{{0x1, "compression"}, {0x8, "journal_dev"}, {0x10, "meta_bg"}, {0x100, "mmp"}, {0x400, "ea_inode"},
		{0x1000, "dirdata"}, {0x8000, "inline_data"}, {0x10000, "encrypt"}, {0x20000, "casefold"}}
	roCompatNames = []feature{{0x80, "has_snapshot"}, {0x100, "quota"}, {0x200, "bigalloc"}, {0x800, "replica"}, {0x1000, "read-only"},
		{0x2000, "project"}, {0x4000, "shared_blocks"}, {0x8000, "verity"}}
)

// foreignFeatures names the features that are not on the lists.
func (s *super) foreignFeatures() []string {
	foreign := named("compat", s.compat&^knownCompat, nil)
	foreign = append(foreign, named("incompat", s.incompat&^knownIncompat, incompatNames)...)
	return append(foreign, named("ro_compat", s.roCompat&^knownROCompat, roCompatNames)...)
}

func named(set string, bits uint32, names []feature) (out []string) {
	for _, f := range names {
		if bits&f.bit != 0 {
			out = append(out, f.name)
			bits &^= f.bit
		}
	}
	if bits != 0 {
		out = append(out, fmt.Sprintf("%s %#x", set, bits))
	}
	return out
}
