package main

import (
	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble/diskimage"
	"github.com/decamp/decamp/internal/diskfile"
)

// inputFlags are the flags that determine how the files of a disk are read.
type inputFlags struct {
	from      string   // format of the input; empty: by its content
	folders   []string // further folders with parents of a VMDK
	ignoreCID bool     // accept parents that were changed after the snapshot
	backing   bool     // read backing files of qcow2 images
}

// registerFlags registers the flags, which set the fields of o.
func (o *inputFlags) registerFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.from, "from", "", "format of IN: `vmdk, qcow2 or raw` (default by its content; raw by its name)")
	f.StringArrayVar(&o.folders, "folder", nil, "further `DIR` with parents of a VMDK that are named by a datastore path; may be repeated")
	f.BoolVar(&o.ignoreCID, "ignore-cid", false, "read a snapshot chain even if a parent was changed after the snapshot")
	f.BoolVar(&o.backing, "backing", false, "read the backing files that the header of a qcow2 image names")
	_ = cmd.MarkFlagDirname("folder") // fails for unknown flags only
}

// checkFlags refuses values and combinations that are not supported; in is the argument IN.
func (o *inputFlags) checkFlags(cmd *cobra.Command, in string) error {
	switch {
	case o.from != "" && o.from != "vmdk" && o.from != "qcow2" && o.from != "raw":
		return badUsage(cmd, "--from %q: want vmdk, qcow2 or raw", o.from)
	case in == "-" && (o.from != "" || o.folders != nil || o.ignoreCID || o.backing):
		return badUsage(cmd, "the standard input is a streamOptimized VMDK: --from, --folder, --ignore-cid and --backing are not supported")
	}
	return nil
}

// diskOptions returns the options with which the disk at path is opened.
func (o *inputFlags) diskOptions(path string) diskfile.Options {
	return diskfile.Options{
		Kind: diskfile.Kind(o.from), RecordedRaw: diskimage.IsRecordedRaw(path), Folders: o.folders, IgnoreCID: o.ignoreCID, Backing: o.backing,
	}
}
