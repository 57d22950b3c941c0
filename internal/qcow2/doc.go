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
// Memory: size / 512 KiB bytes of bits, 12 MiB for a disk of 6 TiB, and what
// disk/rawfile takes.
//
// Where the file system cannot tell holes (NFS before 4.2), an image that was resumed
// ends up with every cluster allocated: right, but not sparse in its tables.
//
// # Reading
//
// A Source reads versions 2 and 3 with standard, zero and zlib-compressed clusters. It
// refuses what would need another file or a key (backing file, data file, encryption),
// what it does not know (any other incompatible feature) and what is damaged.
//
// Memory: the L1 table (8 bytes for 512 MiB of disk) and at most 4 MiB of L2 tables, or
// one table if that is larger.
package qcow2
