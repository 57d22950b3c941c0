package main

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/inventory"
)

const lsHelp = `
List the VMs of an ESXi host or a vCenter, or show one of them in full.

VM is a name, a reference (vm-42), a UUID or an inventory path. Warnings are shown by
their codes; a code with an exclamation mark blocks a migration. What each one means and
what to do about it stands below the table with --verbose, and in the view of one VM.
`

const lsExamples = `
decamp ls esxi://root@esx1
decamp ls vcenter://administrator@vsphere.local@vc1 --verbose
decamp ls esxi://root@esx1 web01
decamp ls esxi://root@esx1 --password-file pw --json | jq '.vms[].name'
`

func newLs(a *app) *cobra.Command {
	var l assemble.Login
	cmd := &cobra.Command{
		Use:         "ls URL [VM]",
		Short:       "List VMs, or show one",
		Long:        text(lsHelp) + "\n\n" + text(sourceHelp),
		Example:     text(lsExamples),
		Annotations: exits(sourceExits...),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return takes("URL")(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions, // names would have to be asked of the host
		RunE:              a.logged(func(cmd *cobra.Command, args []string) error { return a.ls(cmd.Context(), l, args) }),
	}
	registerLogin(&l, cmd)
	return cmd
}

func (a *app) ls(ctx context.Context, l assemble.Login, args []string) (err error) {
	src, err := a.Dial(ctx, args[0], l)
	if err != nil {
		return err
	}
	defer closing(&err, src.Close)
	if len(args) == 2 {
		return a.lsOne(ctx, src, args[1])
	}
	return a.lsAll(ctx, src)
}

func (a *app) lsOne(ctx context.Context, src source, name string) error {
	vm, err := src.VM(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(vm)
	}
	return writeVM(a.out, vm)
}

// contents is what a source holds, as ls prints it.
type contents struct {
	About      inventory.About       `json:"about"`
	Hosts      []inventory.Host      `json:"hosts"`
	Datastores []inventory.Datastore `json:"datastores"`
	VMs        []inventory.VM        `json:"vms"`
}

func (a *app) lsAll(ctx context.Context, src source) error {
	c := contents{About: src.About()}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { c.Hosts, err = src.Hosts(ctx); return err })
	g.Go(func() (err error) { c.Datastores, err = src.Datastores(ctx); return err })
	g.Go(func() (err error) { c.VMs, err = src.VMs(ctx); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	if a.json {
		return a.print(c)
	}
	writeContents(a.out, src.Addr(), c)
	if a.verbose {
		writeWarnings(a.out, c.VMs)
	}
	return nil
}
