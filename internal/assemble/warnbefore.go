package assemble

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
)

// shortCheckTimeout limits the checks before a migration.
const shortCheckTimeout = 30 * time.Second

// WarnBefore runs the short checks of the doctor before a migration and reports their findings to the
// user. It stops nothing: the migration itself refuses what cannot work.
func (a *Assembler) WarnBefore(ctx context.Context, d *Diagnosis, checks []doctor.Check) {
	ctx, cancel := context.WithTimeout(ctx, shortCheckTimeout)
	defer cancel()
	a.reportFindings(doctor.Examine(ctx, checks, doctor.Options{Short: true, Severe: true}))
}

// DiagnoseOne returns the diagnosis of one VM before its migration.
func DiagnoseOne(w *Parts, m Move, vm *inventory.VM, g Infrastructure) *Diagnosis {
	d := &Diagnosis{Move: m, Parts: w, vms: []inventory.VM{*vm}, quiet: true}
	d.keepUsed(g)
	return d
}

// WarnBeforeVM runs all short checks for one VM.
func (a *Assembler) WarnBeforeVM(ctx context.Context, w *Parts, m Move, vm *inventory.VM) {
	g, err := ReadInfrastructure(ctx, w.Session)
	if err != nil {
		a.Log.Info("checks before the migration failed", "vm", vm.Name, "err", err)
		return
	}
	d := DiagnoseOne(w, m, vm, g)
	a.WarnBefore(ctx, d, d.Groups())
}

// refusedCodes are codes of findings that a migration reports itself as an error.
var refusedCodes = []string{"host-connected", "host-ssh", "local-folder", "local-space", "path-route", "path-ports", "path-landing"}

// severeFindings returns the warnings and failures of found without the codes in others, which are
// reported elsewhere. It changes found.
func severeFindings(found []doctor.Finding, others []string) []doctor.Finding {
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Status < doctor.Warning || slices.Contains(others, f.Code) })
}

// reportFindings logs severe findings and passes them to Found.
func (p *Prompts) reportFindings(found []doctor.Finding) {
	found = severeFindings(found, refusedCodes)
	for _, f := range found {
		p.Log.Info("finding before the migration", "code", f.Code, "on", f.On, "found", f.Found)
	}
	p.Found(found)
}

// plannedCodes are codes of findings that decamp plan check reports itself.
var plannedCodes = append([]string{"vm-warm", "vm-tracking"}, refusedCodes...)

// examinePlan returns the doctor's findings on all migrations of a plan, as notes. Migrations with the
// same use of the source are examined together.
func (p *SourceParts) examinePlan(ctx context.Context, s preflight.PlanInventory) (notes planfile.Findings) {
	var order []string
	alike := map[string][]planfile.Move{} // migrations by their use of the source
	for _, m := range s.Moves {
		o := m.Options
		key := fmt.Sprint(o.Transport, o.Mode, o.PowerOff, o.SourceHash, o.NFC, o.Landing)
		if alike[key] == nil {
			order = append(order, key)
		}
		alike[key] = append(alike[key], m)
	}
	told := map[doctor.Finding]bool{} // findings that were reported by migrations of another group, for example of a host
	for _, key := range order {
		notes = append(notes, p.examineAlike(ctx, s, alike[key], told)...)
	}
	return append(notes, p.examineEngines(ctx, s.Moves)...)
}

// examineEngines returns notes on guests that this machine could not convert. They do not block,
// because a worker may run on another machine. Disks are not read: a plan may have hundreds.
func (p *SourceParts) examineEngines(ctx context.Context, moves []planfile.Move) (notes planfile.Findings) {
	for _, m := range moves {
		o := p.MoveOf(m.Options)
		if !o.ChangesGuest() {
			continue
		}
		err := EngineOf(o).CheckFiles("keyFiles", "applianceKernel")
		if err == nil {
			err = o.CheckEngine(ctx, m.VM, func() []guest.Report { return nil })
		}
		if err != nil {
			notes = append(notes, planfile.NoteFinding("engine", m.Pos, m.VM.Name, joinRemedy(fault.HintOf(err)), "on this machine: %v", err))
		}
	}
	return notes
}

// examineAlike examines migrations with the same use of the source. reported has findings of other
// groups, for example on a host that they share; it is extended.
func (p *SourceParts) examineAlike(ctx context.Context, s preflight.PlanInventory, moves []planfile.Move, told map[doctor.Finding]bool) (notes planfile.Findings) {
	d := &Diagnosis{Move: p.MoveOf(moves[0].Options), Parts: &Parts{URL: p.URL, Session: p.Session}, all: s.VMs, quiet: true}
	of := map[string]planfile.Move{} // migrations by the name of the VM in findings
	for _, m := range moves {
		d.vms = append(d.vms, *m.VM)
		of["VM "+m.VM.Name] = m
	}
	d.keepUsed(Infrastructure{s.Hosts, s.Datastores})
	for _, f := range severeFindings(doctor.Examine(ctx, d.Groups(), doctor.Options{Short: true, Severe: true}), plannedCodes) {
		if told[f] {
			continue
		}
		told[f] = true
		if m, ofVM := of[f.On]; ofVM {
			notes = append(notes, planfile.NoteFinding(f.Code, m.Pos, m.VM.Name, joinRemedy(f.Remedy), "%s", f.Found))
			continue
		}
		notes = append(notes, planfile.NoteFinding(f.Code, moves[0].Pos, "", joinRemedy(f.Remedy), "%s: %s", f.On, f.Found))
	}
	return notes
}

// joinRemedy joins the lines of a remedy into one sentence. Lines are commands, or explanations after a
// #.
func joinRemedy(remedy string) string {
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
