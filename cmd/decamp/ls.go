package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
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

// lsCommand is decamp ls.
type lsCommand struct {
	out       *output
	assembler *assemble.Assembler
	login     assemble.Login
}

func newLs(p *program) *cobra.Command {
	lc := &lsCommand{out: p.out, assembler: p.assembler}
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
		RunE:              p.logged(func(cmd *cobra.Command, args []string) error { return lc.run(cmd.Context(), args) }),
	}
	registerLogin(&lc.login, cmd)
	return cmd
}

func (lc *lsCommand) run(ctx context.Context, args []string) (err error) {
	src, err := lc.assembler.Dial(ctx, args[0], lc.login)
	if err != nil {
		return err
	}
	defer closing(&err, src.Close)
	if len(args) == 2 {
		return lc.lsOne(ctx, src, args[1])
	}
	return lc.lsAll(ctx, src)
}

func (lc *lsCommand) lsOne(ctx context.Context, src source, name string) error {
	vm, err := src.VM(ctx, name)
	if err != nil {
		return err
	}
	if lc.out.json {
		return lc.out.print(vm)
	}
	return writeVM(lc.out, vm)
}

// contents is what a source holds, as ls prints it.
type contents struct {
	About      inventory.About       `json:"about"`
	Hosts      []inventory.Host      `json:"hosts"`
	Datastores []inventory.Datastore `json:"datastores"`
	VMs        []inventory.VM        `json:"vms"`
}

func (lc *lsCommand) lsAll(ctx context.Context, src source) error {
	c := contents{About: src.About()}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { c.Hosts, err = src.Hosts(ctx); return err })
	g.Go(func() (err error) { c.Datastores, err = src.Datastores(ctx); return err })
	g.Go(func() (err error) { c.VMs, err = src.VMs(ctx); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	if lc.out.json {
		return lc.out.print(c)
	}
	writeContents(lc.out, src.Addr(), c)
	if lc.out.verbose {
		writeWarnings(lc.out, c.VMs)
	}
	return nil
}

// writeContents prints what a source is, in a few lines, and its VMs.
func writeContents(w io.Writer, addr string, c contents) {
	fmt.Fprintf(w, "%s %s build %s at %s\n", plain(c.About.Name), plain(c.About.Version), plain(c.About.Build), addr)
	for _, h := range c.Hosts {
		fmt.Fprintf(w, "Host %s: ESXi %s build %s%s\n", plain(h.Name), plain(h.Version), plain(h.Build), hostState(h))
	}
	for _, d := range c.Datastores {
		fmt.Fprintf(w, "Datastore %s: %s, %s free of %s\n", plain(d.Name), plain(d.Type), size(d.Free), size(d.Capacity))
	}
	fmt.Fprintln(w)
	if len(c.VMs) == 0 {
		fmt.Fprintln(w, "No VMs. A user sees only those it has privileges on.")
		return
	}
	t := newTable("VM", "POWER", "FIRMWARE", "CPUS", "MEMORY", "DISKS", "USED", "PROVISIONED", "SNAPSHOTS", "WARNINGS")
	t.alignRight(3, 4, 5, 6, 7, 8)
	for _, vm := range c.VMs {
		t.add(vmRow(vm)...)
	}
	t.write(w)
}

func hostState(h inventory.Host) string {
	switch {
	case !h.Connected:
		return ", not connected"
	case h.MaintenanceMode:
		return ", in maintenance mode"
	}
	return ""
}

func vmRow(vm inventory.VM) []string {
	return []string{
		plain(vm.Name), string(vm.Power), string(vm.Firmware), strconv.Itoa(vm.CPUs), size(vm.MemoryMiB << 20),
		strconv.Itoa(len(vm.Disks)), size(vm.Used), size(vm.Provisioned), strconv.Itoa(vm.Snapshots), codes(vm.Warnings),
	}
}

// writeWarnings prints each VM's warnings in full.
func writeWarnings(w io.Writer, vms []inventory.VM) {
	for _, vm := range vms {
		if len(vm.Warnings) > 0 {
			fmt.Fprintf(w, "\n%s\n", plain(vm.Name))
			writeWarningList(w, vm.Warnings)
		}
	}
}

// writeVM prints one VM in full.
func writeVM(w io.Writer, vm *inventory.VM) error {
	t := newTable("VM", plain(vm.Name))
	t.add("Reference", string(vm.Ref))
	t.add("UUID", vm.UUID)
	t.add("Host", plain(vm.HostName))
	t.add("Files", plain(vm.VMX.String()))
	t.add("Power", string(vm.Power))
	t.add("Guest", plain(cmp.Or(vm.GuestName, vm.GuestID)))
	t.add("Hardware", fmt.Sprintf("version %d, %s, %d CPUs, %s memory", vm.HardwareVersion, firmware(vm), vm.CPUs, size(vm.MemoryMiB<<20)))
	t.add("Snapshots", strconv.Itoa(vm.Snapshots))
	addInscriptions(t, vm)
	t.write(w)
	writeDisks(w, vm)
	writeNICs(w, vm.NICs)
	if len(vm.Warnings) > 0 {
		fmt.Fprintln(w, "\nWarnings (! blocks a migration)")
		writeWarningList(w, vm.Warnings)
	}
	return nil
}

// addInscriptions are what people wrote on the VM: notes, tags, and custom attributes as "name: value".
func addInscriptions(t *table, vm *inventory.VM) {
	if vm.Annotation != "" {
		t.add("Notes", plain(fault.OneLine(vm.Annotation)))
	}
	if len(vm.Tags) > 0 {
		t.add("Tags", plain(fault.OneLine(strings.Join(targets.TagNames(vm), ", "))))
	}
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		t.add("Attribute", plain(fault.OneLine(name+": "+vm.Attributes[name])))
	}
}

func firmware(vm *inventory.VM) string {
	s := string(vm.Firmware)
	if vm.SecureBoot {
		s += " with secure boot"
	}
	if vm.VTPM {
		s += " and vTPM"
	}
	return s
}

func writeDisks(w io.Writer, vm *inventory.VM) {
	if len(vm.Disks) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable("DISK", "KEY", "CONTROLLER", "SIZE", "USED", "KIND", "FILE")
	t.alignRight(1, 3, 4)
	for _, d := range vm.Disks {
		t.add(plain(d.Label), strconv.Itoa(int(d.Key)), seat(vm, d), size(d.Capacity), usedSize(d.Used), kind(d), plain(d.Path.String()))
	}
	t.write(w)
}

// seat is a disk's place as VMware writes it, with the controller's model: "pvscsi 0:1".
func seat(vm *inventory.VM, d inventory.Disk) string {
	for _, c := range vm.Controllers {
		if c.Key == d.Controller {
			return fmt.Sprintf("%s %d:%d", cmp.Or(string(c.Bus), c.Unexpected), c.Number, d.Unit)
		}
	}
	return "-"
}

func usedSize(n int64) string {
	if n < 0 {
		return "-"
	}
	return size(n)
}

func kind(d inventory.Disk) string {
	if d.Backing == inventory.Flat && d.Thin {
		return "thin"
	}
	return string(d.Backing)
}

func writeNICs(w io.Writer, nics []inventory.NIC) {
	if len(nics) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable("NIC", "MODEL", "MAC", "NETWORK", "AT POWER ON")
	for _, n := range nics {
		connected := "connected"
		if !n.StartConnected {
			connected = "not connected"
		}
		t.add(plain(n.Label), n.Model, n.MAC, plain(n.Network), connected)
	}
	t.write(w)
}

// source is the ESXi or vCenter that a command is logged in to.
type source interface {
	About() inventory.About
	Addr() string
	Hosts(ctx context.Context) ([]inventory.Host, error)
	Datastores(ctx context.Context) ([]inventory.Datastore, error)
	VMs(ctx context.Context) ([]inventory.VM, error)
	VM(ctx context.Context, nameOrRef string) (*inventory.VM, error)
	Close() error
}
