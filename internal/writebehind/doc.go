// Package writebehind takes the writes of a disk that is being landed and writes them behind.
// They come in any order, many at once, 64 KiB to 1 MiB each: mostly ascending, sometimes
// overlapping or repeated. Write says that they are held as soon as they are in memory; the
// target gets them in large runs, and the manifest the hash of every chunk.
//
//	Pool.Get   who sends         waits for memory: the back-pressure
//	Write      who sends         waits for the file's share, then puts pieces into chunks
//	gather     Writers in turn   makes one run of the pieces of neighbouring chunks, unless
//	                             a chunk's lie in memory as on the disk (Pool.GetAt)
//	hash       (in the writer)   looks for zeros and hashes each chunk while it is hot
//	write      (in the writer)   writes the data of a run, zeroes the rest
//	checkpoint one at a time     syncs the target, then lists the chunks as safe
//
// # Terms
//
// A chunk is the manifest's. A piece is the part of a chunk that one Write brought. What
// is held of a chunk is ripe once it covers the chunk, or somebody asks for it: Commit, a
// Write that waits for memory, the timer that finds that nothing was added for a while. A
// chunk is blank as long as it reads as zeros but for what is held, whatever the target
// has there. A file is one disk that lands.
//
// # Why no write is lost or overtaken
//
// Three layers make what is read: what is held, over what is being written, over what the
// target has (or zeros, where the chunk is blank). These rules keep them in order:
//
//  1. A chunk has one writer at most. It takes all that is held at that moment; what it
//     took never changes, and stays to be read until the target has it.
//  2. What is written meanwhile is held anew and waits until that writer is done, so it
//     reaches the target later, and when the writer is done only what it took goes.
//  3. No writer begins with a chunk while a reader reads the target there. So a reader
//     sees a Write as a whole or not at all, although it reads without a lock.
//  4. Before a writer changes a chunk that the manifest lists, it drops it there, durably.
//  5. A checkpoint takes the chunks written so far, syncs, and lists those of them that no
//     writer has begun with since. While the list is being written, no writer begins with
//     a chunk that is on it.
//
// The first three give every reader the last Write that returned, byte for byte; the last
// two mean that the manifest never lists a chunk that the image does not hold, whenever
// the lights go out.
//
// # Zeros
//
// Grains of 64 KiB that are all zeros are handed to Target.Zero, never to WriteAt: on a
// fresh target that costs nothing, over earlier data it makes them real. Finish does the
// same for blank chunks and lists them, so that the manifest of a finished disk is
// complete. Truncate makes chunks blank and does not touch the target.
//
// # After a crash
//
// A file that is not Fresh trusts what the manifest lists and takes all else as blank, so
// that no torn chunk is ever seen: what was held but not safe reads as zeros. Whether
// that is a hole in the disk only the caller can know: it must have the copy sent again,
// from its beginning or from a place of which it knows that all before is safe. A chunk
// that comes again with the very bytes that the manifest lists is hashed, and not written.
//
// # Memory
//
// All of it comes out of the pool's budget, which is never exceeded: a quarter, and at
// most 32 windows of 1 to 4 MiB, for the runs that are being gathered, the rest for
// buffers, whose sizes are rounded up to 4 KiB, 8 KiB and so on. Beyond the budget a file
// takes about 300 bytes for each chunk that is in memory, 48 for each piece, one bit for
// each chunk of the disk, and up to 5 MiB for the hashes of 65536 chunks that are written
// and not listed yet. A target may have buffers of its own.
//
// Files that share a pool are fair to each other: none holds more than is left for all
// others, so that a target that is stuck slows only its own file. Write waits for that, and
// Get only once everything together is too much. Buffers of up to 4 KiB have a line and a
// reserve of their own: the renewal of a lock does not wait behind data.
//
// # What is not promised
//
// Held is not safe: it survives neither a crash nor a target that fails. An error of the
// target or the manifest sticks; what is held is given up with it and every later call
// returns it. The order in which chunks reach the target is not that of the writes.
//
// Writes that end within a grain, over and over, are right and slow: each time the chunk is
// read back, hashed as a whole, and written in part. This package is for landing disks,
// not for running on them.
package writebehind
