// Package vmdk understands VMware's virtual disk files.
//
// # Terms
//
// A descriptor is a small text that names the files of one disk: x.vmdk beside
// x-flat.vmdk, or embedded in a sparse file. Its extent lines say, in order, what the
// disk consists of; the disk is their concatenation. A base disk has no parent; a
// delta has one, and holds only what was written since its snapshot.
//
// # What it promises
//
// A descriptor is foreign bytes. File names that point outside the descriptor's folder
// are refused while parsing, so that no caller can forget to. Nothing here opens a
// file: callers resolve names against the folder the descriptor came from.
//
// createType is advice: the keyword of each extent line decides what a file holds.
// VMware writes "vmfs" for thin and thick alike, and older tools differ in spelling.
//
// # What it does not promise
//
// Only flat disks can be read so far: deltas and sparse files are named and refused.
package vmdk
