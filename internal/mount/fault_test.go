package mount_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/transport/https"
)

// fastSleep is a Sleep that always takes 60 ms.
func fastSleep(ctx context.Context, _ time.Duration) error {
	select {
	case <-time.After(60 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyInBackground copies the flat file with dd in the background and then calls then with the path of the copy.
// wait waits until then has returned.
func (r *rig) copyInBackground(then func(out string, err error)) (wait func()) {
	r.Helper()
	out := filepath.Join(r.TempDir(), "out")
	var done sync.WaitGroup
	done.Go(func() {
		_, err := r.runTool("dd", "if="+r.flatPath(), "of="+out, "bs=1M", "status=none")
		then(out, err)
	})
	return done.Wait
}

// waitUntilSent waits until the lab has sent n bytes of the flat file.
func (r *rig) waitUntilSent(n int64) {
	r.Helper()
	for r.lab.Stats().Paths["/folder/web 01/web 01-flat.vmdk"].Bytes < n {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.ctx.Done():
			r.Fatal("the lab did not send enough bytes in time")
		}
	}
}

// checkReaderSurvives runs a reader, calls trouble when a part is read, and compares the result.
func checkReaderSurvives(t *testing.T, limits lab.Limits, trouble func(r *rig)) {
	t.Helper()
	raw := newImage(t, 40<<20, 11)
	var troubled sync.Mutex // held during the trouble; retries wait for its end
	back := func(ctx context.Context, d time.Duration) error {
		troubled.Lock()
		defer troubled.Unlock()
		return fastSleep(ctx, d)
	}
	r := newDiskRig(t, raw, rigOptions{lab: lab.Config{Limits: limits}, https: https.Options{Sleep: back}})
	wait := r.copyInBackground(func(out string, err error) {
		if err != nil {
			t.Errorf("dd: %v", err)
		} else if msg, err := r.runTool("cmp", raw, out); err != nil {
			t.Errorf("%v: %s", err, msg)
		}
	})
	r.waitUntilSent(4 << 20)
	troubled.Lock()
	trouble(r)
	troubled.Unlock()
	wait()
}

// slowLimits limit the rate, so that the read takes longer than the trouble.
var slowLimits = lab.Limits{DatastoreRate: 40 << 20}

func TestReaderSurvivesHostFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	must := func(r *rig, err error) {
		if err != nil {
			r.Error(err)
		}
	}
	fault := func(f lab.Fault) func(*rig) {
		f.Path = "-flat"
		return func(r *rig) {
			_, err := r.lab.Faults().Add(f)
			must(r, err)
		}
	}
	for name, trouble := range map[string]func(*rig){
		"a restarted host": func(r *rig) { must(r, r.lab.Restart()) },
		"ended sessions":   func(r *rig) { r.lab.KillSessions(); must(r, r.lab.Restart()) },
		"many 503":         fault(lab.Fault{Kind: lab.FaultStatus, Status: 503, Count: 30}),
		"resets":           fault(lab.Fault{Kind: lab.FaultReset, At: 300_000, Count: 5}),
		"short answers":    fault(lab.Fault{Kind: lab.FaultShort, At: 300_000, Count: 5}),
		"too many connections": func(r *rig) {
			r.lab.SetLimits(lab.Limits{DatastoreRate: 40 << 20, MaxConns: 3})
			must(r, r.lab.Restart())
		},
		"too many requests":     func(r *rig) { r.lab.SetLimits(lab.Limits{DatastoreRate: 40 << 20, MaxRequests: 2}) },
		"answers of other size": fault(lab.Fault{Kind: lab.FaultShortLength, At: 4096, Count: 3}),
	} {
		t.Run(name, func(t *testing.T) { checkReaderSurvives(t, slowLimits, trouble) })
	}
}

// TestChangedCertificateEndsReads changes the host's certificate, and the disk behind it, while a program reads. The
// read fails with EIO, no byte of the changed disk is returned, and the log names both fingerprints.
func TestChangedCertificateEndsReads(t *testing.T) {
	const size = 64 << 20
	raw := newImage(t, size, 12)
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	r := newDiskRig(t, raw, rigOptions{lab: lab.Config{Limits: slowLimits}, https: https.Options{Sleep: fastSleep}})
	pinned := r.lab.Fingerprint()
	var got bytes.Buffer
	var failure error
	var reading sync.WaitGroup
	reading.Go(func() {
		f, err := os.Open(r.flatPath())
		if err != nil {
			failure = err
			return
		}
		defer f.Close()
		_, failure = io.Copy(&got, struct{ io.Reader }{f})
	})
	r.waitUntilSent(4 << 20)
	if err := r.lab.ChangeCertificate(); err != nil {
		t.Fatal(err)
	}
	shown := r.lab.Fingerprint()
	overwrite(t, raw, size) // content behind the new certificate
	reading.Wait()
	if !errors.Is(failure, syscall.EIO) {
		t.Errorf("the read ended with %v, want an I/O error", failure)
	}
	if n := got.Len(); n == 0 || n >= size || !bytes.Equal(got.Bytes(), want[:n]) {
		t.Errorf("%d bytes were read, want a part of the original disk", n)
	}
	log := strings.ReplaceAll(r.log.String(), ":", "")
	for _, text := range []string{"read failed", "differs from the known one", strings.ReplaceAll(pinned, ":", ""), strings.ReplaceAll(shown, ":", "")} {
		if !strings.Contains(log, text) {
			t.Errorf("the log does not have %q: %s", text, r.log.String())
		}
	}
	if pinned == shown {
		t.Error("the certificate did not change")
	}
}

// overwrite fills a file with content that newImage does not create.
func overwrite(t *testing.T, name string, size int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for off := int64(0); off < size; off += 1 << 20 {
		if _, err := f.WriteAt(bytes.Repeat([]byte("stranger"), 1<<17), off); err != nil {
			t.Fatal(err)
		}
	}
}

// readError opens and reads a file and returns the error.
func readError(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, f)
	return err
}

func TestReadFailsAfterItsDeadline(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	const deadline = 2 * time.Second
	r := newDiskRig(t, newImage(t, 4<<20, 13), rigOptions{mount: mount.Options{ReadTimeout: deadline}})
	if _, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultStall, At: 100_000, Path: "-flat"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := readError(r.flatPath()); !errors.Is(err, syscall.EIO) {
		t.Errorf("the read ended with %v, want an I/O error", err)
	}
	if took := time.Since(began); took < deadline || took > 30*deadline {
		t.Errorf("the read failed after %v, want about %v", took, deadline)
	}
	if log := r.log.String(); !strings.Contains(log, "did not answer in time") {
		t.Errorf("the log does not have the reason: %s", log)
	}
}

func TestUnmountAfterHostFailure(t *testing.T) {
	r := newDiskRig(t, newImage(t, 64<<20, 14), rigOptions{lab: lab.Config{Limits: slowLimits}})
	wait := r.copyInBackground(func(_ string, err error) {
		if err == nil {
			t.Error("dd read the whole file, want an error")
		}
	})
	r.waitUntilSent(4 << 20)
	if err := r.lab.Stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := r.mount.Close(); err != nil {
		t.Error(err)
	}
	wait()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the unmount took %v, want at most a minute", took)
	}
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) > 0 {
		t.Errorf("the mount point contains %v (error %v), want no files", entries, err)
	}
	if err := r.lab.Resume(); err != nil { // so that the session can log out
		t.Fatal(err)
	}
}

// stuckReader starts a dd that waits for data that the host does not send.
func (r *rig) stuckReader() *exec.Cmd {
	r.Helper()
	if _, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultStall, At: 2 << 20, Path: "-flat"}); err != nil {
		r.Fatal(err)
	}
	dd := exec.CommandContext(r.ctx, "dd", "if="+r.flatPath(), "of=/dev/null", "bs=4M")
	if err := dd.Start(); err != nil {
		r.Fatal(err)
	}
	r.waitUntilSent(1 << 20)
	return dd
}

func TestKilledReaderLeavesMountUsable(t *testing.T) {
	raw := newImage(t, 32<<20, 15)
	r := newDiskRig(t, raw, rigOptions{})
	dd := r.stuckReader()
	if err := dd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dd.Wait() // always an error after a kill
	r.lab.Faults().Clear()
	r.requireSameContent(raw, r.flatPath())
	if log := r.log.String(); strings.Contains(log, "read failed") {
		t.Errorf("the log has a failed read for a killed reader: %s", log)
	}
}

// newSmallRig mounts a lab with a file vmware.log that the test may change. file is its path in the lab, shown the
// one in the mount.
func newSmallRig(t *testing.T, content string) (r *rig, file, shown string) {
	t.Helper()
	dir := t.TempDir()
	r = newRig(t, rigOptions{
		lab:   lab.Config{Dir: dir, VMs: []lab.VM{{Name: "vm", Disks: []lab.Disk{{Capacity: 1 << 20}}}}},
		https: https.Options{Sleep: fastSleep},
	})
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if filepath.Base(path) == "vm.vmx" {
			file = filepath.Join(filepath.Dir(path), "vmware.log")
		}
		return err
	})
	if file == "" {
		t.Fatalf("no VM in %s", dir)
	}
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return r, file, r.filePath("vm/vmware.log")
}

func TestResizedFileIsReadAfterReopen(t *testing.T) {
	for name, now := range map[string]string{"grown": strings.Repeat("another line\n", 20_000), "shrunk": strings.Repeat("b line\n", 10_000)} {
		t.Run(name, func(t *testing.T) {
			r, file, shown := newSmallRig(t, strings.Repeat("a line\n", 20_000))
			f, err := os.Open(shown)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(f); !errors.Is(err, syscall.EIO) {
				t.Errorf("the read of the changed open file ended with %v, want an I/O error", err)
			}
			if log := r.log.String(); !strings.Contains(log, fmt.Sprintf("the file has %d bytes now", len(now))) {
				t.Errorf("the log does not have the reason: %s", log)
			}
			got, err := os.ReadFile(shown)
			if err != nil || string(got) != now {
				t.Errorf("after it was opened again, the file has %d bytes (error %v), want %d", len(got), err, len(now))
			}
		})
	}
}

func TestReplacedFileIsReadAfterReopen(t *testing.T) {
	_, file, shown := newSmallRig(t, strings.Repeat("a line\n", 1000))
	if got, err := os.ReadFile(shown); err != nil || !strings.HasPrefix(string(got), "a line") {
		t.Fatalf("got %.10q, error %v, want a line", got, err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("b line\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(shown); err != nil || !strings.HasPrefix(string(got), "b line") {
		t.Errorf("after it was opened again, the file contains %.10q (error %v), want b line", got, err)
	}
}

func TestLockedDiskIsBusy(t *testing.T) {
	r := newRig(t, rigOptions{lab: lab.Config{VMs: []lab.VM{{Name: "web 01", PoweredOn: true, Disks: []lab.Disk{{Capacity: 1 << 20}}}}}})
	if err := readError(r.flatPath()); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("the read of a disk of a running VM ended with %v, want EBUSY", err)
	}
	if err := r.lab.SetPower("web 01", false); err != nil {
		t.Fatal(err)
	}
	if err := readError(r.flatPath()); err != nil {
		t.Errorf("after the power-off the read ended with %v", err)
	}
}

func TestActiveMountIsNotReplaced(t *testing.T) {
	r := newDiskRig(t, newImage(t, 1<<20, 16), rigOptions{})
	s := logIn(t, r.lab, false)
	if m, err := mount.New(r.ctx, mount.NewRemote(s, r.pool, nil), r.dir, mount.Options{}); err == nil {
		m.Close()
		t.Error("a second mount replaced an active one, want an error")
	}
	if _, err := os.ReadDir(r.dir); err != nil {
		t.Error(err)
	}
}
