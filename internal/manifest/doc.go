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
// order to a new file, fsyncs and renames it over the log; chunks dropped or appended
// after that make it a log again. A disk that has grown gets a new log in the
// same way (Log.Grow). docs/formats/manifest.md has the layout to the byte.
// One process at a time writes a manifest; its lock needs Linux.
//
// # Proof
//
// A manifest says what the image must hold, not that it does. Verify reads the image
// back, compares every chunk and gives the SHA-256 and MD5 that WriteAudit puts beside
// the image. Sample.Compare reads some chunks of the source a second time and compares their
// hashes: it finds bytes that were wrong before they were hashed.
//
// # Memory
//
// A Log keeps 48 bytes for each 4096 chunks, and 8 for each run of chunks whose records
// follow each other, but 4 per chunk at most: 0.1 to 24 MiB for 6 TiB. Seal takes as much
// again and 2 MiB. Hashes stay on disk. Reading a sealed manifest takes a
// constant buffer, Verify its windows.
//
// # Limits
//
// Checksums detect accidental changes. A user who may write the manifest can replace it; to
// detect that, store the root elsewhere.
package manifest
