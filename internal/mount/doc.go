// Package mount shows the datastores of an ESXi host or a vCenter as a folder, read-only:
// /<datacenter>/<datastore>/<path>. Descriptors are text, a -flat.vmdk is the whole disk.
//
// # How a byte gets here
//
//	kernel -> handle.Read -> file.readAt -> a page, a block, or the wire -> disk.Source
//
// The kernel caches nothing (FOPEN_DIRECT_IO): its page cache would cost four times the
// processor and copy what is read once. What is cached is cached here:
//
//   - pages, 4 MiB, hold what a sequential reader is about to want. They are filled ahead
//     of it, several at once, and served from as the bytes arrive. The reply points into
//     the page; a count of readers keeps it from being reused meanwhile.
//   - blocks, 64 KiB, hold what a random reader wanted: a boot reads the same places
//     again and again. A small read never fetches more than the block it lies in.
//   - what the allocation map of the disk calls free is answered without the wire, and
//     found by SEEK_DATA and SEEK_HOLE, as soon as the map was tested (package https).
//
// What a reader is is learned from its reads: see stream. A reader that jumps back and
// forth a little (qemu-img convert -m 16 -W) is sequential all the same.
//
// # What it promises
//
//   - A read ends: with the bytes, or with EIO after Options.ReadTimeout, and then the log
//     says why. A read whose process was killed ends at once; no other signal ends it.
//   - The bytes are those of the file as it was when it was opened, by its size: a file that
//     grew or shrank fails with EIO until it is opened again. A file replaced by another of
//     the same size cannot be told from it: ESXi gives no date.
//   - Close unmounts, whatever the host does and whoever still has files open.
//
// # What it does not do
//
// It never writes. It reads no disk of a running VM: ESXi locks them. It does not log in.
//
// # Memory
//
// Pages × PageSize + 16 MiB of blocks + 2 MiB for each read being answered + the
// connections' buffers (package https): 128 + 16 + 16 × 2 + 4 MiB by default.
package mount
