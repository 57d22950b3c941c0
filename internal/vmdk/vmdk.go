// Package vmdk reads VMware's virtual disk files: every flavour that an ESXi host, an
// export or a desktop product leaves, and the chains of deltas that snapshots make.
//
// # Terms
//
// A descriptor is a small text that names the files of one disk: x.vmdk beside
// x-flat.vmdk, or embedded in a sparse file. Its extent lines say, in order, what the
// disk consists of; the disk is their concatenation. A base disk has no parent; a
// delta has one, and holds only what was written since its snapshot. A chain is a delta
// with its parents, the base last; each of them is a layer.
//
// A grain is what a sparse file allocates at once. A run is a range of a disk that is one
// piece of a file, or zero, or absent: left to the parent.
//
// # How a disk is read
//
//	descriptor   names the extents and the parent             descriptor.go, open.go
//	layer        an extent's tables, as runs                  grainmap.go and one file per format
//	chain        the layers' runs, merged                     chain.go
//	ReadAt       the runs of a range, in the files' order     read.go
//	Extents      the runs of a range, as data and holes       extents.go
//
// Formats differ in how a grain table is decoded and in nothing else: hosted sparse
// (sparse.go), streamOptimized (streamfile.go; stream.go from a pipe), COWD (cowd.go),
// seSparse (sesparse.go). A new one is a layer.
//
// # What it promises
//
// Files are foreign bytes. No input makes a reader panic, loop or allocate without bound.
// File names that point outside the descriptor's folder and the datastores are refused
// while parsing, so that no caller can forget to. What cannot be read right is refused
// with the reason and the remedy: raw device mappings, vSAN and vVol objects, native
// snapshots, encrypted disks, seSparse deltas whose journal is dirty, formats and flags
// that are not known.
//
// createType is advice: the keyword of each extent line decides what a file holds, and
// among sparse files the signature. VMware writes "vmfs" for thin and thick alike, and
// older tools differ in spelling.
//
// # Memory
//
//	tables kept         256 x 32 KiB = 8 MiB a Disk
//	each ReadAt         0.5 MiB of runs, 1 MiB to read neighbours into (or one packed grain,
//	                    2 MiB at most), and a table and 4 KiB of directory for each layer:
//	                    1.5 MiB + layers x 36 KiB; kept for the next until it is collected
//	each Extents        768 bytes for each MiB described, at most; layers x 36 KiB
//	each file           a few hundred bytes, and 1 for each MiB of a local one up to 256
//	                    KiB; at most 4096 files
//
// With 16 readers of a chain of 3 layers that is 34 MiB, whatever the size of the disk: no
// map of it is ever held. Local COWD files that are in the page cache are mapped into
// memory as well: it is the page cache's, though some tools count it as ours.
//
// # What it does not promise
//
// It does not write, replay journals, or follow a disk that a VM is writing.
package vmdk
