// Package writebehind acknowledges the writes of a landing disk in memory, and writes them to the target later.
// They arrive in any order, many at once, 64 KiB to 1 MiB each: mostly ascending, sometimes overlapping or
// repeated. Write returns when they are in memory; the target gets them in large runs, and the manifest gets
// the hash of each chunk.
//
//	Pool.Get   sender            waits for memory: the back-pressure
//	Write      sender            waits for the file's share, then adds pieces to chunks
//	gather     Writers in turn   combines the pieces of adjacent chunks to one run, unless a
//	                             chunk's are in memory as on the disk (Pool.GetAt)
//	hash       (in the writer)   checks for zeros and hashes each chunk while it is cached
//	write      (in the writer)   writes the data of a run, zeroes the rest
//	checkpoint one at a time     syncs the target, then lists the chunks as durable
//
// # Terms
//
// A chunk is that of the manifest. A piece is the part of a chunk from one Write. A chunk is ripe once its
// pieces cover it, or when it is requested: by Commit, by a Write that waits for memory, or by the timer
// after a time without writes. A chunk is blank while it reads as zeros except for data in memory, regardless
// of the target's content. A file is one disk of a landing.
//
// # Consistency
//
// Readers see three layers: pieces in memory, above pieces being written, above the target's content (or
// zeros for a blank chunk). These rules keep them in order:
//
//  1. A chunk has at most one writer. The writer takes all of its pieces at that moment. They never change,
//     and stay readable until the target has them.
//  2. Later writes stay in memory until that writer is done, so they reach the target later. When the writer
//     is done, only the pieces that it took are dropped.
//  3. No writer takes a chunk while a reader reads the target there. Therefore a reader sees a Write as a
//     whole or not at all, although it reads without a lock.
//  4. Before a writer changes a chunk that the manifest lists, it drops the chunk there, durably.
//  5. A checkpoint takes the written chunks, syncs, and lists those that no writer has taken since. While
//     it writes the list, no writer takes a chunk that is on it.
//
// The first three give each reader the last returned Write, byte for byte. The last two ensure that the
// manifest never lists a chunk that the image does not have, after a power cut at any moment.
//
// # Zeros
//
// Grains of 64 KiB of zeros are passed to Target.Zero, never to WriteAt: on a new target that costs nothing,
// over earlier data it writes zeros. Finish does the same for blank chunks and lists them, so that the manifest
// of a finished disk is complete. Truncate makes chunks blank and does not change the target.
//
// # After a crash
//
// A file that is not Fresh relies on the manifest's chunks and treats all others as blank, so that no torn chunk
// is visible: data in memory at the crash reads as zeros. The caller must ensure that the copy is sent again,
// from its beginning or from a position before which all data is durable. A chunk that is sent again with the
// same content as in the manifest is hashed, and not written.
//
// # Memory
//
// All memory comes from the pool's budget, which is never exceeded: a quarter, and at most 32 windows of 1 to
// 4 MiB, for the runs being gathered, the rest for buffers, whose sizes are rounded up to 4 KiB, 8 KiB and so
// on. In addition a file uses about 300 bytes for each chunk in memory, 48 for each piece, one bit for each
// chunk of the disk, and up to 5 MiB for the hashes of 65536 chunks that are written and not listed yet. The
// target may have further buffers.
//
// Files that share a pool are fair to each other: none uses more than the others leave free, so that a blocked
// target slows only its own file. Write waits for that, and Get only when the whole pool is used. Buffers of
// up to 4 KiB have a separate queue and a reserve: the renewal of a lock does not wait for data.
//
// # Limits
//
// Data in memory is not durable: it survives neither a crash nor a failing target. After an error of the target
// or the manifest the data in memory is discarded, and all later calls return the error. Chunks reach the
// target in another order than the writes.
//
// Repeated writes that end within a grain are correct and slow: each time the chunk is read back, hashed as a
// whole, and written in part. This package is for landings, not for running VMs on their disks.
package writebehind
