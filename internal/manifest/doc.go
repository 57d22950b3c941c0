// Package manifest keeps the hash of every chunk of an image. The same file makes
// resume, proof and (later) delta copies one thing.
//
// # Terms
//
// A chunk is ChunkSize bytes of the disk at a multiple of ChunkSize; the last may be
// shorter. A chunk is held once it was written and hashed, and safe once the image was
// synced after that. The manifest lists safe chunks only: callers sync the image, then
// Append. A manifest is open (a log being written, see Log) or sealed (complete, in
// chunk order, with its root; see Sealed).
//
// # The file
//
// An open manifest is an append-only file beside the image. Every record carries a
// checksum; a record torn by a crash, and anything after it, is dropped when the file
// is opened again, which loses at most the chunks of that record: they are copied once
// more. Later records win over earlier ones. Sealing writes the same content in chunk
// order to a new file, fsyncs and renames it over the log. docs/formats/manifest.md has
// the layout to the byte.
//
// # Memory
//
// A Log keeps one bit per chunk and 24 bytes per record (a record covers a run of
// neighbouring chunks); hashes stay on disk. 6 TiB copied in 16 MiB runs: 0.8 MiB of
// bits and 9 MiB of records. Reading a sealed manifest takes a constant buffer.
//
// # What it does not promise
//
// A manifest says what the image must hold, not that it does: that is Verify's job,
// which reads the image back from the medium.
package manifest
