// Package nfc reads disks over NFC, the protocol that ESXi speaks on TCP port 902 and
// VMware's own backup library uses as "nbd" and "nbdssl". It reads; it never writes.
//
// It was written for interoperability from published descriptions of what goes over the
// wire, and from none of VMware's code. Where those descriptions differ, this package
// sends what both accept and takes what either sends.
//
// # How a disk is opened
//
//	authd    banner in clear -> TLS -> SESSION, BANNER, THUMBPRINT_SHA2, PROXY   (authd.go)
//	TLS      a second session on the same connection, or none ("nbd")             (authd.go)
//	classic  264-byte messages: tag, parameters, version, features                (handshake.go)
//	AIO      framed requests and replies: open the session, open the file         (session.go, disk.go)
//
// A Ticket opens one connection; a connection carries one session with one open disk. Who
// wants to read a disk faster opens it several times.
//
// # How it is read
//
//	Disk.ReadAt -> session.sendRequest ... session.awaitReply -> session.readFrame -> fragment -> p
//
// There is no goroutine: requests of all callers are under way on the one connection, and
// whoever waits for an answer takes turns at receiving, for itself and for the others. A
// fragment that is not compressed goes from the socket (or from TLS) straight into the
// buffer of the caller it is for, in whatever order the host sends fragments.
//
// # What it promises
//
//   - The certificate is the ticket's, in both TLS sessions. Nothing is sent before that is
//     known, and a ticket is never logged.
//   - No byte outside a caller's buffer is written, and no length the host names is believed
//     beyond what was asked for.
//   - ReadAt fills p with exactly the disk's bytes or fails: each byte of a request is
//     delivered once.
//   - A host that says nothing for the stall time, or does not take a request for it, ends
//     the session. Whoever cancels a read ends it too: what is under way for others then
//     fails with fault.Transient.
//
// # What it does not do
//
// It does not ask for tickets, repeat what failed, or choose a file: package transport/nfc
// does. It speaks no protocol older than version 3 and does not answer a host that wants
// to move a session elsewhere; the session ends, a new ticket names the new host.
//
// # Memory
//
// Each Disk: 256 KiB of receive buffer and, once compressed data came, one fragment of at
// most Request + 64 KiB. On the host: Buffers.Size x Buffers.Count, and at most Depth
// requests of Request bytes under way.
package nfc
