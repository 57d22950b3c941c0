package qcow2

import (
	"fmt"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
)

// Layer describes one file of a disk.
type Layer struct {
	Path   string // path of the file, as the caller or the image above it names it
	Format string // "qcow2" or "raw"
	Size   int64  // size of its disk, in bytes

	// Of qcow2 alone.
	Version     int
	ClusterSize int64  // bytes
	Compression string // algorithm of compressed clusters, if there are any: "zlib" or "zstd"
	ExtendedL2  bool   // clusters have 32 subclusters
	Snapshots   int    // number of internal snapshots, which are not read
	Dirty       bool   // the image was not closed cleanly, or is in use

	file disk.Source // open file, for its Medium
}

// describeLayer returns the description of s without its file.
func (s *Source) describeLayer() Layer {
	return Layer{
		Path: string(s.path), Format: "qcow2", Size: s.size,
		Version: int(s.version), ClusterSize: s.clusterBytes(), Compression: s.compression.String(),
		ExtendedL2: s.extendedL2, Snapshots: int(s.snapshots), Dirty: s.dirty,
	}
}

// Layers describes the files of the disk, the image itself first.
func (s *Source) Layers() []Layer { return append([]Layer(nil), s.layers...) }

// Warnings returns warnings for the user, one sentence each.
func (s *Source) Warnings() []string {
	var out []string
	for _, l := range s.layers {
		if l.Snapshots > 0 {
			out = append(out, fmt.Sprintf("%s has %d internal snapshots, which are not read: only its present state is", l.Path, l.Snapshots))
		}
		if l.Dirty {
			out = append(out, fmt.Sprintf("%s was not closed cleanly, or a VM has it open: make sure that none has, "+
				"what a running VM writes may be read or missed", l.Path))
		}
	}
	return out
}

// Medium returns the origin of all bytes read so far, as rawfile.Source.Medium does: for several files
// the weakest one.
func (s *Source) Medium() string {
	least := len(media) - 1
	for _, l := range s.layers {
		least = min(least, mediumRank(l.file))
	}
	return media[least]
}

// media are ordered by their guarantee, weakest first.
var media = [...]string{rawfile.MediumCache, rawfile.MediumMemory, rawfile.MediumDropped, rawfile.MediumDirect}

// mediumRank returns the index of file's medium in media. A file without the method Medium counts as
// the page cache.
func mediumRank(file disk.Source) int {
	if f, ok := file.(interface{ Medium() string }); ok {
		for i, m := range media {
			if m == f.Medium() {
				return i
			}
		}
	}
	return 0
}
