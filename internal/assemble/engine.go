package assemble

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
)

// EngineOptions say what changes guests for virtio.
type EngineOptions struct {
	name    string   // journal.Engine
	drivers string   // virtio-win
	keys    []string // keys of encrypted volumes: [ID=]PATH
	Kernel  string   // image of the appliance's; "" has one looked for
}

// EngineOf returns what changes the guest of a move.
func EngineOf(m Move) EngineOptions {
	o := EngineOptions{name: string(m.Engine), drivers: string(m.VirtioWin), Kernel: string(m.Kernel)}
	for _, key := range m.KeyFiles {
		o.keys = append(o.keys, string(key))
	}
	return o.resolvePaths(m.base)
}

// engineForPlan returns the engine for the plan, if the guest is changed at all.
func (o EngineOptions) engineForPlan(hardware planfile.VMHardware) journal.Engine {
	if hardware == "compat" || o.name == string(journal.AutoEngine) {
		return ""
	}
	return journal.Engine(o.name)
}

// keyFiles are where the keys are.
func (o EngineOptions) keyFiles() (keys []virtv2v.Key) {
	for _, text := range o.keys {
		keys = append(keys, virtv2v.ParseKey(text))
	}
	return keys
}

// resolvePaths makes paths of a plan relative to its folder.
func (o EngineOptions) resolvePaths(folder string) EngineOptions {
	if folder == "" {
		return o
	}
	under := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
	o.drivers, o.Kernel = under(o.drivers), under(o.Kernel)
	var keys []string
	for _, k := range o.keyFiles() {
		k.File = under(k.File)
		keys = append(keys, k.String())
	}
	o.keys = keys
	return o
}

// Appended changes a guest on overlays, with an appliance for file systems that decamp cannot write.
func (o EngineOptions) Appended(ctx context.Context, disks []convert.Disk, c convert.Options) (convert.Result, error) {
	c.Appliance = appliance.New(appliance.Options{Kernel: o.Kernel})
	return convert.LinuxAppend(ctx, disks, c)
}

// prepareGuest changes on overlays what virt-v2v leaves out.
func (o EngineOptions) prepareGuest(ctx context.Context, disks []convert.Disk, c convert.Options) (convert.Result, error) {
	c.Appliance = appliance.New(appliance.Options{Kernel: o.Kernel})
	return convert.Prepare(ctx, disks, c)
}

// CheckFiles looks at the keys and at the kernel that are named, by the words they were given with: to be
// missed now, not after hours of copying.
func (o EngineOptions) CheckFiles(keyWord, kernelWord string) error {
	if err := virtv2v.CheckKeys(o.keyFiles()); err != nil {
		return fmt.Errorf("%s: %w", keyWord, err)
	}
	if o.Kernel == "" {
		return nil
	}
	if err := appliance.New(appliance.Options{Kernel: o.Kernel}).Check(); err != nil {
		return fmt.Errorf("%s: %w", kernelWord, err)
	}
	return nil
}

// kernelForPlan returns the absolute path of the kernel for the plan, if the guest is changed at all.
func (o EngineOptions) kernelForPlan(hardware planfile.VMHardware) string {
	if hardware == "compat" || o.Kernel == "" {
		return ""
	}
	path, err := filepath.Abs(o.Kernel)
	if err != nil { // this process is nowhere
		return o.Kernel
	}
	return path
}

// virtV2V returns a function that runs virt-v2v; nil if it is neither requested nor installed, or no guest
// will be changed.
func (w *Parts) virtV2V(ctx context.Context) func(context.Context, virtv2v.Job) (virtv2v.Report, error) {
	if h := w.To[0].Plan.Hardware; h == "" || h == journal.Compat {
		return nil
	}
	e := virtv2v.New(virtv2v.Options{Drivers: w.Conversion.drivers})
	if w.Conversion.name != string(journal.VirtV2V) {
		if _, err := e.Find(ctx); err != nil {
			return nil
		}
	}
	return e.Convert
}

// CheckEngine is that of a move, of a VM whose disks are looked into if it is off.
func (w *Parts) CheckEngine(ctx context.Context, m Move, vm *inventory.VM) error {
	return m.CheckEngine(ctx, vm, func() []guest.Report { return w.inspectIfOff(ctx, vm) })
}

// CheckEngine returns an error for missing requirements that would otherwise appear hours later:
// virt-v2v itself, drivers for Windows, the key of a volume. If look finds no system, the guest type
// configured in VMware counts.
func (m Move) CheckEngine(ctx context.Context, vm *inventory.VM, look func() []guest.Report) error {
	engine := EngineOf(m)
	if !m.ChangesGuest() || engine.name == string(journal.LinuxAppend) {
		return nil
	}
	e := virtv2v.New(virtv2v.Options{Drivers: engine.drivers})
	windows := strings.HasPrefix(strings.ToLower(vm.GuestID), "win")
	tool, err := e.Find(ctx)
	switch chosen := engine.name == string(journal.VirtV2V); {
	case err != nil && (chosen || windows && m.Hardware == "virtio"):
		return fault.New(fault.KindOf(err), "VM %s cannot be converted by virt-v2v: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	case err != nil, !chosen && !windows, !chosen && m.Hardware == "auto" && e.Drivers() == "":
		return nil
	}
	reports := look()
	drivers := migrate.WindowsOf(reports)
	if drivers == nil && windows {
		drivers = cmp.Or(virtv2v.WindowsOf(vm.GuestID), &virtv2v.Windows{})
	}
	if drivers != nil {
		if err := e.CheckDrivers(tool, drivers); err != nil {
			return fault.New(fault.KindOf(err), "VM %s is a Windows: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
		}
	}
	if err := migrate.TakenByV2V(reports, engine.keyFiles()); err != nil && m.Hardware == "virtio" {
		return fault.New(fault.KindOf(err), "VM %s: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	}
	return nil
}

// inspectIfOff looks into the disks of a VM that is off. What it does not find out is found out later.
func (w *Parts) inspectIfOff(ctx context.Context, vm *inventory.VM) []guest.Report {
	if vm.Power != inventory.PoweredOff {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shortCheckTimeout)
	defer cancel()
	reports, err := w.Look(ctx, vm)
	if err != nil {
		return nil
	}
	return reports
}
