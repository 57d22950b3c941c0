package vmdk

import "strings"

// checkReadable fails if no readable file contains the data of the disk: native snapshots and encrypted
// disks.
func (d *Descriptor) checkReadable() error {
	switch {
	case d.NativeSnapshot:
		return unsupportedDescriptor("the disk is a native snapshot that only the storage array can read").
			WithHint("remove the VM's snapshots (Snapshots > Delete All), then try again")
	case d.isEncrypted():
		return unsupportedDescriptor("the disk is encrypted; its files hold only ciphertext").
			WithHint("decrypt it first: VM Policies > Edit VM Storage Policies > Datastore Default")
	}
	return nil
}

// isEncrypted reports whether the VM is encrypted: the descriptor names the I/O filter for encryption,
// or keys.
func (d *Descriptor) isEncrypted() bool {
	return d.hasKeys || strings.Contains(strings.ToLower(d.DDB["iofilters"]), "vmcrypt")
}

// checkReadable fails if no file contains the data of the extent, or if the type of the file is
// unknown.
func (x ExtentLine) checkReadable() error {
	switch {
	case x.Access == NoAccess || x.Type == ZeroExtent:
		return nil
	case x.Type == VMFSRDM || x.Type == VMFSRaw:
		return x.unsupportedExtent("it maps a LUN, whose bytes are in no file").
			WithHint("migrate the LUN by presenting it to the target, or turn it into a file: vmkfstools -i rdm.vmdk -d thin copy.vmdk")
	case x.Type == VSANSparse:
		return x.unsupportedExtent("it is a delta on vSAN").
			WithHint("remove the VM's snapshots and move it to a VMFS or NFS datastore with Storage vMotion")
	case isDevice(x.Object):
		return x.unsupportedExtent("its data is the device %s, not a file", x.Object).
			WithHint("copy the device on its machine: dd if=DEVICE of=disk.raw bs=1M conv=sparse, then migrate disk.raw")
	case x.Object != "":
		return x.unsupportedExtent("its data is the object %s, not a file", x.Object).
			WithHint("move the VM to a VMFS or NFS datastore with Storage vMotion")
	}
	switch x.Type {
	case Flat, VMFS, Sparse, VMFSSparse, SESparse:
		return nil
	}
	return x.unsupportedExtent("its type is not known").WithHint("%s", cloneHint)
}
