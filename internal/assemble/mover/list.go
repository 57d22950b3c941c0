package mover

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/planfile"
)

// A lister converts descriptions of VMs to rows of the fleet database.
type lister struct {
	source *planSource              // source of the plan
	plan   string                   // name of the plan
	report func([]fleetdb.VM) error // receives the rows
	choice *planfile.Resolver       // selects VMs; set by listSelected or listNamed
	seq    int64                    // number of the last row
}

// List reports the VMs that the plan selects, in several calls. Rows for named VMs that the source does
// not have come last. Full descriptions, which take a vCenter one to two milliseconds for each VM, are
// requested only if the selection requires them.
func (s *planSource) List(ctx context.Context, tell func([]fleetdb.VM) error) error {
	facts, enough := s.file.Select.Facts()
	l := &lister{source: s, plan: s.name, report: tell}
	var err error
	if len(s.file.VMs) == 0 && enough {
		err = l.listSelected(ctx, facts)
	} else {
		err = l.listNamed(ctx, facts, enough)
	}
	if err != nil {
		return err
	}
	return tell(l.missingRows())
}

// listSelected reports selected VMs as they arrive. It serves plans without names, where no name can be
// ambiguous.
func (l *lister) listSelected(ctx context.Context, facts []inventory.Fact) error {
	l.choice = l.source.file.Resolver(esx.NewIndex(nil))
	return l.source.Session.ListVMs(ctx, facts, l.reportSelected)
}

// listNamed first looks up names among all VMs, so that an ambiguous name is reported before any
// transfer. Then it requests further properties, of named VMs first.
func (l *lister) listNamed(ctx context.Context, facts []inventory.Fact, enough bool) error {
	s := l.source
	names, err := s.Session.Names(ctx, s.file.Identifiers())
	if err != nil {
		return err
	}
	l.choice = s.file.Resolver(names)
	vms := refsOf(l.choice.Named())
	if !s.file.Select.IsZero() { // any VM may match
		vms = namedFirst(vms, names.Refs())
	}
	if !enough {
		return s.Session.EachVM(ctx, vms, l.reportSelected)
	}
	return s.Session.ListSelected(ctx, vms, facts, l.reportSelected)
}

// reportSelected reports those of the VMs that the plan selects.
func (l *lister) reportSelected(vms []inventory.VM) error {
	all := make([]*inventory.VM, len(vms))
	for i := range vms {
		all[i] = &vms[i]
	}
	return l.report(l.rowsOf(all))
}

// namedFirst returns all references, those in named first.
func namedFirst(named, all []inventory.MoRef) []inventory.MoRef {
	vms, in := slices.Clone(named), make(map[inventory.MoRef]bool, len(named))
	for _, ref := range named {
		in[ref] = true
	}
	for _, ref := range all {
		if !in[ref] {
			vms = append(vms, ref)
		}
	}
	return vms
}

// refsOf returns the reference of each VM.
func refsOf(vms []*inventory.VM) []inventory.MoRef {
	all := make([]inventory.MoRef, len(vms))
	for i, vm := range vms {
		all[i] = vm.Ref
	}
	return all
}

// rowsOf returns a row for each VM that the plan selects.
func (l *lister) rowsOf(vms []*inventory.VM) []fleetdb.VM {
	var rows []fleetdb.VM
	for _, vm := range vms {
		if m, moved := l.choice.Move(vm); moved {
			rows = append(rows, l.rowOf(m))
		}
	}
	return rows
}

// rowOf returns the row of a migration, with a run for each destination.
func (l *lister) rowOf(m planfile.Move) fleetdb.VM {
	vm := m.VM
	l.seq++
	row := fleetdb.VM{
		Key: fleetdb.Key{Plan: l.plan, VM: string(vm.Ref)}, Name: vm.Name, Seq: l.seq, State: fleetdb.Queued, Requested: fleetdb.First,
		Source: fleet.Endpoint(l.source.URL), Host: hostOf(l.source.URL, vm), Datastore: datastoreOf(l.source.URL, vm),
		Warm: m.Options.Mode == planfile.WarmMode, Priority: m.Options.Priority, Disks: len(vm.Disks), Line: m.Pos.Line, Column: m.Pos.Column,
	}
	row.Bytes = vm.Used // allocated bytes: the scheduler orders transfers by them
	for _, to := range m.Options.To {
		p := journal.New(l.source.URL, vm, string(to), string(m.Options.Format), string(m.Options.Transport), time.Now())
		row.To, row.Runs = append(row.To, string(to)), append(row.Runs, string(p.ID))
	}
	return row
}

// hostOf returns the name of a VM's host, unique among all sources. An ESXi source has its name in the
// plan: a fresh installation calls itself localhost.localdomain, and hosts with one name would share
// limits and pauses.
func hostOf(source *url.URL, vm *inventory.VM) string {
	if source.Scheme == "vcenter" {
		return vm.HostName
	}
	return strings.TrimSuffix(fleet.Endpoint(source), ":443")
}

// datastoreOf returns the name of a VM's datastore, unique among all sources. For an ESXi source the
// name contains the host, because nearly every ESXi has a datastore1.
func datastoreOf(source *url.URL, vm *inventory.VM) string {
	if source.Scheme == "vcenter" {
		return vm.VMX.Datastore
	}
	return vm.VMX.Datastore + "@" + hostOf(source, vm)
}

// missingRows returns failed rows for VMs that the plan names and the source does not have. Their keys
// contain the line of the entry.
func (l *lister) missingRows() []fleetdb.VM {
	var rows []fleetdb.VM
	for _, f := range l.choice.End() {
		l.seq++
		name := f.VM
		if entry := l.source.entries[planfile.Pos{Line: f.Line, Column: f.Column}]; entry != nil && name == "" {
			name = string(entry.VM)
		}
		key := fmt.Sprintf("line-%d", f.Line)
		if slices.ContainsFunc(rows, func(r fleetdb.VM) bool { return r.Line == f.Line }) {
			key += fmt.Sprintf("-%d", f.Column) // a line of several entries
		}
		rows = append(rows, fleetdb.VM{
			Key: fleetdb.Key{Plan: l.plan, VM: key}, Name: name, Seq: l.seq, Line: f.Line, Column: f.Column,
			State: fleetdb.Failed, Failure: &fleetdb.Failure{Kind: f.Kind, Text: f.Text, Hint: f.Remedy},
		})
	}
	return rows
}
