// Package rawfile writes and reads raw images: sparse files and block devices whose
// byte n is the disk's byte n. Image formats that have their own layout (qcow2) stand
// on it too.
//
// # Writing
//
// A File is a disk.Target. It lands bytes by offset and never writes a zero to a fresh
// file. Whatever the way, a long import must neither evict the host's page cache nor
// end in one fsync of 50 GB, so the best of these Modes is found when the file is
// opened:
//
//	Direct    O_DIRECT, aligned 1 to 4 MiB writes: a fifth of the page cache's CPU
//	Uncached  RWF_DONTCACHE (Linux 6.14): page cache, dropped once written
//	Behind    page cache; sync_file_range and FADV_DONTNEED 32 MiB behind the writes
//
// Direct writes whole blocks of Align bytes only. What is left of a write at its two
// ends, and the end of a file whose size is no multiple of Align, goes through the page
// cache. The two never meet in one page: a page that is written directly belongs to
// that one write, because ranges written at the same time do not overlap; and the
// kernel writes back and drops a cached page before it is written directly later on.
//
// # Reading
//
// A Source reads an image back. Asked for the medium, it bypasses the page cache, and
// Medium says whether that was so: verify reports it.
//
// # Locks
//
// A File holds an advisory lock (OFD, exclusive, the whole file) until Finish or Close,
// so that two decamps never write one image. QEMU uses the same kind of lock: it does
// not open an image that is being written, nor can an image be resumed that a running
// VM has open. File systems without locks (NFS mounted nolock) are not protected.
//
// # Memory
//
// Each File and Source has at most 4 buffers of 1 MiB, for what is not aligned, made
// when first needed; a fresh File also has one bit per MiB of disk. Reads and writes
// allocate nothing else.
package rawfile
