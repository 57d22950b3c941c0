// Package postgres decides whether connections to a PostgreSQL server are authenticated.
//
// A connection is accepted if it stays on this machine (a unix socket or a loopback address), or
// if it uses TLS and verifies the server's certificate and host name, as sslmode=verify-full does.
// With weaker modes, a machine between decamp and the server can read the password of the database and change its
// contents.
package postgres

import (
	"crypto/tls"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/decamp/decamp/internal/fault"
)

// modeEnv is the environment variable that chooses an sslmode for URLs without one.
const modeEnv = "PGSSLMODE"

// WithMode returns url with sslmode=verify-full if a connection by url leaves this machine and
// neither url nor $PGSSLMODE chooses an sslmode. An sslmode of the connection service file is
// replaced. A URL that cannot be parsed is returned unchanged.
func WithMode(url string) string {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil || Check(cfg) == nil || os.Getenv(modeEnv) != "" {
		return url
	}
	address, parameters, found := strings.Cut(url, "?")
	if !found {
		return address + "?sslmode=verify-full"
	}
	return address + "?sslmode=verify-full&" + parameters // the last of several values counts: the URL's own
}

// Check returns fault.Denied if one of the connections that cfg describes, fallbacks included,
// leaves this machine and does not verify the server.
func Check(cfg *pgconn.Config) error {
	if err := checkOne(cfg.Host, cfg.TLSConfig); err != nil {
		return err
	}
	for _, f := range cfg.Fallbacks {
		if err := checkOne(f.Host, f.TLSConfig); err != nil {
			return err
		}
	}
	return nil
}

// checkOne returns fault.Denied if a connection to host with the TLS configuration conf leaves this
// machine and does not verify the server. A nil conf is a connection without TLS.
func checkOne(host string, conf *tls.Config) error {
	if isLocal(host) || conf != nil && !conf.InsecureSkipVerify && conf.ServerName != "" {
		return nil
	}
	why := "without TLS"
	if conf != nil {
		why = "without verifying its certificate and name"
	}
	return fault.New(fault.Denied, "the connection to the database on %s may be made %s", host, why).
		WithHint("use sslmode=verify-full in the URL, in $%s and in the service file, with sslrootcert=FILE if a private CA signed the server's certificate; --insecure-database accepts the risk", modeEnv)
}

// isLocal reports whether connections to host do not leave this machine. Names other than localhost are
// not resolved, because TLS verifies which server has the name.
func isLocal(host string) bool {
	if network, _ := pgconn.NetworkAddress(host, 0); network == "unix" {
		return true
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
