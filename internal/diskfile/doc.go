// Package diskfile opens a disk that lies in files, whatever their format: a VMDK of any
// flavour with its chain, a qcow2 image, raw bytes. decamp convert and decamp inspect use it.
//
// # The format of a file
//
// The content decides: a file with a signature is never read as raw because of its name. A
// warning names both if they disagree. A file of a format that decamp does not read is
// refused with the name of the format. Raw has no signature: a file is read as raw only if its
// name claims it (.raw, .img), or it is a block device, and it has no signature.
//
// A guest writes every byte of its raw disk and can make it begin like an image of another
// format. Four rules limit that:
//
//   - The caller can force a format (Options.Kind).
//   - A file whose manifest says that decamp wrote it as a raw image is raw.
//   - The data file of a flat VMDK, x-flat.vmdk, is refused in favour of its descriptor.
//   - A VMDK in a file that is named like a raw image opens no other file.
//
// # Identity
//
// A File knows name, size and time of every file it consists of. What was copied from a
// disk with another identity is not trusted when a copy is resumed.
package diskfile
