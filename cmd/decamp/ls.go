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
	"github.com/decamp/decamp/internal/assemble/complete"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/units"
)

const lsHelp = `
List the VMs of an ESXi host or a vCenter, or show one of them in detail.

VM is a name, a reference (vm-42), a UUID or an inventory path. The list shows warnings by
their codes; a code with an exclamation mark blocks a migration. --verbose prints their texts
and remedies below the table, and the view of one VM always does.
`

const lsExamples = `
decamp ls esxi://root@esx1
decamp ls vcenter://administrator@vsphere.local@vc1 --verbose
decamp ls esxi://root@esx1 web01
decamp ls esxi://root@esx1 --password-file pw --json | jq '.vms[].name'
`

// lsCommand is decamp ls.
type lsCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	login     assemble.Login      // login to the source
	words     *complete.Cache     // words for completions
}

// newLs returns the command decamp ls.
func newLs(p *program) *cobra.Command {
	lc := &lsCommand{out: p.out, assembler: p.assembler, words: p.words()}
	cmd := &cobra.Command{
		Use:         "ls URL [VM]",
		Short:       "List VMs, or show one",
		Long:        trimHelp(lsHelp) + "\n\n" + trimHelp(sourceHelp),
		Example:     trimHelp(lsExamples),
		Annotations: exitCodes(sourceExits...),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return exactArgs("URL")(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions, // names would have to be asked of the host
		RunE:              p.withLog(func(cmd *cobra.Command, args []string) error { return lc.runLs(cmd.Context(), args) }),
	}
	registerLogin(&lc.login, cmd)
	return cmd
}

// runLs logs in, and prints all VMs or the named one.
func (lc *lsCommand) runLs(ctx context.Context, args []string) (err error) {
	src, err := lc.assembler.Dial(ctx, args[0], lc.login)
	if err != nil {
		return err
	}
	defer joinClose(&err, src.Close)
	if len(args) == 2 {
		return lc.lsOne(ctx, src, args[1])
	}
	return lc.lsAll(ctx, src, args[0])
}

// lsOne prints one VM.
func (lc *lsCommand) lsOne(ctx context.Context, src source, name string) error {
	vm, err := src.VM(ctx, name)
	if err != nil {
		return err
	}
	if lc.out.json {
		return lc.out.printJSON(vm)
	}
	return writeVM(lc.out, vm)
}

// contents is the inventory of a source, and the JSON output.
type contents struct {
	About      inventory.About       `json:"about"`      // product and version
	Hosts      []inventory.Host      `json:"hosts"`      // all hosts
	Datastores []inventory.Datastore `json:"datastores"` // all datastores
	VMs        []inventory.VM        `json:"vms"`        // all VMs that the user may see
}

// lsAll prints the inventory of url, which it reads in parallel.
func (lc *lsCommand) lsAll(ctx context.Context, src source, url string) error {
	c := contents{About: src.About()}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { c.Hosts, err = src.Hosts(ctx); return err })
	g.Go(func() (err error) { c.Datastores, err = src.Datastores(ctx); return err })
	g.Go(func() (err error) { c.VMs, err = src.VMs(ctx); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	lc.words.StoreSource(url, c.VMs, c.Datastores)
	if lc.out.json {
		return lc.out.printJSON(c)
	}
	writeContents(lc.out, src.Addr(), c)
	if lc.out.verbose {
		writeWarnings(lc.out, c.VMs)
	}
	return nil
}

// writeContents prints the source in a few lines, and a table of its VMs.
func writeContents(w io.Writer, addr string, c contents) {
	fmt.Fprintf(w, "%s %s build %s at %s\n", fault.Printable(c.About.Name), fault.Printable(c.About.Version), fault.Printable(c.About.Build), addr)
	for _, h := range c.Hosts {
		fmt.Fprintf(w, "Host %s: ESXi %s build %s%s\n", fault.Printable(h.Name), fault.Printable(h.Version), fault.Printable(h.Build), hostState(h))
	}
	for _, d := range c.Datastores {
		fmt.Fprintf(w, "Datastore %s: %s, %s free of %s\n", fault.Printable(d.Name), fault.Printable(d.Type), units.Binary(d.Free), units.Binary(d.Capacity))
	}
	fmt.Fprintln(w)
	if len(c.VMs) == 0 {
		fmt.Fprintln(w, "No VMs. A user sees only VMs for which it has privileges.")
		return
	}
	t := newTable("VM", "POWER", "FIRMWARE", "CPUS", "MEMORY", "DISKS", "USED", "PROVISIONED", "SNAPSHOTS", "WARNINGS")
	t.alignRight(3, 4, 5, 6, 7, 8)
	for _, vm := range c.VMs {
		t.addRow(vmRow(vm)...)
	}
	t.writeTo(w)
}

// hostState returns the state of a host with a comma before it; empty if it is connected and in use.
func hostState(h inventory.Host) string {
	switch {
	case !h.Connected:
		return ", not connected"
	case h.MaintenanceMode:
		return ", in maintenance mode"
	}
	return ""
}

// vmRow returns the cells of a VM.
func vmRow(vm inventory.VM) []string {
	return []string{
		fault.Printable(vm.Name), string(vm.Power), string(vm.Firmware), strconv.Itoa(vm.CPUs), units.Binary(vm.MemoryMiB << 20),
		strconv.Itoa(len(vm.Disks)), units.Binary(vm.Used), units.Binary(vm.Provisioned), strconv.Itoa(vm.Snapshots), warningCodes(vm.Warnings),
	}
}

// writeWarnings prints the warnings of each VM in full.
func writeWarnings(w io.Writer, vms []inventory.VM) {
	for _, vm := range vms {
		if len(vm.Warnings) > 0 {
			fmt.Fprintf(w, "\n%s\n", fault.Printable(vm.Name))
			writeWarningList(w, vm.Warnings)
		}
	}
}

// writeVM prints one VM in full.
func writeVM(w io.Writer, vm *inventory.VM) error {
	t := newTable("VM", fault.Printable(vm.Name))
	t.addRow("Reference", string(vm.Ref))
	t.addRow("UUID", vm.UUID)
	t.addRow("Host", fault.Printable(vm.HostName))
	t.addRow("Files", fault.Printable(vm.VMX.String()))
	t.addRow("Power", string(vm.Power))
	t.addRow("Guest", fault.Printable(cmp.Or(vm.GuestName, vm.GuestID)))
	t.addRow("Hardware", fmt.Sprintf("version %d, %s, %d CPUs, %s memory", vm.HardwareVersion, firmwareText(vm), vm.CPUs, units.Binary(vm.MemoryMiB<<20)))
	t.addRow("Snapshots", strconv.Itoa(vm.Snapshots))
	addNotesAndTags(t, vm)
	t.writeTo(w)
	writeDisks(w, vm)
	writeNICs(w, vm.NICs)
	if len(vm.Warnings) > 0 {
		fmt.Fprintln(w, "\nWarnings (! blocks a migration)")
		writeWarningList(w, vm.Warnings)
	}
	return nil
}

// addNotesAndTags adds notes, tags and custom attributes of the VM.
func addNotesAndTags(t *table, vm *inventory.VM) {
	if vm.Annotation != "" {
		t.addRow("Notes", fault.Printable(fault.OneLine(vm.Annotation)))
	}
	if len(vm.Tags) > 0 {
		t.addRow("Tags", fault.Printable(fault.OneLine(strings.Join(targets.TagNames(vm), ", "))))
	}
	for _, name := range slices.Sorted(maps.Keys(vm.Attributes)) {
		t.addRow("Attribute", fault.Printable(fault.OneLine(name+": "+vm.Attributes[name])))
	}
}

// firmwareText returns the firmware with secure boot and vTPM.
func firmwareText(vm *inventory.VM) string {
	s := string(vm.Firmware)
	if vm.SecureBoot {
		s += " with secure boot"
	}
	if vm.VTPM {
		s += " and vTPM"
	}
	return s
}

// writeDisks prints a table of the disks.
func writeDisks(w io.Writer, vm *inventory.VM) {
	if len(vm.Disks) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable("DISK", "KEY", "CONTROLLER", "SIZE", "USED", "KIND", "FILE")
	t.alignRight(1, 3, 4)
	for _, d := range vm.Disks {
		t.addRow(fault.Printable(d.Label), strconv.Itoa(int(d.Key)), controllerSlot(vm, d), units.Binary(d.Capacity), usedSize(d.Used), diskKind(d), fault.Printable(d.Path.String()))
	}
	t.writeTo(w)
}

// controllerSlot returns the slot of a disk as VMware writes it, with the model of the controller:
// "pvscsi 0:1".
func controllerSlot(vm *inventory.VM, d inventory.Disk) string {
	for _, c := range vm.Controllers {
		if c.Key == d.Controller {
			return fmt.Sprintf("%s %d:%d", cmp.Or(string(c.Bus), c.Unexpected), c.Number, d.Unit)
		}
	}
	return "-"
}

// usedSize formats bytes; negative ones are unknown, and a dash.
func usedSize(n int64) string {
	if n < 0 {
		return "-"
	}
	return units.Binary(n)
}

// diskKind returns the type of a disk: thin for thin flat disks, otherwise its backing.
func diskKind(d inventory.Disk) string {
	if d.Backing == inventory.Flat && d.Thin {
		return "thin"
	}
	return string(d.Backing)
}

// writeNICs prints a table of the network cards.
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
		t.addRow(fault.Printable(n.Label), n.Model, n.MAC, fault.Printable(n.Network), connected)
	}
	t.writeTo(w)
}

// source is a session with an ESXi host or a vCenter; esx.Session implements it.
type source interface {
	About() inventory.About                                        // About returns product and version.
	Addr() string                                                  // Addr returns host:port.
	Hosts(ctx context.Context) ([]inventory.Host, error)           // Hosts returns all hosts.
	Datastores(ctx context.Context) ([]inventory.Datastore, error) // Datastores returns all datastores.
	VMs(ctx context.Context) ([]inventory.VM, error)               // VMs returns all VMs in full.
	// VM returns the VM with a name, reference, UUID or path.
	VM(ctx context.Context, nameOrRef string) (*inventory.VM, error)
	Close() error // Close logs out.
}
