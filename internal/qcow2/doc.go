// Package qcow2 writes and reads QEMU's image format, version 3.
//
// # Terms
//
// A cluster is the unit of allocation, 64 KiB in what we write. An L2 table maps 8192
// clusters of the disk, 512 MiB, to offsets in the file; the L1 table lists the L2
// tables. A refcount block counts the users of 32,768 clusters of the file; the refcount
// table lists the blocks. Format: qemu's docs/interop/qcow2.txt.
//
// # Writing
//
// An Image is a disk.Target. Its file is laid out before the first byte arrives:
//
//	header | refcount table | refcount blocks | L1 | L2 tables | data
//
// and the disk's byte n lies at data + n, whatever the order of writes. There is no
// allocator, large writes go straight to the medium, and a resumed run needs no table:
// where the file has data, the disk has. Clusters never written are holes in the file
// and unallocated in the tables, so the image is as sparse as the disk. Its apparent
// size is the disk's; copy it with a tool that keeps holes.
//
// Tables are kept as one bit for each cluster and written by Finish; the header goes
// last, after a sync of all else. Until then the file begins with a note in plain text
// that it is unfinished: nothing takes it for a qcow2 image, so nobody boots half a disk.
//
// Grow makes the image of a disk that became larger larger. Its data stays where it is: where
// tables of the new size have no room before it, the order becomes
//
//	header | nothing | data | refcount table | refcount blocks | L1 | L2 tables
//
// Memory: size / 512 KiB bytes of bits, 12 MiB for a disk of 6 TiB, and what
// disk/rawfile takes.
//
// CheckTables reads the output of Finish and compares it with the expected bytes, including refcounts,
// and returns the mapping.
//
// If the file system cannot report holes (NFS before 4.2), a resumed image ends with all
// clusters allocated: correct, but not sparse in its tables.
//
// WriteAbove writes the clusters in which a disk differs from a backing image: a temporary layer, to
// be discarded or written into the image. Only this kind of image has a backing file, and zero
// clusters: they hide the backing file's data, and take no space.
//
// # Reading
//
// A Source reads versions 2 and 3 with clusters of 512 bytes to 2 MiB: plain ones, ones
// known to be zero, ones compressed by zlib or zstd, and ones of 32 subclusters (extended
// L2). Neighbouring clusters are read at once. A compressed cluster that is read piece by
// piece is inflated once.
//
// Backing files (raw or qcow2) are read only if the caller provides an Opener; the part after the
// end of a smaller one is zeros. Its format must be in the header of the image on top of it. The chain has up to 200 files and no loop.
//
// Internal snapshots are not read and an image that was not closed cleanly is: Warnings
// says so. Refused, each with the command that helps: encryption, data in another file,
// what is not known (any other incompatible feature), and what is damaged: a table
// outside the file, in another table or used twice, a cluster in a table or after the
// end. Refcounts are not looked at by a reader, except for where they are.
//
// What a reader sees of an image that is written to meanwhile is not defined; it does no
// harm to the reader.
//
// Memory, for a disk of n files:
//
//	L1 and the list of L2 tables   16 bytes for each L2 table, at most 128 MiB in all
//	slices of L2 tables            4 MiB a file; in all 16 MiB, or n x 64 KiB if that is more
//	inflated clusters              8 MiB
//	each call in a packed image    1 MiB, or two clusters if that is more, and a cluster;
//	                               with zstd a window of up to 8 MiB, twice
//
// and what disk/rawfile takes for each file. While a file is opened, its first cluster.
package qcow2
