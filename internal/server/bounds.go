package server

import "time"

// Bounds on what strangers can make a server hold. With all of them used up it is about
// maxConns × 100 KiB = 800 MiB, nearly all of it TLS's and net/http's buffers and headers; a
// thousand clients of the event stream take about 60 MiB.
const (
	maxConns           = 8192
	maxConnsPerNetwork = 256      // connections of one IPv4 address or IPv6 /64; a loopback address has no limit
	maxHeader          = 32 << 10 // bytes, of one request
	headerTime         = 10 * time.Second
	requestTime        = 60 * time.Second // limit of a request with its body and response; streams have separate limits
	idleTime           = 2 * time.Minute
)

// readyTime is how long the roster may take to say that it is there.
const readyTime = 2 * time.Second
