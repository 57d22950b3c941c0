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
// A Ticket opens one connection; a connection carries one session with one open disk. To
// read a disk faster, a caller opens it several times.
//
// # How it is read
//
//	Disk.ReadAt -> session.sendRequest ... session.awaitReply -> session.readFrame -> fragment -> p
//
// There is no background goroutine: requests of all callers are under way on the one
// connection, and the callers that wait for an answer take turns at receiving for all of
// them. An uncompressed fragment is read from the socket (or from TLS) directly into its
// caller's buffer. The host may send fragments in any order.
//
// # What it promises
//
//   - The certificate is the ticket's, in both TLS sessions. Nothing is sent before it is
//     verified, and a ticket is never logged.
//   - No byte outside a caller's buffer is written. Lengths from the host are checked against
//     the request.
//   - ReadAt fills p with exactly the disk's bytes or fails: each byte of a request is
//     delivered once.
//   - The session ends if the host sends nothing, or does not read a request, for the stall
//     time. It also ends if a caller cancels a read: reads of other callers on the session
//     then fail with fault.Transient.
//
// # Limits
//
// This package does not request tickets, repeat failed reads, or choose a file: package
// transport/nfc does. It supports no protocol older than version 3. It does not answer a host
// that wants to move a session to another host: the session ends, and a new ticket leads to
// the new host.
//
// # Memory
//
// Each Disk: 256 KiB of receive buffer and, once compressed data came, one fragment of at
// most Request + 64 KiB. On the host: Buffers.Size x Buffers.Count, and at most Depth
// requests of Request bytes under way.
package nfc
