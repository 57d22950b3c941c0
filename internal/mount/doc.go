// Package mount shows the datastores of an ESXi host or a vCenter as a read-only folder:
// /<datacenter>/<datastore>/<path>. A descriptor is its text, and a -flat.vmdk is the whole disk.
//
// # How a read works
//
//	kernel -> handle.Read -> readahead.File.View -> disk.Source
//
// The kernel caches nothing (FOPEN_DIRECT_IO). Its page cache would need four times the processor
// time, and would copy data that is read only once. Package readahead has the cache: it reads ahead for
// sequential readers, and keeps blocks for random ones. A reply points into that cache. SEEK_DATA and
// SEEK_HOLE find the ranges that are free according to the allocation map of the disk, as soon as the
// map was tested (package https).
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
// The cache (package readahead), 2 MiB for each read that is answered, and the buffers of the
// connections (package https): 144 + 16 × 2 + 4 MiB by default.
package mount
