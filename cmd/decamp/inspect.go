package main

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/diskfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/linux"
	"github.com/decamp/decamp/internal/guest/tree"
	"github.com/decamp/decamp/internal/units"
)

const inspectHelp = `
Show the structure of a disk: its layers from the newest to the base, the files of each layer,
the amount of data, and anything unusual.

IN is a disk as for decamp convert. Only headers and tables are read, no data. DATA is the
data in the files of a layer. ZERO is what the layer marks as zeros. ABSENT is what the layer
leaves to the layer below. The totals consider holes of flat files, and count holes of less
than 64 KiB as data.

--guest also inspects the partitions, file systems and operating system of the disk,
read-only: what Linux requires to boot on other hardware, and what would have to be changed.
`

const inspectExamples = `
decamp inspect web01-000002.vmdk
decamp inspect web01.vmdk --json | jq '.layers[].usage'
decamp inspect web01.vmdk --guest
`

// inspectCommand is decamp inspect.
type inspectCommand struct {
	inputFlags
	out   *output // output and messages
	guest bool    // also inspect the guest
}

// newInspect returns the command decamp inspect.
func newInspect(p *program) *cobra.Command {
	i := &inspectCommand{out: p.out}
	cmd := &cobra.Command{
		Use:     "inspect IN",
		Short:   "Show the layers, files and allocation of a disk",
		Long:    trimHelp(inspectHelp),
		Example: trimHelp(inspectExamples),
		Args:    exactArgs("IN"),
		Annotations: exitCodes(
			exit{fault.NotFound, "a file of the disk does not exist; a parent may require --folder"},
			exit{fault.Denied, "a file cannot be read"},
			exit{fault.Conflict, "a parent was changed after the snapshot"},
			exit{fault.Unsupported, "decamp cannot read the disk; the error has a remedy"},
			exit{fault.Corrupt, "the disk is damaged"}),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" {
				return badUsage(cmd, "the standard input cannot be inspected: save it to a file")
			}
			if err := i.checkFlags(cmd, args[0]); err != nil {
				return err
			}
			return i.runInspect(cmd.Context(), args[0])
		}),
	}
	i.registerFlags(cmd)
	cmd.Flags().BoolVar(&i.guest, "guest", false, "also inspect the guest: its file systems, its operating system, and its boot requirements")
	return cmd
}

// inspected is the result of decamp inspect, and its JSON output.
type inspected struct {
	File     string           `json:"file"`            // path of the disk
	Kind     diskfile.Kind    `json:"kind"`            // format of the disk
	Size     int64            `json:"size"`            // size of the disk in bytes
	Layers   []diskfile.Layer `json:"layers"`          // the newest first
	Usage    diskfile.Usage   `json:"usage"`           // usage of the whole disk
	Warnings []string         `json:"warnings"`        // warnings about the disk; not nil
	Guest    *guest.Report    `json:"guest,omitempty"` // guest of the disk; only with --guest
}

// runInspect inspects the disk at path and prints the result.
func (i *inspectCommand) runInspect(ctx context.Context, path string) (err error) {
	f, err := diskfile.Open(ctx, path, i.diskOptions(path))
	if err != nil {
		return err
	}
	defer joinClose(&err, f.Close)
	found := inspected{File: f.Path, Kind: f.Kind, Size: f.Size()}
	if found.Layers, err = f.Layers(ctx); err != nil {
		return err
	}
	if found.Usage, err = f.Usage(ctx); err != nil {
		return err
	}
	if len(found.Layers) == 1 && found.Layers[0].Usage == nil {
		found.Layers[0].Usage = &found.Usage
	}
	found.Warnings = append([]string{}, f.Warnings()...)
	if i.guest {
		report, err := guest.Detect(ctx, f)
		if err != nil {
			return err
		}
		found.Guest = &report
	}
	return i.writeInspected(found)
}

// writeInspected prints the disk, its layers, their files, and the warnings.
func (i *inspectCommand) writeInspected(d inspected) error {
	if i.out.json {
		return i.out.printJSON(d)
	}
	fmt.Fprintf(i.out, "%s: %s, %s (%d bytes)\n", fault.Printable(filepath.Base(d.File)), d.Kind, units.Binary(d.Size), d.Size)
	fmt.Fprintf(i.out, "Contains %s of data and %s of zeros (runs: %d).\n\n", units.Binary(d.Usage.Data), units.Binary(d.Usage.Zero), d.Usage.Runs)
	i.writeLayers(d.Layers)
	i.writeExtents(d.Layers)
	if len(d.Warnings) > 0 {
		fmt.Fprintln(i.out, "\nWarnings")
		for _, w := range d.Warnings {
			fmt.Fprintf(i.out, "  %s\n", fault.Printable(w))
		}
	}
	if d.Guest != nil {
		i.writeGuest(*d.Guest)
	}
	return nil
}

// writeLayers prints a table of the layers.
func (i *inspectCommand) writeLayers(layers []diskfile.Layer) {
	t := newTable("LAYER", "TYPE", "FORMAT", "SIZE", "GRAIN", "CID", "PARENT", "DATA", "ZERO", "ABSENT", "RUNS")
	t.alignRight(3, 4, 7, 8, 9, 10)
	for _, l := range layers {
		row := []string{
			fault.Printable(l.Name), cmp.Or(fault.Printable(l.CreateType), "-"), l.Format, units.Binary(l.Size),
			sizeOrNone(l.Grain), cmp.Or(l.CID, "-"), cmp.Or(l.ParentCID, "-"),
		}
		t.addRow(append(row, usageCells(l.Usage)...)...)
	}
	t.writeTo(i.out)
}

// usageCells returns the cells of a layer's allocation; dashes if it is unknown.
func usageCells(u *diskfile.Usage) []string {
	if u == nil {
		return []string{"-", "-", "-", "-"}
	}
	return []string{units.Binary(u.Data), units.Binary(u.Zero), units.Binary(u.Absent), fmt.Sprint(u.Runs)}
}

// sizeOrNone formats bytes; 0 is a dash.
func sizeOrNone(n int64) string {
	if n == 0 {
		return "-"
	}
	return units.Binary(n)
}

// writeExtents prints a table of the files, the newest layer first.
func (i *inspectCommand) writeExtents(layers []diskfile.Layer) {
	t := newTable("FILE", "FORMAT", "FROM", "LENGTH")
	t.alignRight(2, 3)
	rows := 0
	for _, l := range layers {
		for _, e := range l.Extents {
			t.addRow(cmp.Or(fault.Printable(e.File), "(none)"), e.Format, units.Binary(e.Off), units.Binary(e.Len))
			rows++
		}
	}
	if rows > 0 {
		fmt.Fprintln(i.out)
		t.writeTo(i.out)
	}
}

// writeGuest prints the guest: the verdict, file systems, kernels, network cards and notes.
func (i *inspectCommand) writeGuest(r guest.Report) {
	fmt.Fprintf(i.out, "\nGuest: %s\n", cmp.Or(fault.Printable(r.OS.Name), fault.Printable(r.OS.ID), "no operating system found"))
	if r.Verdict != "" {
		fmt.Fprintf(i.out, "  %s\n", fault.Printable(r.Verdict))
	}
	i.writeFileSystems(r)
	if r.Linux != nil {
		i.writeKernels(r.Linux.Kernels)
		i.writeNICs(r.Linux.NICs)
	}
	if len(r.Warnings) > 0 {
		fmt.Fprintln(i.out, "\nNotes")
		for _, w := range r.Warnings {
			fmt.Fprintf(i.out, "  %s: %s\n", w.Code, fault.Printable(w.Text))
		}
	}
}

// writeFileSystems prints a table of partitions and logical volumes.
func (i *inspectCommand) writeFileSystems(r guest.Report) {
	t := newTable("VOLUME", "FILE SYSTEM", "LABEL", "SIZE", "FREE")
	t.alignRight(3, 4)
	rows := 0
	add := func(place string, kind guest.FileSystem, label string, length int64, u *tree.Usage) {
		free := "-"
		if u != nil {
			free = units.Binary(u.Free)
		}
		t.addRow(fault.Printable(place), cmp.Or(string(kind), "-"), cmp.Or(fault.Printable(label), "-"), units.Binary(length), free)
		rows++
	}
	for _, p := range r.Partitions {
		add(fmt.Sprintf("partition %d", p.Number), p.FileSystem, p.Label, p.Len, p.Usage)
	}
	for _, v := range r.Volumes {
		add(v.Group+"/"+v.Name, v.FileSystem, v.Label, v.Len, v.Usage)
	}
	if rows > 0 {
		fmt.Fprintln(i.out)
		t.writeTo(i.out)
	}
}

// writeKernels prints a table of kernels with the drivers in their initramfs.
func (i *inspectCommand) writeKernels(kernels []linux.Kernel) {
	if len(kernels) == 0 {
		return
	}
	t := newTable("KERNEL", "INITRAMFS", "BY", "DRIVERS AT BOOT")
	for _, k := range kernels {
		by := strings.TrimSpace(k.Maker + " " + k.Compression)
		t.addRow(fault.Printable(k.Image), cmp.Or(fault.Printable(k.Initramfs), "-"), cmp.Or(fault.Printable(by), "-"), cmp.Or(strings.Join(k.Drivers, " "), "-"))
	}
	fmt.Fprintln(i.out)
	t.writeTo(i.out)
}

// writeNICs prints a table of configured network cards.
func (i *inspectCommand) writeNICs(nics []linux.NIC) {
	if len(nics) == 0 {
		return
	}
	t := newTable("NIC", "MAC", "KNOWN BY", "ADDRESSES", "FILE")
	for _, n := range nics {
		addresses := n.Addresses
		if n.DHCP {
			addresses = append([]string{"DHCP"}, addresses...)
		}
		t.addRow(cmp.Or(fault.Printable(n.Name), "-"), cmp.Or(fault.Printable(n.MAC), "-"), string(n.By), fault.Printable(strings.Join(addresses, " ")), fault.Printable(n.File))
	}
	fmt.Fprintln(i.out)
	t.writeTo(i.out)
}
