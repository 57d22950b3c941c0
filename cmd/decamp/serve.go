package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/server"
)

const serveHelp = `
Serve a fleet: a REST API, an event stream, metrics and a web page, over TLS. Plans are
submitted to it, survive it, and are carried out by it and by workers of the same database.

It moves VMs itself, to the folders of --offer, unless it has none. Without --db the state is a
file, and this process the only one that moves VMs; with --db, machines with decamp worker do
so too, and any number of servers may show and take orders. They all need the same fleet key
(decamp key new), which signs the plans in the database.

Who may do what is said by tokens, which decamp token add makes, or by clients' certificates
with --client-ca. The access file names the credentials and places that submitted plans may
use. The first start makes a certificate of its own and tells its SHA-256. All routes, roles
and metrics are in docs/server.md; a systemd unit is in dist/.
`

const serveExamples = `
decamp serve --offer /srv/vm
decamp serve --tls-cert mover.pem --tls-key mover.key --db postgres://decamp@db/decamp
`

type serveOptions struct {
	meetingFlags
	workerOptions
	listen    string
	cert, key string
	clientCA  string
	plain     bool
}

func newServe(a *app) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve a fleet: API, events, metrics, web page", Long: text(serveHelp), Example: text(serveExamples),
		Args: takes(), Annotations: exits(
			exit{fault.NotFound, "a folder, a certificate or the fleet key is not there"},
			exit{fault.Denied, "a folder or a port may not be used, the database is not verified, or others may read the fleet key"},
			exit{fault.Unreachable, "the database does not answer"},
			exit{fault.Conflict, "another decamp has the state directory, or the address"}),
		RunE: a.logged(func(cmd *cobra.Command, _ []string) error {
			switch {
			case (o.cert == "") != (o.key == ""):
				return badUsage(cmd, "--tls-cert and --tls-key: want both or neither")
			case o.vms < 1:
				return badUsage(cmd, "--vms %d: want 1 or more", o.vms)
			}
			return a.serve(cmd.Context(), o)
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.listen, "listen", server.DefaultListen, "`ADDRESS` to serve on")
	f.StringVar(&o.cert, "tls-cert", "", "`FILE` with the certificate, PEM (default one that is made)")
	f.StringVar(&o.key, "tls-key", "", "`FILE` with its key")
	f.StringVar(&o.clientCA, "client-ca", "", "`FILE` with the CA of clients' certificates: their organizational unit is the role")
	f.BoolVar(&o.plain, "plain", false, "no TLS, on a loopback address only, behind a proxy")
	o.registerDB(cmd)
	o.registerKey(cmd)
	o.workerOptions.register(a, cmd)
	return cmd
}

func (a *app) serve(ctx context.Context, o serveOptions) (err error) {
	if _, err := a.Access(); err != nil { // before the first plan needs it
		return err
	}
	access, _, err := a.AccessPath()
	if err != nil {
		return err
	}
	r, url, err := a.openRoster(ctx, o.meetingFlags)
	if err != nil {
		return err
	}
	defer closing(&err, r.Close)
	n, err := mover.OpenNode(ctx, &a.Assembler, r, mover.NodeOptions{
		Name: o.name, Folders: o.folders, VMs: o.vms, Trials: o.trials, Idle: len(o.folders) == 0, Hooks: o.hooks, Shared: sharedURL(url), Insecure: o.insecure,
	})
	if err != nil {
		return err
	}
	defer closing(&err, n.Close)
	state, err := a.StateDir()
	if err != nil {
		return err
	}
	s, err := server.New(server.Config{
		Roster: r, State: state, Access: access, Version: version, Log: a.Log, Listen: o.listen, Cert: o.cert, Key: o.key, ClientCA: o.clientCA, Plain: o.plain,
		Ready: func(addr net.Addr, fingerprint string) { a.tellServing(addr, fingerprint, o) },
	})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}

func (a *app) tellServing(addr net.Addr, fingerprint string, o serveOptions) {
	if a.json {
		_ = a.print(map[string]any{"serving": addr.String(), "fingerprint": fingerprint, "offers": append([]string{}, o.folders...)})
		return
	}
	scheme := "https"
	if o.plain {
		scheme = "http"
	}
	fmt.Fprintf(a.out, "Serving on %s://%s\n", scheme, addr)
	if fingerprint != "" {
		fmt.Fprintf(a.out, "Certificate: SHA-256 %s\n", fingerprint)
	}
	if len(o.folders) == 0 {
		fmt.Fprintln(a.out, "No folder is offered: workers move the VMs.")
	} else {
		fmt.Fprintf(a.out, "VMs may go to %s.\n", strings.Join(slices.Sorted(slices.Values(o.folders)), ", "))
	}
	fmt.Fprintln(a.out, "Who comes in needs a token: decamp token add NAME --role operate")
}
