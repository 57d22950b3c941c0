// Package rawfile writes and reads raw images: sparse files and block devices whose byte n is byte
// n of the disk. Image formats with a layout (qcow2) use it for their files.
//
// # Writing
//
// A File is a disk.Target. It writes bytes at their offset, and never writes a zero to a new file.
// A long import must neither evict the host's page cache nor end in one fsync of 50 GB. Therefore
// the File uses the best of these Modes that the file system supports:
//
//	Direct    O_DIRECT, aligned 1 to 4 MiB writes: a fifth of the page cache's CPU
//	Uncached  RWF_DONTCACHE (Linux 6.14): page cache, dropped once written
//	Behind    page cache; sync_file_range and FADV_DONTNEED 32 MiB behind the writes
//
// Direct writes only whole blocks of Align bytes. The two ends of a write, and the end of a file
// whose size is no multiple of Align, go through the page cache. A page is never written in both
// ways at the same time: concurrent writes do not overlap, so a directly written page belongs to
// one write. The kernel writes back and drops a cached page before a later direct write.
//
// # Reading
//
// A Source reads an image. If the caller requests the medium, it bypasses the page cache. Medium
// returns whether that worked, and verify reports it.
//
// # Locks
//
// A File holds an advisory lock (OFD, exclusive, the whole file) until Finish or Close, so that
// two decamp processes never write one image. QEMU uses the same kind of lock. It does not open an
// image that is being written, and an image that a running VM has open cannot be resumed. File
// systems without locks (NFS mounted with nolock) are not protected.
//
// # Memory
//
// Each File and Source has at most 4 buffers of 1 MiB for data that is not aligned, allocated when
// they are first needed. A new File also has one bit per MiB of disk. Reads and writes allocate
// nothing else.
package rawfile
