// Package qcow2 writes and reads QEMU's image format, version 3.
//
// # Terms
//
// A cluster is the unit of allocation, 64 KiB in the images of this package. An L2 table maps 8192
// clusters of the disk, 512 MiB, to offsets in the file. The L1 table lists the L2 tables. A
// refcount block counts the users of 32,768 clusters of the file, and the refcount table lists the
// blocks. Format: qemu's docs/interop/qcow2.txt.
//
// # Writing
//
// An Image is a disk.Target. Its file has a layout before the first byte is written:
//
//	header | refcount table | refcount blocks | L1 | L2 tables | data
//
// Byte n of the disk is at data + n, whatever the order of writes. There is no allocator, large
// writes go directly to the medium, and a resumed run needs no table: clusters with data in the
// file have data on the disk. Clusters that were never written are holes in the file and
// unallocated in the tables, so the image is as sparse as the disk. Its apparent size is that of
// the disk; copy it with a tool that keeps holes.
//
// Tables are one bit for each cluster in memory, and Finish writes them. It writes the header
// last, after a sync of everything else. Until then the file begins with a note in plain text that
// it is unfinished. No program recognizes it as a qcow2 image and boots half a disk.
//
// Grow enlarges the image of a disk that has grown. Its data stays in place. If larger tables have
// no space before it, the order becomes
//
//	header | nothing | data | refcount table | refcount blocks | L1 | L2 tables
//
// Memory: size / 512 KiB bytes of bits, which are 12 MiB for a disk of 6 TiB, and the memory of
// disk/rawfile.
//
// CheckTables reads the output of Finish, compares it with the expected bytes, including
// refcounts, and returns the mapping.
//
// If the file system cannot report holes (NFS before 4.2), all clusters of a resumed image become
// allocated. The image is correct, but not sparse in its tables.
//
// WriteAbove writes the clusters in which a disk differs from a backing image. The result is a
// temporary layer, which is discarded or written into the image. Only this kind of image has a
// backing file and zero clusters, which hide data of the backing file and need no space.
//
// # Reading
//
// A Source reads versions 2 and 3 with clusters of 512 bytes to 2 MiB: plain clusters, zero
// clusters, clusters that zlib or zstd compressed, and clusters with 32 subclusters (extended L2).
// Adjacent clusters are read at once. A compressed cluster that is read in pieces is decompressed
// once.
//
// Backing files (raw or qcow2) are read only if the caller provides an Opener. The disk continues
// with zeros after the end of a smaller backing file. The header of an image must contain the
// format of its backing file. A chain has up to 200 files and no loop.
//
// Internal snapshots are ignored, and an image that was not closed cleanly is read; Warnings
// reports both. A Source refuses encryption, data in another file, unknown incompatible features,
// and damaged tables, each with the command that helps. A table is damaged if it is outside the
// file, in another table or used twice, or if one of its clusters is in a table or after the end of
// the file. A reader ignores refcounts, but not their position.
//
// The content of an image that is written during a read is undefined, but does not harm the
// reader.
//
// Memory, for a disk of n files:
//
//	L1 and the list of L2 tables   16 bytes for each L2 table, at most 128 MiB in all
//	slices of L2 tables            4 MiB a file; in all 16 MiB, or n x 64 KiB if that is more
//	inflated clusters              8 MiB
//	each call in a packed image    1 MiB, or two clusters if that is more, and a cluster;
//	                               with zstd a window of up to 8 MiB, twice
//
// Each file also needs the memory of disk/rawfile and, while it is opened, its first cluster.
package qcow2
