// Package manifest stores the hash of every chunk of an image. The same file serves to resume a
// copy, to verify an image, and (later) to copy changes.
//
// # Terms
//
// A chunk is ChunkSize bytes of the disk at a multiple of ChunkSize; the last may be shorter. A
// chunk is written after it was written to the image and hashed, and durable after a sync of the
// image. The manifest lists only durable chunks: callers sync the image and then call Append. A
// manifest is open (a log that is written, see Log) or sealed (complete, in chunk order, with its
// root; see Sealed).
//
// # The file
//
// An open manifest is an append-only file beside the image. Every record has a checksum. When the
// file is opened again, a record that a crash cut off is removed with everything after it. This
// loses at most the chunks of that record, which are copied once more. Later records replace
// earlier ones. Sealing writes the same content in chunk order to a new file, syncs it, and renames
// it over the log. A chunk that is dropped or appended after that makes it a log again. A disk that
// has grown gets a new log in the same way (Log.Grow). docs/formats/manifest.md describes every
// byte of the file. One process at a time writes a manifest; its lock requires Linux.
//
// # Verification
//
// A manifest describes the required content of the image, not its actual content. Verify reads the
// image, compares every chunk, and returns the sums that WriteAudit writes beside the
// image. Sample.Compare reads some chunks of the source again and compares their hashes. This
// finds bytes that were wrong before they were hashed.
//
// # Memory
//
// A Log needs 48 bytes for each 4096 chunks, and 8 for each run of chunks with adjacent records,
// but at most 4 per chunk: 0.1 to 24 MiB for 6 TiB. Seal needs the same amount again, and 2 MiB.
// Hashes stay on disk. Reading a sealed manifest needs a constant buffer, and Verify its windows.
//
// # Limits
//
// Checksums detect accidental changes. A user who may write the manifest can replace it; to detect
// that, store the root elsewhere.
package manifest
