package server

import (
	"log/slog"
	"net"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// Config configures a Server.
type Config struct {
	Database *fleetdb.Database // fleet database
	State    string            // folder of the tokens and the certificate; created if missing
	Folder   string            // base of relative paths of submitted plans; State if empty
	Access   string            // file with the credentials and places of submitted plans; access.yaml in State if empty
	Version  string            // release of decamp, for the API document and the metrics
	Log      *slog.Logger      // receives the log; nil discards it

	Listen    string // host:port; DefaultListen if empty
	Cert, Key string // PEM files; our own certificate if empty
	ClientCA  string // PEM file with the CA of client certificates; without it no client certificate is accepted
	Plain     bool   // serve HTTP without TLS, on a loopback address only; for a proxy on this machine

	// Now is the clock of the throttle for failed logins. Default time.Now.
	Now func() time.Time

	// Ready is called once, when the server accepts connections, with its address and the fingerprint of
	// its certificate. The fingerprint is empty without TLS. Ready may be nil.
	Ready func(addr net.Addr, fingerprint string)
}

// DefaultListen is the address of the server, with a port that no other part of decamp uses.
const DefaultListen = ":8470"
