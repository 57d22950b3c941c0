// Package vsphere is an emulated ESXi host or vCenter: the API of govmomi's simulator with the
// parts added that a mover of disks depends on. Package lab starts it.
//
// # What is emulated
//
//   - /sdk: logins, inventory, power, tasks (the simulator), snapshots with deltas,
//     QueryChangedDiskAreas, guests that write and shut down as they will, sessions that expire,
//     accounts that lock or lack privileges, service tickets, a read-only licence (ours).
//   - /folder: Basic and cookie login, listings, ranged GET, HEAD, 401, 404, 416, 500 for
//     files a running VM holds open, 503 when busy.
//   - NFS datastores that are really mounted (package nfsclient), and copies of disks to
//     them: CopyVirtualDisk_Task and Clone.
//   - SSH, once TSM-SSH was started: a shell (package shell) with vmkfstools, esxcli storage
//     nfs, md5sum, esxtop and what it takes to run them detached.
//   - NFC on a port of each host (package nfchost), with tickets over SOAP, for reading
//     disks, the frozen disk of a running VM among them.
//   - the wire: caps per connection and per datastore, latency, limits on requests and
//     connections, and faults switched on and off at run time (Faults, or the JSON API at
//     ControlURL for another process).
//
// The behaviour comes from documentation, knowledge-base articles and reports about real
// hosts, never from decamp's own client; docs/lab.md names the source of each pathology.
//
// # Terms
//
// A disk's content is a raw file opened read-only in place, or generated: runs of data and
// holes derived from a seed, computed on each read, so that a 6 TiB disk costs nothing.
// An endpoint is one listening address with its own certificate, sessions and limits: the
// ESXi or the vCenter, and, if asked for, each ESXi of a vCenter.
//
// # What it does not do
//
// It writes nothing a client could ask it to write into a datastore: PUT and DELETE answer
// 405. Nothing goes back to a snapshot. Export leases are not emulated, nor is writing over
// NFC.
//
// # Disks that change
//
// A disk is a base content and a chain of links, each with a layer of what a guest wrote to
// it. A snapshot freezes the last link and adds one; removing it merges the two. Guests write
// when Guest.Writes.Rate says so, or Lab.GuestWrites does. Compare an image with the truth
// like this:
//
//	l.GuestWrites("web01", 100)
//	now, _ := l.Disk("web01", 0)           // what the disk holds, now
//	then, _ := l.DiskAt("web01", 0, "s1") // what it held at a snapshot
//
// # NFC
//
// Config.NFC is how the hosts answer on port 902; its zero value is what hosts of
// Config.Version were seen to do. Ports are free ones: the ticket names them (and, of a
// vCenter, the host). What a test sets most often:
//
//	NFC{Hold: 8}                                    // a client with fewer reads in flight is told apart by Stats().NFC.HoldsMissed
//	NFC{Order: nfchost.Mixed, Fragments: []int{1000, 65536, 7}}
//	NFC{SessionRate: 142 << 20, HostRate: 505 << 20} // what VDDK tools get from one handle, and the best from a host
//	NFC{Memory: 48 << 20, Exhausted: nfchost.Queue}
//
// Lab.SetNFC changes it for new connections, Lab.DropNFC breaks those there are, Faults
// whose kinds begin with "nfc-" happen to them, Lab.NFCAddr says where a host listens, and
// Stats().NFC what it did.
//
// Rates and latency use real time; sessions, lockout and guest shutdown use Config.Clock.
package vsphere
