package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/guest"
)

// conversionFigures migrates a guest without virtio drivers to virtio hardware, with a
// trial boot, using the real program. It measures the detection, the conversion, and
// the time from the command until the VM has booted and is published. Without a usable
// KVM the guest is emulated.
func conversionFigures(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "convert")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := guest.Build(ctx, "."); err != nil {
		return err
	}
	l, err := lab.Start(ctx, lab.Config{VMs: []lab.VM{{
		Name: benchVM, MemoryMB: 256, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.File(".", guest.NoVirtio), Controller: "pvscsi"}},
	}}})
	if err != nil {
		return err
	}
	defer l.Close()
	m := &warmRun{lab: l, dir: dir, decamp: filepath.Join(dir, "decamp")}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", m.decamp, "./cmd/decamp").CombinedOutput(); err != nil {
		return fmt.Errorf("build decamp: %w: %s", err, lastLine(string(out)))
	}
	took, whole, err := m.runConversion(ctx)
	if err != nil {
		return err
	}
	b.atMost(1, Row{Figure: "guest: detect", Value: took["detect"].Seconds(), Unit: "s", Note: "the tiny guest, 64 MiB, ext4"})
	b.atMost(2, Row{Figure: "guest: linux-append, and its overlay durable", Value: took["convert"].Seconds(), Unit: "s", Note: "the same"})
	b.atMost(60, Row{Figure: "guest: from the emulated ESXi to booted on virtio and published", Value: whole.Seconds(), Unit: "s",
		Note: fmt.Sprintf("verify with its trial boot %.1f s, commit %.2f s", took["verify"].Seconds(), took["commit"].Seconds())})
	return nil
}

// runConversion runs the migration. It returns the time of each step and of all.
func (m *warmRun) runConversion(ctx context.Context) (took map[string]time.Duration, whole time.Duration, err error) {
	vms := filepath.Join(m.dir, "vms")
	if err := errors.Join(os.Mkdir(vms, 0o755), os.WriteFile(filepath.Join(m.dir, "password"), []byte(m.lab.Password()+"\n"), 0o600)); err != nil {
		return nil, 0, err
	}
	began := time.Now()
	out, err := m.command(ctx, "migrate", "esxi://"+m.lab.User()+"@"+m.lab.Addr(), benchVM, "--to", "dir:"+vms,
		"--hardware", "virtio", "--trial", "--expect", "DECAMP-MARKER boot=ok", "--json", "--fingerprint", m.lab.Fingerprint()).Output()
	whole = time.Since(began)
	if err != nil {
		return nil, 0, fmt.Errorf("decamp migrate: %w", err)
	}
	// The events of the run contain the times at which steps began and ended.
	took, since := map[string]time.Duration{}, map[string]time.Time{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var o struct{ Event journal.Event }
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return nil, 0, err
		}
		switch e := o.Event; e.Kind {
		case journal.StepStarted:
			since[e.Step] = e.Time
		case journal.StepDone:
			took[e.Step] = e.Time.Sub(since[e.Step])
		}
	}
	return took, whole, lines.Err()
}
