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

// quickly makes a transport wait 60 ms where it would wait seconds.
func quickly(ctx context.Context, _ time.Duration) error {
	select {
	case <-time.After(60 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copied reads the flat file with dd in the background; the function it returns waits for
// it and gives the image.
func (r *rig) copied(then func(out string, err error)) (wait func()) {
	r.Helper()
	out := filepath.Join(r.TempDir(), "out")
	var done sync.WaitGroup
	done.Go(func() {
		_, err := r.try("dd", "if="+r.flat(), "of="+out, "bs=1M", "status=none")
		then(out, err)
	})
	return done.Wait
}

// sent waits until the lab has sent so many bytes of the flat file.
func (r *rig) sent(n int64) {
	r.Helper()
	for r.lab.Stats().Paths["/folder/web 01/web 01-flat.vmdk"].Bytes < n {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.ctx.Done():
			r.Fatal("the reader got stuck")
		}
	}
}

// survives runs a reader, makes trouble when it has read a part, and compares.
func survives(t *testing.T, limits lab.Limits, trouble func(r *rig)) {
	t.Helper()
	raw := image(t, 40<<20, 11)
	r := diskRig(t, raw, rigOptions{lab: lab.Config{Limits: limits}, https: https.Options{Sleep: quickly}})
	wait := r.copied(func(out string, err error) {
		if err != nil {
			t.Errorf("dd: %v", err)
		} else if msg, err := r.try("cmp", raw, out); err != nil {
			t.Errorf("%v: %s", err, msg)
		}
	})
	r.sent(4 << 20)
	trouble(r)
	wait()
}

// slow keeps a reader busy long enough to meet the trouble.
var slow = lab.Limits{DatastoreRate: 40 << 20}

func TestReaderSurvives(t *testing.T) {
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
		"a storm of 503":   fault(lab.Fault{Kind: lab.FaultStatus, Status: 503, Count: 30}),
		"resets":           fault(lab.Fault{Kind: lab.FaultReset, At: 300_000, Count: 5}),
		"answers that end": fault(lab.Fault{Kind: lab.FaultShort, At: 300_000, Count: 5}),
		"too many connections": func(r *rig) {
			r.lab.SetLimits(lab.Limits{DatastoreRate: 40 << 20, MaxConns: 3})
			must(r, r.lab.Restart())
		},
		"too many requests":     func(r *rig) { r.lab.SetLimits(lab.Limits{DatastoreRate: 40 << 20, MaxRequests: 2}) },
		"answers of other size": fault(lab.Fault{Kind: lab.FaultShortLength, At: 4096, Count: 3}),
	} {
		t.Run(name, func(t *testing.T) { survives(t, slow, trouble) })
	}
}

// TestChangedCertificateEndsReads changes the host's certificate, and the disk behind it, while a program reads. The
// read fails with EIO, no byte of the changed disk is handed out, and the log names both fingerprints.
func TestChangedCertificateEndsReads(t *testing.T) {
	const size = 64 << 20
	raw := image(t, size, 12)
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	r := diskRig(t, raw, rigOptions{lab: lab.Config{Limits: slow}, https: https.Options{Sleep: quickly}})
	pinned := r.lab.Fingerprint()
	var got bytes.Buffer
	var failure error
	var reading sync.WaitGroup
	reading.Go(func() {
		f, err := os.Open(r.flat())
		if err != nil {
			failure = err
			return
		}
		defer f.Close()
		_, failure = io.Copy(&got, struct{ io.Reader }{f})
	})
	r.sent(4 << 20)
	if err := r.lab.ChangeCertificate(); err != nil {
		t.Fatal(err)
	}
	shown := r.lab.Fingerprint()
	overwrite(t, raw, size) // only the stranger has these bytes
	reading.Wait()
	if !errors.Is(failure, syscall.EIO) {
		t.Errorf("the read ended with %v, want an I/O error", failure)
	}
	if n := got.Len(); n == 0 || n >= size || !bytes.Equal(got.Bytes(), want[:n]) {
		t.Errorf("%d bytes were read, want a part of what the host had", n)
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

// overwrite fills a file with bytes that image does not write in this order.
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

// readError opens a file and reads it, and returns the number of the error.
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
	const deadline = 2 * time.Second
	r := diskRig(t, image(t, 4<<20, 13), rigOptions{mount: mount.Options{ReadTimeout: deadline}})
	if _, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultStall, At: 100_000, Path: "-flat"}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := readError(r.flat()); !errors.Is(err, syscall.EIO) {
		t.Errorf("the read ended with %v, want an I/O error", err)
	}
	if took := time.Since(began); took < deadline || took > 30*deadline {
		t.Errorf("it took %v, want about %v", took, deadline)
	}
	if log := r.log.String(); !strings.Contains(log, "did not answer in time") {
		t.Errorf("the log does not say why: %s", log)
	}
}

func TestHostThatDiesDoesNotKeepTheMount(t *testing.T) {
	r := diskRig(t, image(t, 64<<20, 14), rigOptions{lab: lab.Config{Limits: slow}})
	wait := r.copied(func(_ string, err error) {
		if err == nil {
			t.Error("dd read it all")
		}
	})
	r.sent(4 << 20)
	if err := r.lab.Stop(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := r.mount.Close(); err != nil {
		t.Error(err)
	}
	wait()
	if took := time.Since(began); took > time.Minute {
		t.Errorf("unmounting took %v", took)
	}
	if entries, err := os.ReadDir(r.dir); err != nil || len(entries) > 0 {
		t.Errorf("the mount point holds %v (%v)", entries, err)
	}
	if err := r.lab.Resume(); err != nil { // for the session to log out
		t.Fatal(err)
	}
}

// stuckReader starts dd, which then waits for what the host does not send.
func (r *rig) stuckReader() *exec.Cmd {
	r.Helper()
	if _, err := r.lab.Faults().Add(lab.Fault{Kind: lab.FaultStall, At: 2 << 20, Path: "-flat"}); err != nil {
		r.Fatal(err)
	}
	dd := exec.CommandContext(r.ctx, "dd", "if="+r.flat(), "of=/dev/null", "bs=4M")
	if err := dd.Start(); err != nil {
		r.Fatal(err)
	}
	r.sent(1 << 20)
	return dd
}

func TestKilledReaderLeavesTheMountInOrder(t *testing.T) {
	raw := image(t, 32<<20, 15)
	r := diskRig(t, raw, rigOptions{})
	dd := r.stuckReader()
	if err := dd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dd.Wait() // it was killed
	r.lab.Faults().Clear()
	r.same(raw, r.flat())
	if log := r.log.String(); strings.Contains(log, "read failed") {
		t.Errorf("a killed reader is no failure: %s", log)
	}
}

// smallRig mounts a lab whose datastore has a file that the test may change.
func smallRig(t *testing.T, content string) (r *rig, file, shown string) {
	t.Helper()
	dir := t.TempDir()
	r = newRig(t, rigOptions{
		lab:   lab.Config{Dir: dir, VMs: []lab.VM{{Name: "vm", Disks: []lab.Disk{{Capacity: 1 << 20}}}}},
		https: https.Options{Sleep: quickly},
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
	return r, file, r.path("vm/vmware.log")
}

func TestFileThatGrewIsReadWholeWhenOpenedAgain(t *testing.T) {
	for name, now := range map[string]string{"grown": strings.Repeat("another line\n", 20_000), "shrunk": strings.Repeat("b line\n", 10_000)} {
		t.Run(name, func(t *testing.T) {
			r, file, shown := smallRig(t, strings.Repeat("a line\n", 20_000))
			f, err := os.Open(shown)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(f); !errors.Is(err, syscall.EIO) {
				t.Errorf("the open file reads with %v, want an I/O error: it changed", err)
			}
			if log := r.log.String(); !strings.Contains(log, fmt.Sprintf("the file has %d bytes now", len(now))) {
				t.Errorf("the log does not say why: %s", log)
			}
			got, err := os.ReadFile(shown)
			if err != nil || string(got) != now {
				t.Errorf("opened again it has %d bytes (%v)", len(got), err)
			}
		})
	}
}

func TestReplacedFileOfTheSameSizeIsNewWhenOpenedAgain(t *testing.T) {
	_, file, shown := smallRig(t, strings.Repeat("a line\n", 1000))
	if got, err := os.ReadFile(shown); err != nil || !strings.HasPrefix(string(got), "a line") {
		t.Fatalf("%.10q, %v", got, err)
	}
	if err := os.WriteFile(file, []byte(strings.Repeat("b line\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(shown); err != nil || !strings.HasPrefix(string(got), "b line") {
		t.Errorf("opened again it reads %.10q (%v): nothing may be kept of a closed file", got, err)
	}
}

func TestLockedDiskIsBusy(t *testing.T) {
	r := newRig(t, rigOptions{lab: lab.Config{VMs: []lab.VM{{Name: "web 01", PoweredOn: true, Disks: []lab.Disk{{Capacity: 1 << 20}}}}}})
	if err := readError(r.flat()); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("the disk of a running VM reads with %v, want busy", err)
	}
	if err := r.lab.SetPower("web 01", false); err != nil {
		t.Fatal(err)
	}
	if err := readError(r.flat()); err != nil {
		t.Errorf("powered off it reads with %v", err)
	}
}

func TestLivingMountIsNotDetached(t *testing.T) {
	r := diskRig(t, image(t, 1<<20, 16), rigOptions{})
	s := dial(t, r.lab, false)
	if m, err := mount.New(r.ctx, mount.NewRemote(s, r.pool, nil), r.dir, mount.Options{}); err == nil {
		m.Close()
		t.Error("a second mount took the place of a living one")
	}
	if _, err := os.ReadDir(r.dir); err != nil {
		t.Error(err)
	}
}
