// Package mount shows the datastores of an ESXi host or a vCenter as a read-only folder:
// /<datacenter>/<datastore>/<path>. A descriptor is its text, and a -flat.vmdk is the whole disk.
//
// # How a read works
//
//	kernel -> handle.Read -> file.readAt -> a page, a block, or the network -> disk.Source
//
// The kernel caches nothing (FOPEN_DIRECT_IO). Its page cache would need four times the processor
// time, and would copy data that is read only once. This package has its own cache:
//
//   - Pages of 4 MiB contain data that a sequential reader will need soon. Several are filled
//     ahead of the reader at the same time, and serve reads as their bytes arrive. A reply points
//     into the page; a reference count prevents its reuse until the reply is sent.
//   - Blocks of 64 KiB contain data that a random reader needed, because a boot reads the same
//     positions again and again. A small read never fetches more than one block.
//   - Ranges that are free according to the allocation map of the disk are answered without a
//     request, and SEEK_DATA and SEEK_HOLE find them, as soon as the map was tested (package
//     https).
//
// The type of a reader is determined from its reads: see stream. A reader that jumps back and
// forth a little (qemu-img convert -m 16 -W) counts as sequential.
//
// # Guarantees
//
//   - A read ends with its bytes, or with EIO after Options.ReadTimeout; the log has the reason.
//     If the process of a read is killed, the read ends at once. No other signal ends it.
//   - The bytes are those of the file when it was opened, as far as its size shows. A file that
//     became longer or shorter fails with EIO until it is opened again. A replacement of the same
//     size is not detected, because ESXi reports no dates.
//   - Close unmounts, even if the host does not answer or files are open.
//
// # Limits
//
// The package does not write and does not log in. It cannot read disks of a running VM, because
// ESXi locks them.
//
// # Memory
//
// Pages × PageSize, 16 MiB of blocks, 2 MiB for each read that is answered, and the buffers of the
// connections (package https): 128 + 16 + 16 × 2 + 4 MiB by default.
package mount
