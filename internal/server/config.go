package server

import (
	"log/slog"
	"net"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// Config is what a server needs.
type Config struct {
	Roster  *fleetdb.Roster
	State   string // folder of tokens and the certificate
	Folder  string // base of relative paths of submitted plans; State if empty
	Access  string // file with the credentials and places of submitted plans; access.yaml in State if empty
	Version string
	Log     *slog.Logger

	Listen    string // host:port; DefaultListen if empty
	Cert, Key string // PEM files; our own certificate if empty
	ClientCA  string // PEM file with the CA of clients' certificates; without it they are not taken
	Plain     bool   // HTTP without TLS, for a loopback address only: a proxy stands before it

	// Now is the clock that failed logins are throttled by. Default time.Now.
	Now func() time.Time

	// Ready is called once, when the server answers: with its address and the fingerprint of
	// its certificate, which is empty without TLS. It may be nil.
	Ready func(addr net.Addr, fingerprint string)
}

// DefaultListen is the address of the server, with a port that no other part of decamp uses.
const DefaultListen = ":8470"
