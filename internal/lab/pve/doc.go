// Package pve emulates a node of Proxmox VE: the part of its API that a migration of VMs uses. Disks are
// imported by qemu-img, and VMs run in QEMU without KVM.
//
//	s, err := pve.Start(pve.Config{Dir: dir})
//	defer s.Close()
//	s.URL()         // https://127.0.0.1:PORT
//	s.Fingerprint() // SHA-256 of the certificate, hex in pairs with colons
//	s.Token()       // user@realm!id=secret, with all privileges
//
// # Terms
//
// A guest is a VM of the node, identified by its VMID: keys and values, as in its configuration file. A
// volume is a file of a storage, with a name such as local:import/a.qcow2. A task is work that continues
// after the response, which contains the UPID of the task; further requests read its result.
//
// # Emulated restrictions
//
//   - The reason of an error is in the status line. The body is {"data":null}, except for errors of
//     parameters.
//   - A chunked body is refused with 501. The parser of uploads is strict, and ignores fields after
//     the file.
//   - nextid reserves nothing. A guest that is being created has no name and no tags.
//   - Tasks continue after their client has disconnected. Only one task changes a guest at a time;
//     another one fails because it cannot lock the configuration file.
//   - The privileges to upload and import do not include the removal of the upload, which requires
//     Datastore.Allocate.
//   - Volumes of block storages are larger than requested. Those of LVM contain old data, and may be
//     missing until they are activated. StartSSH starts an SSH login by which clients write to them.
//   - Lists contain only what the caller may see, without a hint that there is more.
//
// The behaviour is that of qemu-server 9.2 and pve-storage 9.1, according to their documentation, and of
// pveproxy's known restrictions; docs/proxmox.md names the sources.
//
// # Locks
//
// Server.mu guards the guests and the list of tasks, and is never held while a program runs. guest.busy
// serializes the changes of one guest; except for a new guest it is acquired before Server.mu. task.mu
// guards the log and the result of one task.
//
// # Limits
//
// The emulation is a single node. It supports API tokens, but no tickets; it has no containers, no
// snapshots and no network. The state of a TPM is stored, but no TPM is started.
package pve
