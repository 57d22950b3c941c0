package server

import "time"

// Bounds on what strangers can make a server hold. With all of them used up it is about
// maxConns × 100 KiB = 800 MiB, nearly all of it TLS's and net/http's buffers and headers; a
// thousand clients of the event stream take about 60 MiB.
const (
	maxConns           = 8192             // connections of all clients
	maxConnsPerNetwork = 256              // connections of one IPv4 address or IPv6 /64; a loopback address has no limit
	maxHeader          = 32 << 10         // limit of the header of a request, in bytes
	headerTime         = 10 * time.Second // time limit of a client to send the header
	requestTime        = 60 * time.Second // limit of a request with its body and response; streams have separate limits
	idleTime           = 2 * time.Minute  // time after which an idle connection is closed
)

// readyTime is the time limit of the fleet database, and of the server itself, in health checks.
const readyTime = 2 * time.Second

// scrapeTime is the time limit of the fleet database for metrics. Prometheus waits ten seconds by default.
const scrapeTime = 8 * time.Second
