// Package diskfile opens a disk in files of any supported format: a VMDK with its chain, a qcow2
// image, or raw bytes. decamp convert and decamp inspect use it.
//
// # The format of a file
//
// The content determines the format. A file with a signature is never read as raw because of its
// name; if the two disagree, a warning names both. A file of another format is refused with the
// name of the format. Raw images have no signature. A file without a signature is read as raw only
// if its name claims it (.raw, .img), or if it is a block device.
//
// A guest writes every byte of its raw disk, and can make it begin like an image of another
// format. Four rules limit that:
//
//   - The caller can force a format (Options.Kind).
//   - A file is raw if its manifest shows that decamp wrote it as a raw image.
//   - The data file of a flat VMDK, x-flat.vmdk, is refused in favour of its descriptor.
//   - A VMDK in a file that is named like a raw image opens no other file.
//
// # Identity
//
// A File knows name, size and time of every file it consists of. A resumed copy discards data that
// was copied from a disk with another identity.
package diskfile
