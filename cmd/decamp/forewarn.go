package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	hostcheck "github.com/decamp/decamp/internal/doctor/host"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
)

// beforehand bounds what the short form takes from a move.
const beforehand = 30 * time.Second

// forewarn tells what the doctor knows of a VM's move that is about to begin, in the short form. It
// keeps nothing from moving: what the move cannot do it refuses by itself.
func (a *app) forewarn(ctx context.Context, d *diagnosis, checks []doctor.Check) {
	ctx, cancel := context.WithTimeout(ctx, beforehand)
	defer cancel()
	a.tellBeforehand(doctor.Examine(ctx, checks, doctor.Options{Short: true}))
}

// ground is what VMs of a source stand on.
type ground struct {
	hosts  []inventory.Host
	stores []inventory.Datastore
}

func readGround(ctx context.Context, s source) (g ground, err error) {
	if g.hosts, err = s.Hosts(ctx); err != nil {
		return g, err
	}
	g.stores, err = s.Datastores(ctx)
	return g, err
}

// diagnoseOne is the diagnosis of one VM that is about to be moved.
func diagnoseOne(w *works, o migrateOptions, vm *inventory.VM, g ground) *diagnosis {
	d := &diagnosis{move: o, works: w, vms: []inventory.VM{*vm}, beside: true}
	d.narrow(g)
	return d
}

// forewarn tells it of decamp migrate's VM.
func (w *works) forewarn(ctx context.Context, a *app, o migrateOptions, vm *inventory.VM) {
	g, err := readGround(ctx, w.session)
	if err != nil {
		a.log.Info("not looked at beforehand", "vm", vm.Name, "err", err)
		return
	}
	d := diagnoseOne(w, o, vm, g)
	a.forewarn(ctx, d, d.groups())
}

// forewarn tells it of a host, once, before the first VM of a plan is moved from there. VMs are looked
// at by decamp plan check: there may be thousands.
func (s *planSource) forewarn(ctx context.Context, w *works, o planfile.Options, vm *inventory.VM) {
	if !s.isFirst(vm.Host) {
		return
	}
	g, err := s.stand(ctx)
	if err != nil {
		s.a.log.Info("not looked at beforehand", "host", vm.HostName, "err", err)
		return
	}
	d := diagnoseOne(w, s.planWorks.optionsOf(o), vm, g)
	s.a.forewarn(ctx, d, hostcheck.Checks(d.hostOptions()))
}

// isFirst reports whether no VM was moved from a host yet.
func (s *planSource) isFirst(host inventory.MoRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.begun[host]
	s.begun[host] = true
	return first
}

// stand returns what the VMs stand on, read once: not once for each of a thousand hosts.
func (s *planSource) stand(ctx context.Context) (ground, error) {
	s.mu.Lock()
	g := s.ground
	s.mu.Unlock()
	if g != nil {
		return *g, nil
	}
	read, err := readGround(ctx, s.session)
	if err != nil {
		return read, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ground = &read
	return read, nil
}

// refused are codes of what a move refuses by itself, with what it is about to do.
var refused = []string{"host-connected", "host-ssh"}

// checked are codes of what decamp plan check has findings of its own for.
var checked = append([]string{"vm-warm", "vm-tracking"}, refused...)

// pressing are findings that are worth stopping for, without those that others tell.
func pressing(found []doctor.Finding, others []string) []doctor.Finding {
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Status < doctor.Warning || slices.Contains(others, f.Code) })
}

func (a *app) tellBeforehand(found []doctor.Finding) {
	found = pressing(found, refused)
	for _, f := range found {
		a.log.Info("found beforehand", "code", f.Code, "on", f.On, "seen", f.Seen)
	}
	if !a.json {
		writeFindings(a.err, found, doctor.Warning)
	}
}

// foresee tells of a plan what forewarn would tell of each of its moves, as notes.
func (p *planWorks) foresee(ctx context.Context, s preflight.Sight) (notes planfile.Findings) {
	var order []string
	alike := map[string][]planfile.Move{} // by what they take of the source
	for _, m := range s.Moves {
		o := m.Options
		key := fmt.Sprint(o.Transport, o.Mode, o.PowerOff, o.SourceHash, o.NFC, o.Landing)
		if alike[key] == nil {
			order = append(order, key)
		}
		alike[key] = append(alike[key], m)
	}
	told := map[doctor.Finding]bool{} // of a host, say, by moves of another kind
	for _, key := range order {
		notes = append(notes, p.foreseen(ctx, s, alike[key], told)...)
	}
	return notes
}

// foreseen looks at moves that are alike.
func (p *planWorks) foreseen(ctx context.Context, s preflight.Sight, moves []planfile.Move, told map[doctor.Finding]bool) (notes planfile.Findings) {
	d := &diagnosis{move: p.optionsOf(moves[0].Options), works: &works{url: p.url, session: p.session}, all: s.VMs, beside: true}
	of := map[string]planfile.Move{} // by what findings call the VM
	for _, m := range moves {
		d.vms = append(d.vms, *m.VM)
		of["VM "+m.VM.Name] = m
	}
	d.narrow(ground{s.Hosts, s.Datastores})
	for _, f := range pressing(doctor.Examine(ctx, d.groups(), doctor.Options{Short: true}), checked) {
		if told[f] {
			continue
		}
		told[f] = true
		if m, ofVM := of[f.On]; ofVM {
			notes = append(notes, planfile.Noted(f.Code, m.Pos, m.VM.Name, inOneLine(f.Remedy), "%s", f.Seen))
			continue
		}
		notes = append(notes, planfile.Noted(f.Code, moves[0].Pos, "", inOneLine(f.Remedy), "%s: %s", f.On, f.Seen))
	}
	return notes
}

// inOneLine makes a sentence of a remedy whose lines are commands, and words after a #.
func inOneLine(remedy string) string {
	var b strings.Builder
	for line := range strings.Lines(remedy) {
		line = strings.TrimSuffix(line, "\n")
		words, said := strings.CutPrefix(line, "# ")
		if text := b.String(); text != "" && !strings.HasSuffix(text, " ") {
			b.WriteString("; ")
		}
		b.WriteString(words)
		if said {
			b.WriteString(" ")
		}
	}
	return strings.TrimSpace(b.String())
}
