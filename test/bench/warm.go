package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
)

// guestWrite is the mean number of bytes of an emulated guest's write.
const guestWrite = 33 * 4 << 10

// warmFigures measures a precopy round without storage, and the outage of whole warm
// migrations.
func warmFigures(ctx context.Context, b *bench) error {
	return errors.Join(warmRound(ctx, b), warmOutage(ctx, b, image.Raw), warmOutage(ctx, b, image.QCOW2))
}

// lastDelta is the number of bytes that the guest writes before the cutover.
const lastDelta = 256 << 20

// warmOutage migrates a running VM with the real program. It measures the time from the
// request to power the VM off until the VM is published. Starting it is left to the
// user.
func warmOutage(ctx context.Context, b *bench, format image.Format) error {
	dir, err := os.MkdirTemp(b.dir, "warm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := lab.Start(ctx, lab.Config{VMs: []lab.VM{{
		Name: benchVM, PoweredOn: true, ChangeTracking: true,
		Disks: []lab.Disk{{Capacity: 16 << 30, Fill: 12, Seed: 1}},
		Guest: lab.Guest{Writes: lab.Writes{Seed: 1, Spread: 100}},
	}}})
	if err != nil {
		return err
	}
	defer l.Close()
	m := &warmRun{lab: l, dir: dir, format: format, decamp: filepath.Join(dir, "decamp")}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", m.decamp, "./cmd/decamp").CombinedOutput(); err != nil {
		return fmt.Errorf("build decamp: %w: %s", err, lastLine(string(out)))
	}
	stages, err := m.measureOutage(ctx)
	if err != nil {
		return err
	}
	b.atMost(10, Row{Figure: fmt.Sprintf("warm migration, 16 GiB disk, %s, last delta of 256 MiB: outage", format), Value: m.ended.Sub(m.off).Seconds(), Unit: "s + shutdown and boot",
		Note: "from power-off asked to published: " + stages})
	return nil
}

// warmRun is a migration by the real program.
type warmRun struct {
	lab    *lab.Lab     // emulated host
	dir    string       // folder for state and images
	format image.Format // format of the image
	decamp string       // path of the binary

	off, ended time.Time // start and end of the outage
}

// command returns a command of decamp with the state and the password of the migration.
func (m *warmRun) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.decamp, append(args, "--state", filepath.Join(m.dir, "state"))...)
	cmd.Env = append(os.Environ(), "DECAMP_PASSWORD_FILE="+filepath.Join(m.dir, "password"))
	cmd.Stderr = os.Stderr
	return cmd
}

// measureOutage migrates the VM, and returns the time of each step while the VM was
// off.
func (m *warmRun) measureOutage(ctx context.Context) (stages string, err error) {
	vms := filepath.Join(m.dir, "vms")
	if err := errors.Join(os.Mkdir(vms, 0o755), os.WriteFile(filepath.Join(m.dir, "password"), []byte(m.lab.Password()+"\n"), 0o600)); err != nil {
		return "", err
	}
	cmd := m.command(ctx, "migrate", "esxi://"+m.lab.User()+"@"+m.lab.Addr(), benchVM, "--to", "dir:"+vms,
		"--warm", "--transport", "nfc", "--format", string(m.format), "--json", "--fingerprint", m.lab.Fingerprint())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	events := bufio.NewScanner(out)
	events.Buffer(nil, 1<<20)
	for events.Scan() {
		var o struct{ Event journal.Event }
		if err := json.Unmarshal(events.Bytes(), &o); err != nil {
			return "", err
		}
		if err := m.handleEvent(ctx, o.Event, &stages); err != nil {
			return "", errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
	}
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("decamp migrate: %w", err)
	}
	return stages, nil
}

// handleEvent makes the guest write and requests the cutover when the run waits. It
// records the times of steps after the power-off.
func (m *warmRun) handleEvent(ctx context.Context, e journal.Event, stages *string) error {
	switch {
	case e.Kind == journal.StepStarted && e.Step == "wait":
		if err := m.lab.GuestWrites(benchVM, lastDelta/guestWrite); err != nil {
			return err
		}
		return m.command(ctx, "cutover", string(e.Run)).Run()
	case e.Kind == journal.StepStarted && e.Step == "power off":
		m.off, m.ended = e.Time, e.Time
	case e.Kind == journal.StepDone && !m.off.IsZero():
		// Each step starts when the previous one has ended.
		*stages += fmt.Sprintf("%s %.1f s, ", e.Step, e.Time.Sub(m.ended).Seconds())
		m.ended = e.Time
	}
	return nil
}
