// Package nfsclient is an NFSv3 client that behaves as ESXi's does, as far as that is
// known: it is what the lab mounts datastores with. It is written from RFC 1813, RFC 1833
// and RFC 5531 and from what VMware and users have published about ESXi; it shares no code
// with decamp's own server.
//
//	ds, err := nfsclient.Mount(ctx, nfsclient.Config{Host: "192.0.2.10", Path: "/srv/land"})
//	defer ds.Unmount(ctx)
//	f, err := ds.Create(ctx, "web01/web01-flat.vmdk") // with a .lck file that is renewed
//	err = f.Truncate(ctx, 8<<30)
//	w := f.NewWriter(ctx, 0)                         // 11 to 30 WRITEs in flight, mildly out of order
//	err = w.WriteAt(block, off)
//	err = errors.Join(w.Close(), f.Close(ctx))
//
// # What it does as ESXi does
//
//   - MOUNT and NFS are found through the portmapper on port 111; TCP only; calls come as
//     uid 0 from a privileged port if the process may use one.
//   - One connection per datastore, more with Config.Connections (nConnect, 8.0U1).
//   - Handles of more than 56 bytes fail to mount.
//   - GETATTR of the root every 12 s is the heartbeat. One unanswered for 5 s is missed;
//     after three in a row the APD timer starts, and 140 s later I/O fails (ErrAPD) until
//     a heartbeat is answered again.
//   - Until then the mount is hard: a lost or silent server is connected to again, from the
//     same source port, and what was not answered is sent again under the same xid.
//   - Writes are FILE_SYNC and at most 64 KiB, or UNSTABLE with COMMIT (Config.Unstable).
//   - An open file has a lock file beside it: .lck- and the fileid in hex, least
//     significant byte first, created exclusively, 84 bytes, written anew every 10 s. A lock
//     that nobody renews for 35 s is broken after 10 s more.
//
// # What it checks
//
// A fileid that changes, a reply of a wrong shape, a write verifier that changes while
// UNSTABLE data is out, a WRITE that is stable to a lesser degree than asked: each is an
// error with its cause, and never passed over.
//
// # What is not known about ESXi
//
// The order of its procedures, whether it writes FILE_SYNC or UNSTABLE, the layout of the
// lock file beyond "a host name and a counter", how long it waits before it connects again.
// What stands here is one answer that is consistent with what is known.
package nfsclient
