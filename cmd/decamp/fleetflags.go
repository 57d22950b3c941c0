package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/client"
	"github.com/decamp/decamp/internal/systemd"
	"github.com/decamp/decamp/internal/units"
)

// fleetFlags are the flags that select a fleet: its database, or a server. Their methods open it.
type fleetFlags struct {
	assembler *assemble.Assembler // provides state directory, environment and log

	db          string // URL of the database; empty: $DECAMP_DB, or a file in the state directory
	insecure    bool   // the server of db need not be verified
	fleetKey    string // file; empty: the systemd credential fleet.key, or that file in the state directory
	signs       bool   // the command submits plans or carries them out: it needs the fleet's key
	server      string // URL of a server; empty: $DECAMP_SERVER, or none
	tokenFile   string // file with the token for the server
	fingerprint string // SHA-256 of the server's certificate
	ca          string // file with the CA of the server's certificate
	cert, key   string // files with the client certificate and its key
}

// Environment variables that stand in for flags.
const (
	dbEnv        = "DECAMP_DB"         // URL of the database
	serverEnv    = "DECAMP_SERVER"     // URL of the server
	tokenFileEnv = "DECAMP_TOKEN_FILE" // file with the token
)

// registerInsecure registers the flag that permits an unverified database.
func (f *fleetFlags) registerInsecure(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.insecure, "insecure-database", false, "accept a PostgreSQL server on another machine without verification (sslmode weaker than verify-full): an attacker on the path can read and change the fleet database")
}

// registerKey registers the flag of commands that sign and verify plans. openDatabase then loads the key.
func (f *fleetFlags) registerKey(cmd *cobra.Command) {
	f.signs = true
	cmd.Flags().StringVar(&f.fleetKey, "fleet-key", "", "`FILE` with the key that signs plans in the database, the same on all servers and workers; see decamp key (default the systemd credential "+fleetkey.FileName+", otherwise that file in the state directory)")
}

// registerDB registers the flags that select a database.
func (f *fleetFlags) registerDB(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.db, "db", "", "`URL` of the fleet's PostgreSQL database, postgres://USER@HOST/NAME, without a password (default $"+dbEnv+", otherwise a file in the state directory)")
	f.registerInsecure(cmd)
}

// registerFlags registers the flags that select a server or a database.
func (f *fleetFlags) registerFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.server, "server", "", "`URL` of a decamp server, https://HOST:8470, or its name in a config file (default $"+serverEnv+")")
	flags.StringVar(&f.tokenFile, "token-file", "", "with a server: `FILE` with the token (default $"+tokenFileEnv+")")
	flags.StringVar(&f.fingerprint, "server-fingerprint", "", "with a server: `SHA-256` of its certificate, which decamp serve prints when it starts")
	flags.StringVar(&f.ca, "server-ca", "", "with a server: `FILE` with the CA of its certificate (default the system's)")
	flags.StringVar(&f.cert, "client-cert", "", "with a server: `FILE` with a client certificate, instead of a token")
	flags.StringVar(&f.key, "client-key", "", "with a server: `FILE` with the key of the client certificate")
	f.registerDB(cmd)
}

// tokenFrom returns the token in a file; an empty token without a file.
func (f *fleetFlags) tokenFrom(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return f.assembler.PasswordFrom(file)
}

// databaseURL returns the URL of the fleet database.
func (f *fleetFlags) databaseURL() (string, error) {
	if url := cmp.Or(f.db, f.assembler.Env(dbEnv)); url != "" {
		return url, nil
	}
	state, err := f.assembler.StateDir()
	if err != nil {
		return "", err
	}
	return fileDatabase(state)
}

// fileDatabase returns the URL of the database in a state directory.
func fileDatabase(state string) (string, error) {
	path, err := filepath.Abs(filepath.Join(state, "fleet.db"))
	return "sqlite:" + path, err
}

// isFile reports whether a database is a file. Only one process at a time can execute VMs from it.
func isFile(url string) bool { return strings.HasPrefix(url, "sqlite:") }

// sharedURL returns the URL of a database that several machines share; empty for a file.
func sharedURL(url string) string {
	if isFile(url) {
		return ""
	}
	return url
}

// openDatabase opens the fleet database and returns its URL. The caller closes it.
func (f *fleetFlags) openDatabase(ctx context.Context) (*fleetdb.Database, string, error) {
	url, err := f.databaseURL()
	if err != nil {
		return nil, "", err
	}
	cfg := fleetdb.Config{URL: url, Insecure: f.insecure}
	if f.signs {
		if cfg.Keys, err = f.fleetKeys(url); err != nil {
			return nil, "", err
		}
	}
	r, err := fleetdb.Open(ctx, cfg)
	return r, url, err
}

// fleetKeys loads the fleet key. It creates the default key of a database in a file.
func (f *fleetFlags) fleetKeys(url string) (*fleetkey.Keys, error) {
	path := cmp.Or(f.fleetKey, systemd.Credential(f.assembler.Env, fleetkey.FileName))
	if path == "" {
		state, err := f.assembler.StateDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(state, fleetkey.FileName)
		if isFile(url) {
			return fleetkey.Ensure(path)
		}
	}
	return fleetkey.Load(path)
}

// openControl returns the interface to a fleet, through a server or in this process, and the function
// that closes it.
func (f *fleetFlags) openControl(ctx context.Context) (server.Control, func() error, error) {
	url := cmp.Or(f.server, f.assembler.Env(serverEnv))
	if url != "" && f.db != "" {
		return nil, nil, fault.New(fault.Invalid, "--server and --db exclude each other").WithHint("the server knows its database")
	}
	if url != "" && f.db == "" {
		token, err := f.tokenFrom(cmp.Or(f.tokenFile, f.assembler.Env(tokenFileEnv)))
		if err != nil {
			return nil, nil, err
		}
		if token == "" && f.cert == "" {
			account, err := assemble.AccountOf(strings.TrimSuffix(url, "/"))
			if err != nil {
				return nil, nil, err
			}
			if token, _, err = f.assembler.Credentials().Get(ctx, account); err != nil {
				return nil, nil, err
			}
		}
		c, err := client.New(client.Config{URL: url, Token: token, Fingerprint: f.fingerprint, CA: f.ca, Cert: f.cert, Key: f.key})
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	}
	r, _, err := f.openDatabase(ctx)
	if err != nil {
		return nil, nil, err
	}
	return server.Audited{Local: server.Local{Database: r}, User: localUser(), LimitText: limitWords}, r.Close, nil
}

// exists reports whether the fleet is a server, a database server, or a file that exists.
func (f *fleetFlags) exists() bool {
	url, err := f.databaseURL()
	if err != nil || f.server != "" || f.assembler.Env(serverEnv) != "" || !isFile(url) {
		return err == nil
	}
	_, err = os.Stat(strings.TrimPrefix(url, "sqlite:"))
	return err == nil
}

// limitWords returns the value of a limit for users; a negative limit means that no limit is set.
func limitWords(name string, limit int64) string {
	switch {
	case limit < 0:
		return "as in plans"
	case limit == 0 && strings.HasSuffix(name, mover.RateSuffix):
		return "0, transfers stopped"
	case limit == 0:
		return "0, no further starts"
	case strings.HasSuffix(name, mover.RateSuffix):
		return units.Rate(limit, time.Second)
	}
	return strconv.FormatInt(limit, 10)
}

// namedHelp is part of the help of all commands with the name of a plan's VM.
const namedHelp = `
PLAN is a plan that decamp plan run or a server executes. PLAN/VM is one VM of it, by its name
or reference. The plan is looked up in the state directory, in the database of --db, or at the
server of --server.
`

// commandExits are the exit codes of commands for plans. Its third and fourth elements apply to all
// commands with a fleet.
var commandExits = []exit{
	{fault.NotFound, "the plan, VM or run does not exist: decamp status and decamp runs list them"},
	{fault.Conflict, "the state of the plan or VM does not permit it; the error has the reason"},
	{fault.Denied, "the token does not allow it"},
	{fault.Unreachable, "the database or the server does not answer"},
}

// localUser returns the name of the current user, for records of commands.
func localUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}
