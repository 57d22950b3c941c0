package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/inventory"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/transport/nfc"
)

// nfcOptions are the flags of --transport nfc.
type nfcOptions struct {
	buffer  sizeFlag
	buffers int
	handles int
	network string
	plain   bool
}

func (o *nfcOptions) register(f *pflag.FlagSet) {
	f.IntVar(&o.handles, "nfc-handles", defaultHandles, "with nfc: `N` sessions on each disk, 16 at the most")
	f.Var(&o.buffer, "nfc-buffer", "with nfc: size of a session's buffers on the host, a multiple of 64K up to 2M (default 1M)")
	f.IntVar(&o.buffers, "nfc-buffers", defaultBuffers, "with nfc: `N` such buffers; all of a session are 16M at the most")
	f.StringVar(&o.network, "network", "", "with nfc: the host's `VMK` to read from: vmk1, its address, subnet or port group (default the one tagged for backups)")
	f.BoolVar(&o.plain, "nfc-plain", false, "with nfc: read in clear, where anybody on the way may read along")
}

// mostSession is what a session's buffers may take together: hosts refuse more.
const mostSession = 16 << 20

// check refuses flags that do not fit.
func (o *nfcOptions) check(cmd *cobra.Command, transport string) error {
	const largest = wire.LargestUnits * wire.BufferUnit
	n := int64(o.buffer)
	switch {
	case transport != "nfc" && o.given(cmd) != "":
		return badUsage(cmd, "--%s is for --transport nfc, not %s", o.given(cmd), transport)
	case o.handles < 1 || o.handles > nfc.MostHandles:
		return badUsage(cmd, "--nfc-handles %d: want 1 to %d", o.handles, nfc.MostHandles)
	case cmd.Flags().Changed("nfc-buffer") && (n < wire.BufferUnit || n > largest || n%wire.BufferUnit != 0):
		return badUsage(cmd, "--nfc-buffer %v: want a multiple of 64K up to 2M", &o.buffer)
	case o.buffers < 1 || o.want().Memory() > mostSession:
		return badUsage(cmd, "--nfc-buffers %d: want 1 or more, and all of a session 16M at the most", o.buffers)
	}
	return nil
}

// given returns the name of a flag of nfc that was given, or "".
func (o *nfcOptions) given(cmd *cobra.Command) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, "nfc-") || f.Name == "network" {
			name = f.Name
		}
	})
	return name
}

// want is what is asked for where one of the two flags is given.
func (o *nfcOptions) want() wire.Buffers {
	size := int64(o.buffer)
	if size == 0 {
		size = 1 << 20
	}
	return wire.Buffers{Size: size, Count: o.buffers}
}

// newNFC returns the transport that reads from port 902.
func (a *app) newNFC(w *works, o migrateOptions) *nfc.Transport {
	opts := nfc.Options{Handles: o.nfc.handles, Network: o.nfc.network, Chosen: a.tellNFC, Log: a.log}
	if o.nfc.buffer > 0 || o.nfc.buffers != defaultBuffers {
		opts.Buffers = o.nfc.want()
	}
	if o.nfc.plain {
		opts.Wire = wire.Plain
	}
	return nfc.New(w.session, opts)
}

// tellNFC says which address of a host its disks are read from, and why that one.
func (a *app) tellNFC(host inventory.MoRef, where string) {
	a.log.Info("disks are read over NFC", "host", host, "addr", where)
	if !a.json {
		fmt.Fprintf(a.err, "Disks are read over NFC from %s.\n", plain(where))
	}
}

// defaultHandles is of --nfc-handles.
const defaultHandles = 4

// defaultBuffers is of --nfc-buffers. Without another the transport chooses both, by
// whether the VM runs.
const defaultBuffers = 4
