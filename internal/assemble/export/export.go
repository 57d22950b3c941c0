// Package export serves the disks of a VM at its source over NBD, read-only.
//
//	Open   logs in, chooses disks and transport; a running VM gets a snapshot
//	Run    serves until its context ends, or runs a command and serves until the command ends
//	Close  closes the disks, removes the snapshot and logs out
//
// Serve calls them in this order. The path of a byte:
//
//	nbd.Server -> servedDisk -> readahead.File -> https.Source or nfc.Source -> ESXi
//
// A snapshot is on record from before its creation until its removal. If the process is killed, decamp
// clean removes the snapshot, and so does the next decamp that logs in to the server. While the process
// lives, others leave the snapshot alone: see cleanup.Hold.
package export

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/cleanup"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/nbd"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/suggest"
	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/internal/units"
)

// Options describe which disks are served, and how.
type Options struct {
	URL   string              // source
	VM    string              // name, reference, UUID or inventory path of the VM
	Login assemble.Login      // login to the source
	SSH   assemble.SSHOptions // login to the host by SSH, if its licence makes the API read-only

	Disks       []int32          // keys of the disks; empty: all
	Snapshot    string           // name or reference of an existing snapshot to serve; empty: the current state
	Transport   string           // transport of the disks: Auto, HTTPS or NFC
	Reads       planfile.Options // number of connections, and options of NFC
	ReadTimeout time.Duration    // time limit of a read that the host does not answer

	Address Address  // where clients connect
	Command []string // program to run while the disks are served; empty: none. A single word is for the shell

	Show   func(object any, text string) error // prints a result: the object in JSON, or the text
	Screen *terminal.Screen                    // terminal for progress; nil: none
}

// Serve serves disks of a VM until ctx ends, or until Options.Command has ended.
func Serve(ctx context.Context, a *assemble.Assembler, o Options) (err error) {
	e, err := Open(ctx, a, o)
	if err != nil {
		return err
	}
	defer func() {
		if failed := e.Close(ctx); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	text := e.Text()
	if len(o.Command) > 0 {
		text = "" // the program has the standard output
	} else if o.Screen != nil {
		defer e.showProgress(o.Screen)()
	}
	if err := o.Show(map[string]Facts{"serving": e.Facts()}, text); err != nil {
		return err
	}
	err = e.Run(ctx)
	end := e.totals()
	errors.As(err, &end.ExitStatus)
	a.Notify("%s", end)
	if failed := o.Show(map[string]End{"ended": end}, ""); failed != nil {
		err = errors.Join(err, failed)
	}
	return err
}

// Export is a VM whose disks are served.
type Export struct {
	options   Options
	assembler *assemble.Assembler
	source    *assemble.SourceParts  // session, logins by SSH and records; owned
	place     *place                 // address where clients connect; owned
	vm        *inventory.VM          // VM when it was opened
	snapshot  esx.SnapshotEntry      // existing snapshot that is served; empty: none
	held      *assemble.HeldSnapshot // snapshot that is removed at the end; nil: none
	reader    *reader                // transport; nil if it is not open
	disks     []*servedDisk          // open disks, in the order of the VM
	server    *nbd.Server            // NBD server of the disks
	began     time.Time              // time when the disks were open
}

// Open logs in to the source, and opens the disks. If the VM runs and no snapshot is named, it creates one.
// The caller closes the result.
func Open(ctx context.Context, a *assemble.Assembler, o Options) (_ *Export, err error) {
	e := &Export{options: o, assembler: a, source: &assemble.SourceParts{Assembler: a, Parts: &assemble.Parts{}, Login: o.Login, SSH: o.SSH}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close(ctx))
		}
	}()
	if err = o.check(); err != nil {
		return nil, err
	}
	if e.place, err = openPlace(o.Address); err != nil {
		return nil, err
	}
	if err = a.OpenURL(ctx, e.source, o.URL); err != nil {
		return nil, err
	}
	if err = e.revertLeftovers(ctx); err != nil {
		return nil, err
	}
	if e.vm, err = e.source.Session.VM(ctx, o.VM); err != nil {
		return nil, err
	}
	disks, err := chooseDisks(e.vm, o.Disks)
	if err != nil {
		return nil, err
	}
	snapshot, err := e.chooseSnapshot(ctx, disks)
	if err != nil {
		return nil, err
	}
	if err = e.openDisks(ctx, disks, snapshot); err != nil {
		return nil, err
	}
	e.server = &nbd.Server{TLS: e.place.tls, Log: a.Log}
	for _, d := range e.disks {
		e.server.Exports = append(e.server.Exports, nbd.Export{Name: d.name(), Description: d.description(), Disk: d, ReadOnly: true})
	}
	for _, w := range e.listWarnings() {
		a.Warn("%s", w)
	}
	e.began = time.Now()
	return e, nil
}

// check refuses options that no VM can have.
func (o *Options) check() error {
	if o.ReadTimeout < time.Second {
		return fault.New(fault.Invalid, "--read-timeout %v: want 1s or more", o.ReadTimeout)
	}
	return checkTransport(o.Transport)
}

// revertLeftovers reverts changes on the host of processes that were killed. If another process has the
// state directory, they stay: such processes revert them, too.
func (e *Export) revertLeftovers(ctx context.Context) error {
	p := e.source
	list, _ := p.Leftovers.ListLeft() // RevertLeftovers reports records that cannot be read
	if !slices.ContainsFunc(list, func(r cleanup.Record) bool { return r.Server == assemble.ServerOf(p.URL) }) {
		return nil
	}
	unlock, err := e.assembler.LockState(ctx)
	if fault.Is(err, fault.Conflict) {
		e.assembler.Log.Info("changes of earlier runs stay on the host: another process uses the state directory")
		return nil
	}
	if err != nil {
		return err
	}
	e.assembler.RevertLeftovers(ctx, p.Shells)
	return unlock()
}

// chooseSnapshot returns the snapshot to read: the named one, a new one for a running VM, and none for a
// VM that is off.
func (e *Export) chooseSnapshot(ctx context.Context, disks []*inventory.Disk) (inventory.MoRef, error) {
	if e.options.Snapshot != "" {
		return e.findSnapshot(ctx)
	}
	switch e.vm.Power {
	case inventory.PoweredOff:
		return "", nil
	case inventory.Suspended:
		return "", fault.New(fault.Conflict, "VM %s is suspended: its disks are locked, and incomplete without its memory", e.vm.Name).
			WithHint("resume the VM, or power it off; or serve a snapshot with --snapshot NAME")
	}
	if err := checkIncluded(e.vm, disks); err != nil {
		return "", err
	}
	name := fmt.Sprintf("decamp nbd %s %s", e.vm.Name, strings.ToLower(rand.Text()[:8]))
	var err error
	if e.held, err = e.source.Shells.HoldSnapshot(ctx, e.vm.Ref, name, "taken by decamp nbd, which serves the disks, and removed by it at its end"); err != nil {
		return "", snapshotError(e.vm.Name, err)
	}
	e.assembler.Notify("VM %s runs: decamp created the snapshot %q, and removes it at the end.", e.vm.Name, name)
	return e.held.Ref, nil
}

// snapshotError adds the remedies of decamp nbd to an error of creating a snapshot.
func snapshotError(vm string, err error) error {
	remedy := cmp.Or(fault.HintOf(err), "power the VM off, or create a snapshot in vSphere and serve it with --snapshot NAME")
	if errors.Is(err, warm.ErrReadOnly) {
		remedy = "permit decamp to log in to the host by SSH (decamp nbd --help), power the VM off, or create a snapshot in the host's web client and serve it with --snapshot NAME"
	}
	return fault.New(fault.KindOf(err), "VM %s runs, and its disks are locked without a snapshot: %w", vm, err).WithHint("%s", remedy)
}

// findSnapshot returns the existing snapshot that the user named. It is never removed.
func (e *Export) findSnapshot(ctx context.Context) (inventory.MoRef, error) {
	want := e.options.Snapshot
	all, err := e.source.Session.Snapshots(ctx, e.vm.Ref)
	if err != nil {
		return "", err
	}
	var found []esx.SnapshotEntry
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if s.Name == want || string(s.Ref) == want {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		e.snapshot = found[0]
		return found[0].Ref, nil
	case len(found) > 1:
		return "", fault.New(fault.Conflict, "VM %s has %d snapshots with the name %q: %s", e.vm.Name, len(found), want, listSnapshots(found)).
			WithHint("select one by its reference: --snapshot %s", found[len(found)-1].Ref)
	case len(all) == 0:
		return "", fault.New(fault.NotFound, "VM %s has no snapshots", e.vm.Name).WithHint("omit --snapshot: decamp serves the current state of the VM")
	}
	missing := fault.New(fault.NotFound, "VM %s has no snapshot with the name %q", e.vm.Name, want)
	if near := suggest.Words(want, names); len(near) > 0 {
		return "", missing.WithHint("near: %s; all: %s", strings.Join(near, ", "), listSnapshots(all))
	}
	return "", missing.WithHint("its snapshots: %s", listSnapshots(all))
}

// listSnapshots returns snapshots for messages.
func listSnapshots(list []esx.SnapshotEntry) string {
	var texts []string
	for _, s := range list {
		texts = append(texts, fmt.Sprintf("%s (%s, %s)", s.Path, s.Ref, s.Created.UTC().Format(time.DateTime)))
	}
	return strings.Join(texts, ", ")
}

// Close closes the disks, removes the snapshot of a running VM, and logs out. It also works after ctx has
// ended. No client may be served any more.
func (e *Export) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	errs := []error{e.place.close(), e.closeDisks()}
	if e.held != nil {
		e.assembler.Notify("Removing the snapshot of VM %s.", e.vm.Name)
		errs = append(errs, e.held.Remove(ctx))
	}
	return errors.Join(append(errs, e.source.Close())...)
}

// End is the result of an export.
type End struct {
	Served  int64         `json:"served"`  // bytes of disks that were sent to clients
	Read    int64         `json:"read"`    // bytes that were read from the host
	Elapsed time.Duration `json:"elapsed"` // time since the disks were open, in nanoseconds
	// exit status of the command; 0 also without a command
	ExitStatus ExitStatus `json:"exitStatus"`
}

// totals returns the bytes so far.
func (e *Export) totals() End {
	end := End{Elapsed: time.Since(e.began)}
	for _, d := range e.disks {
		end.Served += d.served.Load()
		end.Read += d.read()
	}
	return end
}

// String returns the result for users.
func (r End) String() string {
	return fmt.Sprintf("Sent %s to clients, and read %s from the host, in %s.", units.Binary(r.Served), units.Binary(r.Read), units.Duration(r.Elapsed))
}
