// Package portmap returns to clients the ports of RPC programs: it contains the port mapper, version 2, and
// rpcbind, versions 3 and 4, of RFC 1833. ESXi has no other way to find MOUNT and NFS.
//
// If port 111 is free, the NFS server serves Map.Program there, over TCP and UDP. If the system's rpcbind has the
// port, Rpcbind.Register registers the services there, and Rpcbind.Unregister removes them.
//
// CALLIT of version 2 is missing, and so are its successors RPCB_BCAST and RPCB_INDIRECT: they let remote callers
// send calls through this machine. SET and UNSET are accepted from this machine only.
package portmap
