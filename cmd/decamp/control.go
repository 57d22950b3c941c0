package main

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/server/client"
)

// meetingFlags say where a fleet is spoken to: in its database, or by a server's API.
type meetingFlags struct {
	db          string
	insecure    bool   // the server of db need not be verified
	fleetKey    string // file; "": fleet.key in the state directory
	signs       bool   // the command submits plans or carries them out: it needs the fleet's key
	server      string
	tokenFile   string
	fingerprint string
	ca          string
	cert, key   string
}

// Environment variables that stand in for flags.
const (
	dbEnv        = "DECAMP_DB"
	serverEnv    = "DECAMP_SERVER"
	tokenFileEnv = "DECAMP_TOKEN_FILE"
)

// registerInsecure registers the flag that accepts a database that is not verified.
func (m *meetingFlags) registerInsecure(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&m.insecure, "insecure-database", false, "accept a PostgreSQL on another machine that is not verified (sslmode weaker than verify-full): who is in between reads and changes the fleet's database")
}

// registerKey registers the flag of commands that sign and verify plans.
func (m *meetingFlags) registerKey(cmd *cobra.Command) {
	m.signs = true
	cmd.Flags().StringVar(&m.fleetKey, "fleet-key", "", "`FILE` with the key that signs plans in the database, the same for all servers and workers; see decamp key (default "+fleetkey.FileName+" in the state directory)")
}

func (m *meetingFlags) registerDB(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.db, "db", "", "`URL` of the PostgreSQL that machines meet in, postgres://USER@HOST/NAME, without a password (default $"+dbEnv+", else a file in the state directory)")
	m.registerInsecure(cmd)
}

func (m *meetingFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&m.server, "server", "", "`URL` of a decamp serve to ask, https://HOST:8470 (default $"+serverEnv+")")
	f.StringVar(&m.tokenFile, "token-file", "", "with a server: `FILE` that holds the token (default $"+tokenFileEnv+")")
	f.StringVar(&m.fingerprint, "server-fingerprint", "", "with a server: `SHA-256` of its certificate, which it tells when it starts")
	f.StringVar(&m.ca, "server-ca", "", "with a server: `FILE` with the CA of its certificate (default the system's)")
	f.StringVar(&m.cert, "client-cert", "", "with a server: `FILE` with a certificate to come in by, in place of a token")
	f.StringVar(&m.key, "client-key", "", "with a server: `FILE` with its key")
	m.registerDB(cmd)
}

// tokenFrom reads a token; none without a file.
func (a *app) tokenFrom(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	return a.PasswordFrom(file)
}

// databaseURL returns where the roster is.
func (a *app) databaseURL(m meetingFlags) (string, error) {
	if url := cmp.Or(m.db, a.Env(dbEnv)); url != "" {
		return url, nil
	}
	state, err := a.StateDir()
	if err != nil {
		return "", err
	}
	return fileDatabase(state)
}

// fileDatabase is the roster of one machine.
func fileDatabase(state string) (string, error) {
	path, err := filepath.Abs(filepath.Join(state, "fleet.db"))
	return "sqlite:" + path, err
}

// isFile reports whether a database is a file, which one process at a time drives VMs from.
func isFile(url string) bool { return strings.HasPrefix(url, "sqlite:") }

func (a *app) openRoster(ctx context.Context, m meetingFlags) (*roster.Roster, string, error) {
	url, err := a.databaseURL(m)
	if err != nil {
		return nil, "", err
	}
	cfg := roster.Config{URL: url, Insecure: m.insecure}
	if m.signs {
		if cfg.Keys, err = a.fleetKeys(m, url); err != nil {
			return nil, "", err
		}
	}
	r, err := roster.Open(ctx, cfg)
	return r, url, err
}

// fleetKeys loads the fleet's key. For a database that is a file it is made when it is first needed.
func (a *app) fleetKeys(m meetingFlags, url string) (*fleetkey.Keys, error) {
	path := m.fleetKey
	if path == "" {
		state, err := a.StateDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(state, fleetkey.FileName)
	}
	if m.fleetKey == "" && isFile(url) {
		return fleetkey.Ensure(path)
	}
	return fleetkey.Load(path)
}

// openControl returns what a fleet is ordered and looked at by, wherever it is.
func (a *app) openControl(ctx context.Context, m meetingFlags) (server.Control, func() error, error) {
	url := cmp.Or(m.server, a.Env(serverEnv))
	if url != "" && m.db != "" {
		return nil, nil, fault.New(fault.Invalid, "--server and --db: want one of them").WithHint("the server knows its database")
	}
	if url != "" && m.db == "" {
		token, err := a.tokenFrom(cmp.Or(m.tokenFile, a.Env(tokenFileEnv)))
		if err != nil {
			return nil, nil, err
		}
		c, err := client.New(client.Config{URL: url, Token: token, Fingerprint: m.fingerprint, CA: m.ca, Cert: m.cert, Key: m.key})
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	}
	r, _, err := a.openRoster(ctx, m)
	if err != nil {
		return nil, nil, err
	}
	return audited{server.Local{Roster: r}, localUser()}, r.Close, nil
}

// splitName takes PLAN/VM apart. A plan's name has no slash.
func splitName(name string) (plan, vm string) {
	plan, vm, _ = strings.Cut(name, "/")
	return plan, vm
}

// meant takes apart a name that is a PLAN, a PLAN/VM or else a RUN: one that no plan has and that is no VM's.
func meant(ctx context.Context, c server.Control, name string) (plan, vm string, isRun bool, err error) {
	plan, vm = splitName(name)
	_, err = c.Plan(ctx, plan)
	if vm == "" && fault.Is(err, fault.NotFound) {
		return "", "", true, nil
	}
	return plan, vm, false, err
}

// findVM returns the VM of a plan that is called so: by reference, name or run.
func findVM(ctx context.Context, c server.Control, plan, what string) (roster.VM, error) {
	if vm, err := c.VM(ctx, roster.Key{Plan: plan, VM: what}); err == nil || !fault.Is(err, fault.NotFound) {
		return vm, err
	}
	var hits []roster.VM
	err := eachVM(ctx, c, roster.Query{Plan: plan}, func(vm roster.VM) {
		if strings.EqualFold(vm.Name, what) || slices.Contains(vm.Runs, what) {
			hits = append(hits, vm)
		}
	})
	switch {
	case err != nil:
		return roster.VM{}, err
	case len(hits) == 0:
		return roster.VM{}, fault.New(fault.NotFound, "plan %s has no VM %q", plan, what).WithHint("decamp status %s --all lists them", plan)
	case len(hits) > 1:
		var refs []string
		for _, vm := range hits {
			refs = append(refs, vm.Name+" is "+plan+"/"+vm.VM)
		}
		return roster.VM{}, fault.New(fault.Conflict, "%d VMs are called %q: %s", len(hits), what, strings.Join(refs, "; ")).WithHint("name it by its reference")
	}
	return hits[0], nil
}

// vmPage is how many VMs are asked for at a time.
const vmPage = 1000

// eachVM calls do for all VMs of a query, in the order of their plan.
func eachVM(ctx context.Context, c server.Control, q roster.Query, do func(roster.VM)) error {
	for q.Limit = vmPage; ; {
		vms, err := c.VMs(ctx, q)
		if err != nil {
			return err
		}
		for _, vm := range vms {
			do(vm)
			q.After = vm.Seq
		}
		if len(vms) < q.Limit {
			return nil
		}
	}
}
