package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/buildinfo"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/server"
)

const serveHelp = `
Serve a fleet: a REST API, an event stream, metrics and a web page, over TLS. Plans are
submitted to the server, survive its restart, and are executed by it and by workers of the
same database.

The server migrates VMs to the folders of --offer; without --offer it migrates none. Without
--db the state is a file, and only this process migrates VMs. With --db, decamp worker on
other machines migrates VMs as well, and several servers may run. All of them require the same
fleet key (decamp key new), which signs the plans in the database.

Users are authorized by tokens, which decamp token add creates, or by client certificates with
--client-ca. The access file names the credentials and places that submitted plans may use.
The first start creates a certificate and prints its SHA-256. docs/server.md describes all
routes and roles, docs/services.md the systemd units.
`

const serveExamples = `
decamp serve --offer /srv/vm
decamp serve --tls-cert mover.pem --tls-key mover.key --db postgres://decamp@db/decamp
`

// serveCommand is decamp serve.
type serveCommand struct {
	workerFlags
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	fleet     fleetFlags          // flags of the fleet
	notify    assemble.Notify     // receivers of notifications

	listen    string // address to listen on
	cert, key string // files with the certificate and its key; empty: a self-signed one
	clientCA  string // file with the CA of client certificates; empty for none
	plain     bool   // serve without TLS
}

// newServe returns the command decamp serve.
func newServe(p *program) *cobra.Command {
	sv := &serveCommand{out: p.out, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a fleet: API, events, metrics, web page", Long: trimHelp(serveHelp), Example: trimHelp(serveExamples),
		Args: exactArgs(), Annotations: exitCodes(
			exit{fault.NotFound, "a folder, a certificate or the fleet key does not exist"},
			exit{fault.Denied, "a folder or a port cannot be used, the database is not verified, or other users may read the fleet key"},
			exit{fault.Unreachable, "the database does not answer"},
			exit{fault.Conflict, "another process uses the state directory or the address"}),
		RunE: p.withLog(func(cmd *cobra.Command, _ []string) error {
			if (sv.cert == "") != (sv.key == "") {
				return badUsage(cmd, "--tls-cert and --tls-key: want both or neither")
			}
			if err := checkCounts(cmd, sv.vms, sv.trials); err != nil {
				return err
			}
			return sv.runServe(cmd.Context())
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&sv.listen, "listen", server.DefaultListen, "`ADDRESS` to serve on")
	f.StringVar(&sv.cert, "tls-cert", "", "`FILE` with the certificate, PEM (default a self-signed one)")
	f.StringVar(&sv.key, "tls-key", "", "`FILE` with the key of the certificate, PEM")
	f.StringVar(&sv.clientCA, "client-ca", "", "`FILE` with the CA of client certificates, whose organizational unit is the role")
	f.BoolVar(&sv.plain, "plain", false, "no TLS; only on a loopback address, behind a proxy")
	sv.fleet.registerDB(cmd)
	sv.fleet.registerKey(cmd)
	sv.workerFlags.registerFlags(p.assembler, cmd)
	registerNotify(&sv.notify, f)
	return cmd
}

// runServe serves the API and executes VMs until ctx ends.
func (sv *serveCommand) runServe(ctx context.Context) (err error) {
	if _, err := sv.assembler.Access(); err != nil { // before the first plan needs it
		return err
	}
	access, _, err := sv.assembler.AccessPath()
	if err != nil {
		return err
	}
	r, url, err := sv.fleet.openDatabase(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, r.Close)
	n, err := mover.OpenNode(ctx, sv.assembler, r, mover.NodeOptions{
		Name: sv.name, Folders: sv.folders, VMs: sv.vms, Trials: sv.trials, Idle: len(sv.folders) == 0, Hooks: sv.hooks, Shared: sharedURL(url), Insecure: sv.fleet.insecure, Notify: sv.notify,
	})
	if err != nil {
		return err
	}
	defer joinClose(&err, n.Close)
	state, err := sv.assembler.StateDir()
	if err != nil {
		return err
	}
	s, err := server.New(server.Config{
		Database: r, State: state, Access: access, Version: buildinfo.Current().Version, Log: sv.out.log, Listen: sv.listen, Cert: sv.cert, Key: sv.key, ClientCA: sv.clientCA, Plain: sv.plain,
		Ready: func(addr net.Addr, fingerprint string) { sv.printServing(addr, fingerprint) },
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}

// printServing prints the address and the certificate.
func (sv *serveCommand) printServing(addr net.Addr, fingerprint string) {
	if sv.out.json {
		_ = sv.out.printJSON(map[string]any{"serving": addr.String(), "fingerprint": fingerprint, "offers": append([]string{}, sv.folders...)})
		return
	}
	scheme := "https"
	if sv.plain {
		scheme = "http"
	}
	fmt.Fprintf(sv.out, "Serving on %s://%s\n", scheme, addr)
	if fingerprint != "" {
		fmt.Fprintf(sv.out, "Certificate: SHA-256 %s\n", fingerprint)
	}
	if len(sv.folders) == 0 {
		fmt.Fprintln(sv.out, "No folder is offered: workers migrate the VMs.")
	} else {
		fmt.Fprintf(sv.out, "VMs may go to %s.\n", strings.Join(slices.Sorted(slices.Values(sv.folders)), ", "))
	}
	fmt.Fprintln(sv.out, sv.out.message("Access requires a token: decamp token add NAME --role operate"))
}
