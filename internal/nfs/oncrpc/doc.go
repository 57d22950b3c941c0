// Package oncrpc serves ONC RPC version 2 (RFC 5531) over TCP and UDP. It contains no
// program: NFS, MOUNT and the port mapper are Programs in other packages.
//
// # How a call travels
//
//	socket -> record -> call header -> Procedure.Decode -> Answer -> reply
//	          \____________ the connection's reader ___/   \_ a separate goroutine
//
// Decode decodes the arguments from the stream of the record, so that a large payload is read
// from the socket directly into its final memory. It runs in the connection's reader: while it
// waits, nothing more is read, and TCP slows the client down. Answers of several calls run
// concurrently, and each reply is sent when it is ready. The reader itself answers a call whose
// Quick succeeds. It holds up to six such replies back while more calls can be read, because
// waking the client for each reply costs more than the calls.
//
// A connection with consecutive quick calls is a stream: its reader blocks in the kernel and not
// in the runtime's poller. With 64 KiB WRITEs into a tmpfs, eight in flight, both measures
// together gave 1.5 times as many calls a second, with a fifth less processor time each.
//
// # Bounds
//
// A connection has at most Options.MaxCalls calls in work and then is not read. Memory for
// replies is at most
//
//	MaxConnections x MaxCalls x 8 KiB  +  ReplyMemory
//
// where ReplyMemory is for calls that announce a large reply (Call.Expect). A connection uses
// 5 KiB and a goroutine, and a thread while it streams. A record that is longer than MaxRecord,
// has more than 1024 fragments or is not a call closes its connection, before any memory is
// allocated for it. The connection is also closed if the client stalls within a record, does
// not read its replies, or connects and sends nothing.
//
// # Dead connections
//
// A client that lost its connection reconnects from the same port (operators of SmartX
// observed this of ESXi). An old socket that lingers on our side can delay the new connection
// by more than a minute. Therefore sockets are closed with a reset (SO_LINGER 0): at once when
// the client closes its side, and when its address and port connect again. A client that closes
// only its sending side gets no more replies; no RPC client does that.
//
// # Retransmissions
//
// After a reconnection a client repeats the calls that were not answered, although some of them
// were executed. A procedure with a Cache does not execute a call twice: the reply is kept for
// two minutes under the client's address, the xid, the procedure and a checksum of the call. A
// repetition that arrives while the first call is in work waits for it. A call is a repetition
// only if the connection of the first one is lost or has the same port, because two clients on
// one host may use the same numbers. The cache is in memory and bounded: it has no effect after
// a restart or very many other calls.
//
// # Security
//
// The credentials of AUTH_SYS are not verified. Peers are admitted by their address alone.
package oncrpc
