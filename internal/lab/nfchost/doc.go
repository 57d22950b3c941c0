// Package nfchost is port 902 of an emulated ESXi: authd, and the NFC server behind it, for
// clients that read disks. It knows tickets and disks only through the interfaces Tickets
// and Disk; package lab supplies them.
//
//	s, err := nfchost.Listen(nfchost.Config{Addr: "127.0.0.1:0", Tickets: t, Certificate: cert})
//	defer s.Close()
//	s.Addr() // what the ticket names
//
// # A connection
//
//	banner in clear -> TLS -> SESSION, BANNER, THUMBPRINT_SHA2, PROXY -> TLS is abandoned
//	-> in clear (nfc) or in a second TLS session (nfcssl):
//	   classic messages 43 33 51, 54 55 52 -> AIO messages
//
// One goroutine reads requests, another answers them; up to maxQueue requests wait between
// the two, and the socket is not read beyond that.
//
// # Terms
//
// A fragment is one reply to a read: part of it, with a header of its own. A record is a TLS
// record: hosts take one message from each and leave what else it holds until the next one
// comes. The rest of the words are those of the protocol.
//
// # Where it comes from
//
// Two independent descriptions of the protocol by people who watched real hosts. Rules says
// of each switch where the two differ or say nothing. What nobody described is refused, so
// that a client relying on it is noticed: unaligned or empty reads, writes, a second file in
// a session, flat files.
//
// Memory: per session one buffer of the negotiated size and one for compression.
package nfchost
