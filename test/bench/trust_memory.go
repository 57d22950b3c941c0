package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/lab"
)

// What docs/architecture.md states of the whole process, as ps shows it: MiB.
const (
	migrateMemory     = 160 // MiB for one disk at a time over https
	migrateDiskMemory = 48  // MiB for each further disk that is copied at the same time
	mountMemory       = 256 // MiB for decamp mount

	memoryRuns = 3       // number of runs; the largest value counts, because garbage collection differs between runs
	memoryDisk = 1 << 30 // size of each disk in bytes
)

// memoryFigures measures the resident memory of the real program in a separate process,
// with all of its steps.
func memoryFigures(ctx context.Context, b *bench) error {
	return errors.Join(migrateResident(ctx, b, 1), migrateResident(ctx, b, 4), mountResident(ctx, b))
}

// migrateResident measures a migration of one VM with this number of disks.
func migrateResident(ctx context.Context, b *bench, disks int) error {
	e, err := startLabOf(ctx, fullDisks(disks), lab.Limits{ConnRate: connCap, DatastoreRate: datastoreCap})
	if err != nil {
		return err
	}
	defer e.stop()
	var peak int64
	for range memoryRuns {
		one, err := migrateOnce(ctx, b, e)
		if err != nil {
			return err
		}
		peak = max(peak, one)
	}
	// The first disk is included in the base.
	must := float64(migrateMemory + (disks-1)*migrateDiskMemory)
	b.atMost(must, Row{Figure: fmt.Sprintf("decamp migrate, disks copied at once: %d, at 300 MB/s: peak resident memory of the process", disks),
		Value: float64(peak) / (1 << 20), Unit: "MiB", Note: fmt.Sprintf("VmHWM, the largest of %d runs, mapped program included", memoryRuns)})
	return nil
}

// fullDisks returns n thick disks without zeros.
func fullDisks(n int) (disks []lab.Disk) {
	for i := range n {
		disks = append(disks, lab.Disk{Capacity: memoryDisk, Fill: 100, Thick: true, Seed: uint64(i + 1)})
	}
	return disks
}

// migrateOnce migrates the VM of an emulated host, and returns the largest resident
// memory in bytes.
func migrateOnce(ctx context.Context, b *bench, e *emulated) (peak int64, err error) {
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return 0, err
	}
	defer d.remove()
	password := filepath.Join(d.dir, "password")
	if err := os.WriteFile(password, []byte(e.facts.Password+"\n"), 0o600); err != nil {
		return 0, err
	}
	p, err := d.startProgram(ctx, nil, "migrate", "esxi://"+e.facts.User+"@"+e.facts.Addr, benchVM, "--to", "dir:"+d.vms,
		"--password-file", password, "--fingerprint", e.facts.Fingerprint, "--json")
	if err != nil {
		return 0, err
	}
	return p.peakUntilEnd(ctx)
}

// peakUntilEnd waits until the program ends, and returns the largest resident memory
// that it observed shortly before, in bytes.
func (p *program) peakUntilEnd(ctx context.Context) (peak int64, err error) {
	ended := make(chan error, 1)
	go func() { ended <- p.wait() }()
	for {
		// VmHWM never decreases, and is 0 after the process has ended.
		_, now := p.memoryBytes()
		peak = max(peak, now)
		select {
		case err := <-ended:
			if err == nil && peak == 0 {
				err = errors.New("the memory of decamp was not seen")
			}
			return peak, err
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			p.kill()
			return peak, errors.Join(ctx.Err(), <-ended)
		}
	}
}

// mountResident measures decamp mount while two files are read.
func mountResident(ctx context.Context, b *bench) error {
	e, err := startLabOf(ctx, fullDisks(2), lab.Limits{ConnRate: connCap, DatastoreRate: datastoreCap})
	if err != nil {
		return err
	}
	defer e.stop()
	var peak int64
	for range memoryRuns {
		one, err := mountOnce(ctx, b, e)
		if err != nil {
			return err
		}
		peak = max(peak, one)
	}
	b.atMost(mountMemory, Row{Figure: "decamp mount, 2 files read at 300 MB/s: peak resident memory of the process",
		Value: float64(peak) / (1 << 20), Unit: "MiB", Note: fmt.Sprintf("VmHWM, the largest of %d runs, mapped program included", memoryRuns)})
	return nil
}

// mountOnce reads two disks concurrently through decamp mount, and returns the largest
// resident memory in bytes.
func mountOnce(ctx context.Context, b *bench, e *emulated) (peak int64, err error) {
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return 0, err
	}
	defer d.remove()
	password, dir := filepath.Join(d.dir, "password"), filepath.Join(d.dir, "mnt")
	if err := errors.Join(os.WriteFile(password, []byte(e.facts.Password+"\n"), 0o600), os.Mkdir(dir, 0o755)); err != nil {
		return 0, err
	}
	p, err := d.startProgram(ctx, nil, "mount", "esxi://"+e.facts.User+"@"+e.facts.Addr, dir,
		"--password-file", password, "--fingerprint", e.facts.Fingerprint, "--json")
	if err != nil {
		return 0, err
	}
	defer p.stop()
	var files []string
	err = p.waitUntil(ctx, 30*time.Second, "the files are there", func() (bool, error) {
		files, _ = filepath.Glob(filepath.Join(dir, "*", "*", benchVM, "*-flat.vmdk")) // the pattern is right
		return len(files) == 2, nil
	})
	if err != nil {
		return 0, err
	}
	readers := make(chan error, len(files))
	for _, file := range files {
		cmd := exec.CommandContext(ctx, "dd", "if="+file, "of=/dev/null", "bs=4M", "status=none")
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("read %s: %w: %s", file, err, strings.TrimSpace(string(out)))
			}
			readers <- err
		}()
	}
	err = errors.Join(<-readers, <-readers)
	_, peak = p.memoryBytes()
	return peak, err
}
