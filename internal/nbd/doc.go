// Package nbd implements the Network Block Device protocol: a Server of any number of disks, and a
// Client of one export. Both use the fixed newstyle handshake.
//
// # Server
//
// An Export is a disk with a name. The empty name selects the first export. A client lists and
// describes exports (LIST, INFO, GO) and selects structured replies and the context base:allocation.
//
//	session.serveRequests -> session.answerRequest -> export.readPiece -> sendQueue.send -> writev
//	\__ one reader _____/    \__ a goroutine for each request _______________________/
//
// Requests of a connection run in parallel, and each reply is sent when it is complete. The request that
// completes while nothing is being sent writes its reply and all that complete meanwhile. If the disk is
// a Viewer, the data goes from its memory to the socket without a copy.
//
// A structured read is sent in pieces of 1 MiB, so that a large request needs little memory. It has at
// most 32 MiB; other reads, and writes, have at most 16 MiB. Once a client has requested the block
// status of an export, reads send known zeros as holes.
//
// Extended headers, TRIM, WRITE_ZEROES and CACHE are not supported.
//
// # Bounds
//
// The client is not trusted. A message that violates the protocol ends the connection, as does a
// handshake that is too long, a write request whose data does not arrive, or a reply that the client
// does not read within Limits.Stall. A connection without requests may stay open.
//
// Memory, besides the pages that Viewers lend, is at most
//
//	Memory + Connections × (8 KiB + 16 KiB handshake + Requests × 8 KiB)
//
// by default 16 MiB + 64 × 0.52 MiB = 49 MiB if all connections are in full use, and 18 MiB for one
// client with 4 connections. With TLS, each connection needs 64 KiB more. A connection holds at most
// 16 MiB of data, in pages or buffers, that waits for the client.
//
// # TLS
//
// If Server.TLS is set, every connection must start TLS before any other option. Clients prove their
// identity by certificates, if TLS.ClientAuth requires it. Pre-shared keys (nbdkit --tls-psk) are not
// supported, because Go's TLS does not support them.
//
// # Client
//
// Client reads, writes, zeroes and flushes. Calls may be concurrent, as many as there are callers. Its
// memory is the callers' buffers. The server is not trusted: an answer without a request ends the
// connection.
//
// Source: NetworkBlockDevice/nbd, doc/proto.md.
package nbd
