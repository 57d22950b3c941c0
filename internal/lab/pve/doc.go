// Package pve is an emulated node of Proxmox VE: the part of its API that somebody needs who
// brings VMs there. Disks are really imported, by qemu-img, and VMs really start, in QEMU without
// KVM.
//
//	s, err := pve.Start(pve.Config{Dir: dir})
//	defer s.Close()
//	s.URL()         // https://127.0.0.1:PORT
//	s.Fingerprint() // SHA-256 of the certificate, hex in pairs with colons
//	s.Token()       // user@realm!id=secret, of one who may do all
//
// # Terms
//
// A guest is a VM of the node's, by its VMID: keys and values, as in its configuration file. A
// volume is a file of a storage, by a name such as local:import/a.qcow2. A task is what the node
// does after it answered: its UPID is the answer, and how it ended is asked for.
//
// # Where it is as bad as the real one
//
//   - An error's words stand in the status line, and the body is {"data":null}, but for
//     parameters.
//   - A body in chunks is 501, an upload is read by a strict parser, and fields that come after
//     the file are not seen.
//   - nextid reserves nothing. A guest that is being created shows no name and no tag.
//   - Tasks go on when their client has gone. One guest is changed by one at a time; others are
//     told that they cannot lock a file.
//   - Whoever may upload and import may not delete what was uploaded: that takes
//     Datastore.Allocate.
//   - Volumes of block storages are larger than was asked for; those of LVM hold what was there before, and
//     may not be there before they are activated. StartSSH lets people log in who write to them.
//   - Resources show what the caller may see, and nothing says that there is more.
//
// The behaviour comes from qemu-server 9.2 and pve-storage 9.1, their documentation, and
// pveproxy's known oddities; docs/proxmox.md names the sources.
//
// # What it does not do
//
// It is one node. It has no tickets, only tokens; no containers, no snapshots, no network. A TPM's
// state is kept and no TPM started.
package pve
