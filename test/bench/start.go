package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab"
)

// Bounds of short commands.
const (
	maxVersionMS = 40  // limit of decamp version in ms
	maxListMS    = 400 // limit of decamp ls on one emulated host in ms
	startRuns    = 20  // processes of each measurement
)

// startFigures measures short commands, each in new processes. The figure is the fastest one, because
// other programs of the machine only slow it down; the note has the median and the processor time.
func startFigures(ctx context.Context, b *bench) error {
	d, err := b.newWorkspace(ctx)
	if err != nil {
		return err
	}
	defer d.remove()
	e, err := startLab(ctx, lab.Disk{Capacity: 1 << 30, Fill: 50}, lab.Limits{})
	if err != nil {
		return err
	}
	defer e.stop()
	password := filepath.Join(d.dir, "password")
	if err := os.WriteFile(password, []byte(e.facts.Password), 0o600); err != nil {
		return err
	}
	list := []string{"ls", "esxi://" + e.facts.User + "@" + e.facts.Addr, "--fingerprint", e.facts.Fingerprint, "--password-file", password, "--state", d.stateDir()}
	for _, m := range []struct {
		figure  string
		bound   float64
		uncache bool
		args    []string
	}{
		{"start: decamp version", maxVersionMS, false, []string{"version"}},
		{"start: decamp version, its file not in the page cache", 0, true, []string{"version"}},
		{"start: decamp ls, one emulated host", maxListMS, false, list},
	} {
		row, err := d.measureStart(ctx, m.uncache, m.args)
		if err != nil {
			return err
		}
		if row.Figure = m.figure; m.bound > 0 {
			b.atMost(m.bound, row)
		} else {
			b.addRow(row)
		}
	}
	return nil
}

// measureStart runs a command startRuns times. With uncache it first drops the file of decamp from the
// page cache.
func (d *workspace) measureStart(ctx context.Context, uncache bool, args []string) (Row, error) {
	var walls, cpus []float64
	for range startRuns {
		if uncache {
			if err := dropCached(d.decamp); err != nil {
				return Row{}, err
			}
		}
		cmd := exec.CommandContext(ctx, d.decamp, args...)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+d.dir)
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return Row{}, fmt.Errorf("%v: %w: %s", args, err, lastLine(string(out)))
		}
		walls = append(walls, float64(time.Since(began).Microseconds())/1e3)
		cpus = append(cpus, float64((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Microseconds())/1e3)
	}
	note := fmt.Sprintf("fastest of %d; median %.0f ms; processor time %.0f ms, median %.0f ms", startRuns, median(walls), slices.Min(cpus), median(cpus))
	return Row{Value: slices.Min(walls), Unit: "ms", Note: note}, nil
}

// dropCached drops the pages of a file from the page cache, as far as no process uses them.
func dropCached(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}
