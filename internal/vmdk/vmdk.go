// Package vmdk reads VMware's virtual disk files in every format that an ESXi host, an export or a
// desktop product writes, and the chains of deltas that snapshots create.
//
// # Terms
//
// A descriptor is a small text that names the files of one disk: x.vmdk beside x-flat.vmdk, or
// text that is embedded in a sparse file. Its extent lines list the parts of the disk, in order.
// A base disk has no parent. A delta has a parent, and contains only data that was written after
// its snapshot. A chain is a delta with its parents, the base last; each of them is a layer.
//
// A grain is the unit of allocation in a sparse file. A run is a range of a disk that is one piece
// of a file, or zeros, or absent, so that the parent has it.
//
// # How a disk is read
//
//	descriptor   names the extents and the parent             descriptor.go, open.go
//	layer        an extent's tables, as runs                  grainmap.go and one file per format
//	chain        the layers' runs, merged                     chain.go
//	ReadAt       the runs of a range, in the files' order     read.go
//	Extents      the runs of a range, as data and holes       extents.go
//
// Formats differ only in how a grain table is decoded: hosted sparse (sparse.go), streamOptimized
// (streamfile.go; stream.go from a pipe), COWD (cowd.go), seSparse (sesparse.go). Another format
// needs another layer.
//
// # Guarantees
//
// Files are untrusted input. No input makes a reader panic, loop or allocate without limit. File
// names that point outside the descriptor's folder and the datastores are refused by the parser,
// so that no caller can omit the check. Disks that cannot be read correctly are refused with the
// reason and the remedy: raw device mappings, vSAN and vVol objects, native snapshots, encrypted
// disks, seSparse deltas with a dirty journal, unknown formats and flags.
//
// createType is advice. The keyword of each extent line determines the content of its file, and
// for sparse files the signature does. VMware writes "vmfs" for thin and thick disks, and older
// tools use other spellings.
//
// # Memory
//
//	cached tables       256 x 32 KiB = 8 MiB a Disk
//	each ReadAt         0.5 MiB of runs, 1 MiB to read neighbours into (or one packed grain,
//	                    2 MiB at most), and a table and 4 KiB of directory for each layer:
//	                    1.5 MiB + layers x 36 KiB; kept for the next until it is collected
//	each Extents        768 bytes for each MiB described, at most; layers x 36 KiB
//	each file           a few hundred bytes, and 1 for each MiB of a local one up to 256
//	                    KiB; at most 4096 files
//
// With 16 readers of a chain of 3 layers this is 34 MiB, whatever the size of the disk: there is
// no map of the whole disk. Local COWD files in the page cache are also mapped into memory. This
// memory belongs to the page cache, although some tools count it for the process.
//
// # Limits
//
// The package does not write, replay journals, or follow a disk that a VM writes.
package vmdk
