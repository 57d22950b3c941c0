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
//	    again and again. The first read of a block fetches only the sectors that it needs, and a further
//	    one the block. If the source prefers streams, as HTTPS does, the first read fetches the block.
//	  - Ranges that are free according to the allocation map of the source are answered without a request.
//
// Readers are determined from the positions of the reads: see stream. The reads of a reader may be
// concurrent and arrive in any order. Each sequential reader has an equal share of the pages, and
// no reader evicts pages that another one will need. Read-ahead ends at the start of another reader, so
// that a copy in parts fetches each byte once. Reads of a third of the pages may be under way; further
// ones wait, because without a page each of them would be a separate request. If the source prefers
// streams, one stream fills up to 4 MiB of pages, and less if a single reader could not have six streams.
//
// # Memory
//
// All files of a cache together use
//
//	Pages × PageSize + Blocks × 64 KiB
//
// which is 128 + 16 MiB by default, and 24 + 4 MiB with ExportOptions. The buffers of the source and of
// the caller are not included. An export that is limited to 64 MiB has 36 MiB for them: over NFC at most
// 1.25 MiB for each session (4 by default), over HTTPS 0.55 MiB for each connection (8 by default), and
// the rest for the server.
package readahead
