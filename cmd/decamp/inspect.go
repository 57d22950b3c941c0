package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/diskfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
)

const inspectHelp = `
Show what a disk consists of: its layers from the newest down to the base, the files each
has, how much of it is data, and what is odd about it.

IN is named as for decamp convert. Only headers and tables are read, never data.
DATA is what a layer has in its files, ZERO what it says reads as zeros, and ABSENT what
it leaves to the layer below it. What the disk reads as takes holes of flat files into
account, and counts holes of less than 64 KiB as data.

With --guest the disk's partitions, file systems and operating system are looked into, too,
read-only: what a Linux has to boot with elsewhere, and what would have to be changed.
`

const inspectExamples = `
decamp inspect web01-000002.vmdk
decamp inspect web01.vmdk --json | jq '.layers[].usage'
decamp inspect web01.vmdk --guest
`

// inspectOptions are the flags of decamp inspect.
type inspectOptions struct {
	inputOptions
	guest bool
}

func newInspect(a *app) *cobra.Command {
	var o inspectOptions
	cmd := &cobra.Command{
		Use:     "inspect IN",
		Short:   "Show the layers, files and allocation of a disk",
		Long:    text(inspectHelp),
		Example: text(inspectExamples),
		Args:    takes("IN"),
		Annotations: exits(
			exit{fault.NotFound, "a file of the disk is not there; a parent may need --folder"},
			exit{fault.Denied, "a file cannot be read"},
			exit{fault.Conflict, "a parent was written to after the snapshot"},
			exit{fault.Unsupported, "the disk is nothing that decamp can read; the remedy says what to do"},
			exit{fault.Corrupt, "the disk is damaged"}),
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" {
				return badUsage(cmd, "the standard input cannot be inspected: store it in a file")
			}
			if err := o.check(cmd, args[0]); err != nil {
				return err
			}
			return a.inspect(cmd.Context(), o, args[0])
		}),
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.guest, "guest", false, "look into the guest, too: its file systems, its system, and how it boots elsewhere")
	return cmd
}

// inspected is what decamp inspect found.
type inspected struct {
	File     string           `json:"file"`
	Kind     diskfile.Kind    `json:"kind"`
	Size     int64            `json:"size"`
	Layers   []diskfile.Layer `json:"layers"` // the newest first
	Usage    diskfile.Usage   `json:"usage"`  // of the disk as a whole
	Warnings []string         `json:"warnings"`
	Guest    *guest.Report    `json:"guest,omitempty"` // with --guest
}

func (a *app) inspect(ctx context.Context, o inspectOptions, path string) (err error) {
	f, err := diskfile.Open(ctx, path, o.disk(path))
	if err != nil {
		return err
	}
	defer closing(&err, f.Close)
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
	if o.guest {
		report, err := guest.Detect(ctx, f)
		if err != nil {
			return err
		}
		found.Guest = &report
	}
	return a.writeInspected(found)
}
