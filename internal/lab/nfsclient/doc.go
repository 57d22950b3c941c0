// Package nfsclient is an NFSv3 client with the behaviour of ESXi, as far as it is known: the emulated hosts
// mount datastores with it. It is written from RFC 1813, RFC 1833 and RFC 5531, and from what VMware and
// users have published about ESXi. It shares no code with decamp's server.
//
//	ds, err := nfsclient.Mount(ctx, nfsclient.Config{Host: "192.0.2.10", Path: "/srv/land"})
//	defer ds.Unmount(ctx)
//	f, err := ds.Create(ctx, "web01/web01-flat.vmdk") // with a .lck file that is renewed
//	err = f.Truncate(ctx, 8<<30)
//	w := f.NewWriter(ctx, 0)                         // 11 to 30 WRITEs in flight, mildly out of order
//	err = w.WriteAt(block, off)
//	err = errors.Join(w.Close(), f.Close(ctx))
//
// # Behaviour of ESXi
//
//   - The portmapper on port 111 returns the ports of MOUNT and NFS. All calls use TCP and uid 0, from
//     a privileged port if the process may bind one.
//   - A datastore has one connection, or more with Config.Connections (nConnect, 8.0U1).
//   - Handles of more than 56 bytes fail to mount.
//   - A GETATTR of the root every 12 s is the heartbeat. Without a reply in 5 s it is missed. After
//     three missed heartbeats in a row the APD timer starts. 140 s later I/O fails (ErrAPD) until a
//     heartbeat succeeds.
//   - Until then the mount is hard: the client reconnects to a lost or silent server, from the same
//     source port, and sends calls without a reply again under the same xid.
//   - Writes are FILE_SYNC and at most 64 KiB, or UNSTABLE with COMMIT (Config.Unstable).
//   - An open file has a lock file in the same directory: .lck- and the fileid in hex, least
//     significant byte first, created exclusively, 84 bytes, rewritten every 10 s. A lock that is not
//     renewed for 35 s is broken after a further 10 s.
//
// # Checks
//
// The client reports each of these as an error with its cause: a fileid that changes, a malformed reply, a
// write verifier that changes while UNSTABLE data is not committed, and a WRITE that is less stable than
// requested.
//
// # Locks
//
// Datastore.mu guards the locks of files, and link.mu the pending calls of a connection. link.writing is
// held while a message is sent, and must not be acquired with link.mu held. Events are delivered without
// any lock.
//
// # What is not known about ESXi
//
// The order of its procedures, whether it writes FILE_SYNC or UNSTABLE, the layout of the lock file beyond
// "a host name and a counter", and the delay before it reconnects are not documented. This package
// implements one behaviour that is consistent with the published facts.
package nfsclient
