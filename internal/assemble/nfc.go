package assemble

import (
	"cmp"

	"github.com/decamp/decamp/internal/inventory"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/transport/nfc"
)

// BuffersOf returns the buffers that a session asks for where a plan or a flag sets one of the two values.
func BuffersOf(o planfile.NFC) wire.Buffers {
	return wire.Buffers{Size: cmp.Or(int64(o.Buffer), 1<<20), Count: o.Buffers}
}

// newNFC returns the transport that reads from port 902.
func (a *Assembler) newNFC(w *Parts, o planfile.NFC) *nfc.Transport {
	opts := nfc.Options{Handles: o.Handles, Network: string(o.Network), Chosen: a.tellNFC, Log: a.Log}
	if o.Buffer > 0 || o.Buffers != planfile.DefaultOptions().NFC.Buffers { // else the transport chooses both, by whether the VM runs
		opts.Buffers = BuffersOf(o)
	}
	if o.Plain {
		opts.Wire = wire.Plain
	}
	return nfc.New(w.Session, opts)
}

// tellNFC says which address of a host its disks are read from, and why that one.
func (a *Assembler) tellNFC(host inventory.MoRef, where string) {
	a.Log.Info("disks are read over NFC", "host", host, "addr", where)
	a.Tell("Disks are read over NFC from %s.", where)
}
