// Package diskfile opens a disk that lies in files, whatever their format: a VMDK of any
// flavour with its chain, a qcow2 image, raw bytes. decamp convert and decamp inspect
// stand on it.
//
// # What a file is
//
// VMDK and qcow2 are told by content, raw by name alone (.raw, .img, a block device) or
// because the caller says so. A guest writes every byte of a raw disk and could make it
// begin as a VMDK that names other files for its parents: so a raw name wins over the
// content, and x-flat.vmdk, which is raw too, is refused in favour of its descriptor.
//
// # Identity
//
// A File knows name, size and time of every file it consists of. What was copied from a
// disk with another identity is not trusted when a copy is resumed.
package diskfile
