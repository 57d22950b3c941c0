// Package vsphere is an emulated ESXi host or vCenter: the API of govmomi's simulator, extended by the
// parts that decamp depends on. Package lab starts it.
//
// # Emulated services
//
//   - /sdk: logins, inventory, power and tasks (the simulator); snapshots with deltas,
//     QueryChangedDiskAreas, guests that write and that shut down late or never, sessions that
//     expire, accounts that lock or lack privileges, service tickets, a read-only licence.
//   - /folder: Basic and cookie login, listings, ranged GET, HEAD, 401, 404, 416, 500 for
//     files that a running VM has open, 503 when busy.
//   - NFS datastores with real mounts (package nfsclient), and copies of disks to them:
//     CopyVirtualDisk_Task and Clone.
//   - SSH, once TSM-SSH is started: a shell (package shell) with vmkfstools, esxcli storage
//     nfs, md5sum, esxtop, and the commands that run them detached.
//   - NFC on a port of each host (package nfchost), with tickets over SOAP, for reading
//     disks, including the frozen disk of a running VM.
//   - the network: caps per connection and per datastore, latency, limits on requests and
//     connections, and faults that are switched at run time (Faults, or the JSON API at
//     ControlURL for another process).
//
// The behaviour is that of documentation, knowledge-base articles and reports about real
// hosts. It is not derived from decamp's client; docs/lab.md names the source of each pathology.
//
// # Terms
//
// A disk's content is a raw file opened read-only in place, or generated: runs of data and
// holes derived from a seed, computed on each read, so that a 6 TiB disk costs nothing.
// An endpoint is one listening address with its own certificate, sessions and limits: the
// ESXi or the vCenter, and, if asked for, each ESXi of a vCenter.
//
// # Limits
//
// The emulator accepts no writes to a datastore: PUT and DELETE return 405. Reverting to a snapshot,
// export leases and writing over NFC are not emulated.
//
// # Disks that change
//
// A disk is a base content and a chain of links, each with a layer of what a guest wrote to
// it. A snapshot freezes the last link and adds one; removing it merges the two. Guests write
// at Guest.Writes.Rate, and when a test calls Lab.GuestWrites. To compare an image with the
// disk:
//
//	l.GuestWrites("web01", 100)
//	now, _ := l.Disk("web01", 0)           // content of the disk now
//	then, _ := l.DiskAt("web01", 0, "s1") // content at a snapshot
//
// # NFC
//
// Config.NFC configures the hosts' answers on port 902. Its zero value is the observed behaviour of
// hosts of Config.Version. Ports are free ones: the ticket names them and, for a vCenter, the host. The
// usual settings of tests:
//
//	NFC{Hold: 8}                                    // Stats().NFC.HoldsMissed counts clients with fewer reads in flight
//	NFC{Command: nfchost.Mixed, Fragments: []int{1000, 65536, 7}}
//	NFC{SessionRate: 142 << 20, HostRate: 505 << 20} // measured rates of VDDK tools on one handle, and of a host
//	NFC{Memory: 48 << 20, Exhausted: nfchost.Queue}
//
// Lab.SetNFC changes it for new connections, Lab.DropNFC breaks existing ones, Faults whose kinds begin
// with "nfc-" affect them, Lab.NFCAddr returns the address of a host, and Stats().NFC the counters.
//
// Rates and latency use real time; sessions, lockout and guest shutdown use Config.Clock.
package vsphere
