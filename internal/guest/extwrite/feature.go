package extwrite

import "fmt"

// roOrphanPresent is set while the orphan file lists inodes to delete. checkClean evaluates it.
const roOrphanPresent = 0x10000

// A feature is a bit of a superblock or inode with the name that mke2fs and dumpe2fs use.
type feature struct {
	bit  uint32 // mask with one bit
	name string // name for messages
}

// Features of file systems that this package may write to. It either supports them or does not touch
// what they change.
const (
	// compatible features: kernels without support may still write
	knownCompat = 0x1 | compatJournal | 0x8 /* ext_attr */ | 0x10 /* resize_inode */ | 0x20 /* dir_index */ |
		compatSparseSuper2 | 0x400 /* fast_commit */ | 0x800 /* stable_inodes */ | 0x1000 /* orphan_file */

	// incompatible features: kernels without support must not mount
	knownIncompat = incompatFileType | incompatExtents | incompat64Bit | 0x200 /* flex_bg */ |
		incompatCSumSeed | 0x4000 /* large_dir */

	// read-only compatible features: kernels without support must not write
	knownROCompat = roSparseSuper | 0x2 /* large_file */ | roHugeFile | roGroupCSum | 0x20 /* dir_nlink */ |
		0x40 /* extra_isize */ | roMetadataCSum
)

// Names for messages about unsupported features.
var (
	// incompatible features that this package refuses
	incompatNames = []feature{{0x1, "compression"}, {0x8, "journal_dev"}, {0x10, "meta_bg"}, {0x100, "mmp"}, {0x400, "ea_inode"},
		{0x1000, "dirdata"}, {0x8000, "inline_data"}, {0x10000, "encrypt"}, {0x20000, "casefold"}}

	// read-only compatible features that this package refuses
	roCompatNames = []feature{{0x80, "has_snapshot"}, {0x100, "quota"}, {0x200, "bigalloc"}, {0x800, "replica"}, {0x1000, "read-only"},
		{0x2000, "project"}, {0x4000, "shared_blocks"}, {0x8000, "verity"}}
)

// foreignFeatures returns the names of the features that are not supported; nil if none exist.
func (s *super) foreignFeatures() []string {
	foreign := featureNames("compat", s.compat&^knownCompat, nil)
	foreign = append(foreign, featureNames("incompat", s.incompat&^knownIncompat, incompatNames)...)
	return append(foreign, featureNames("ro_compat", s.roCompat&^knownROCompat, roCompatNames)...)
}

// featureNames returns the names of bits. Bits without a name are returned together, as the name of
// the set and a hexadecimal number.
func featureNames(set string, bits uint32, names []feature) (out []string) {
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
