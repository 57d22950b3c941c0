// Package readahead reads ahead for sequential readers of a disk.Source, and keeps the positions that
// random readers need again. The FUSE mount and the NBD server read through it.
//
// # How a read works
//
//		File.View -> a page, a block, or the source -> disk.Source
//
//	  - Pages contain data that a sequential reader will need soon. Several are filled ahead of the reader
//	    at the same time, and serve reads as their bytes arrive. A view points into the page; a reference
//	    count prevents its reuse until the view is released.
//	  - Blocks of 64 KiB contain data that a random reader needed, because a boot reads the same positions
//	    again and again. A small read never fetches more than one block.
//	  - Ranges that are free according to the allocation map of the source are answered without a request.
//
// The type of a reader is determined from its reads: see stream. A reader that jumps back and forth a
// little (qemu-img convert -m 16 -W) counts as sequential.
//
// # Memory
//
// Pages × PageSize + Blocks × 64 KiB, for all files of a cache together: 128 + 16 MiB by default. The
// buffers of the source are not included.
package readahead
