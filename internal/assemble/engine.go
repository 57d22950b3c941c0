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

// EngineOptions select the tool that changes guests for virtio, and its inputs.
type EngineOptions struct {
	name    string   // a journal.Engine; auto selects one for each guest
	drivers string   // path of the virtio-win drivers; empty: $VIRTIO_WIN
	keys    []string // files with keys of encrypted volumes, each [ID=]PATH
	Kernel  string   // kernel image of the appliance; empty: the newest one that is installed
}

// EngineOf returns the engine options of a migration, with absolute paths if the plan has a folder.
func EngineOf(m Move) EngineOptions {
	o := EngineOptions{name: string(m.Engine), drivers: string(m.VirtioWin), Kernel: string(m.Kernel)}
	for _, key := range m.KeyFiles {
		o.keys = append(o.keys, string(key))
	}
	return o.resolvePaths(m.base)
}

// engineForPlan returns the engine that the intent of a run records; empty if the guest stays unchanged
// or the engine is selected later.
func (o EngineOptions) engineForPlan(hardware planfile.VMHardware) journal.Engine {
	if hardware == "compat" || o.name == string(journal.AutoEngine) {
		return ""
	}
	return journal.Engine(o.name)
}

// keyFiles parses the keys.
func (o EngineOptions) keyFiles() (keys []virtv2v.Key) {
	for _, text := range o.keys {
		keys = append(keys, virtv2v.ParseKey(text))
	}
	return keys
}

// resolvePaths makes relative paths start at the folder of a plan. An empty folder leaves them
// unchanged: they start at the working directory.
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

// Appended changes a Linux guest on overlays of its disks. An appliance mounts file systems that decamp
// cannot write itself.
func (o EngineOptions) Appended(ctx context.Context, disks []convert.Disk, c convert.Options) (convert.Result, error) {
	c.Appliance = appliance.New(appliance.Options{Kernel: o.Kernel})
	return convert.LinuxAppend(ctx, disks, c)
}

// prepareGuest makes the changes on overlays that virt-v2v does not make.
func (o EngineOptions) prepareGuest(ctx context.Context, disks []convert.Disk, c convert.Options) (convert.Result, error) {
	c.Appliance = appliance.New(appliance.Options{Kernel: o.Kernel})
	return convert.Prepare(ctx, disks, c)
}

// CheckFiles checks that the named keys and the named kernel can be used, so that a mistake appears
// before hours of copying. keyWord and kernelWord name the flag or key for messages.
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

// kernelForPlan returns the absolute path of the kernel that the intent of a run records; empty if the
// guest stays unchanged or no kernel is named.
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

// virtV2V returns the function that runs virt-v2v. It is nil if no guest will be changed, or if
// virt-v2v is neither requested nor installed. Plan must have been called.
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

// CheckEngine checks the requirements of a conversion: see Move.CheckEngine. It reads the disks of vm
// if the VM is off.
func (w *Parts) CheckEngine(ctx context.Context, m Move, vm *inventory.VM) error {
	return m.CheckEngine(ctx, vm, func() []guest.Report { return w.inspectIfOff(ctx, vm) })
}

// CheckEngine returns an error if a requirement of the conversion is missing that would otherwise fail
// hours later: virt-v2v itself, drivers for Windows, or the key of a volume. look returns what is known
// of the guest; without a result the guest type configured in VMware decides.
func (m Move) CheckEngine(ctx context.Context, vm *inventory.VM, look func() []guest.Report) error {
	engine := EngineOf(m)
	if !m.ChangesGuest() || engine.name == string(journal.LinuxAppend) {
		return nil
	}
	e := virtv2v.New(virtv2v.Options{Drivers: engine.drivers})
	windows := strings.HasPrefix(strings.ToLower(vm.GuestID), "win")
	// without virt-v2v the engine auto leaves the guest unchanged, unless virtio is required
	tool, err := e.Find(ctx)
	switch chosen := engine.name == string(journal.VirtV2V); {
	case err != nil && (chosen || windows && m.Hardware == "virtio"):
		return fault.New(fault.KindOf(err), "VM %s cannot be converted by virt-v2v: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	case err != nil, !chosen && !windows, !chosen && m.Hardware == "auto" && e.Drivers() == "":
		return nil
	}
	reports := look()
	// a disk that cannot be inspected has no report: the configured guest type replaces it
	drivers := migrate.WindowsOf(reports)
	if drivers == nil && windows {
		drivers = cmp.Or(virtv2v.WindowsOf(vm.GuestID), &virtv2v.Windows{})
	}
	if drivers != nil {
		if err := e.CheckDrivers(tool, drivers); err != nil {
			return fault.New(fault.KindOf(err), "VM %s runs Windows: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
		}
	}
	if err := migrate.TakenByV2V(reports, engine.keyFiles()); err != nil && m.Hardware == "virtio" {
		return fault.New(fault.KindOf(err), "VM %s: %w", vm.Name, err).WithHint("%s", fault.HintOf(err))
	}
	return nil
}

// inspectIfOff inspects the disks of a VM that is off, within shortCheckTimeout. It returns nil on
// errors: the migration inspects the disks again.
func (w *Parts) inspectIfOff(ctx context.Context, vm *inventory.VM) []guest.Report {
	if vm.Power != inventory.PoweredOff {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, shortCheckTimeout)
	defer cancel()
	reports, err := w.InspectGuest(ctx, vm)
	if err != nil {
		return nil
	}
	return reports
}
