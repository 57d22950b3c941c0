package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/lane"
)

// edits are what the conversion of these tests writes, by disk: across two chunks, and to a last
// chunk that is a sector.
var edits = map[int32]map[int64]string{
	2000: {2*mib - 3: "drivers", 5 * mib: "the last sector"},
	2001: {8192: "UUID=8d1a"},
}

// editing is a conversion that writes edits, in the order of the disks.
func editing(ctx context.Context, disks []convert.Disk, _ convert.Options) (convert.Result, error) {
	for i, d := range disks {
		for off, text := range edits[2000+int32(i)] {
			if err := d.Overlay.WriteAt(ctx, []byte(text), off); err != nil {
				return convert.Result{}, err
			}
		}
	}
	return convert.Result{Changes: []convert.Change{{Path: "etc/fstab", Reason: "device names replaced by UUIDs"}}}, nil
}

// convertingBench has a VM whose guest is converted.
func convertingBench(t *testing.T) *bench {
	b := newBench(t)
	b.converts(journal.Virtio)
	return b
}

func (b *bench) converts(h journal.Hardware) { b.hardware, b.convert = h, editing }

// checkConverted compares what was published with the VM's disks and what was changed of them.
func (b *bench) checkConverted(out migrate.Outcome) {
	b.t.Helper()
	if b.published == nil {
		b.t.Fatal("nothing was published")
	}
	if b.published.Hardware != targets.Virtio || b.published.Converted == nil || len(b.published.Converted.Changes) != 1 {
		b.t.Errorf("published with %q, converted %+v", b.published.Hardware, b.published.Converted)
	}
	for i, img := range b.published.Images {
		want := bytes.Clone(b.disks[img.Key])
		for off, text := range edits[img.Key] {
			copy(want[off:], text)
		}
		if m := b.images[img.Path]; !m.finished || !bytes.Equal(m.medium, want) {
			b.t.Errorf("image of disk %d is not the disk with what was converted, or not finished (%v)", img.Key, m.finished)
		}
		if !migrate.Sealed(img) || img.Copied == img.Root || img.Copied != out.Facts.Verified[i].Root || out.Facts.Images[i] != img {
			b.t.Errorf("image %+v, verified %+v, recorded %+v", img, out.Facts.Verified[i], out.Facts.Images[i])
		}
		b.checkRoots(img)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "*.overlay")); left != nil {
		b.t.Errorf("overlays are left: %v", left)
	}
}

// checkRoots proves the roots by others that are made here.
func (b *bench) checkRoots(img targets.Image) {
	b.t.Helper()
	for root, data := range map[string][]byte{img.Copied: b.disks[img.Key], img.Root: b.images[img.Path].medium} {
		log, err := manifest.Create(filepath.Join(b.t.TempDir(), "m"), manifest.Info{Disk: "x", Size: int64(len(data))})
		if err != nil {
			b.t.Fatal(err)
		}
		var run manifest.Run
		for p := range slices.Chunk(data, mib) {
			run.Hashes = append(run.Hashes, manifest.HashOf(p))
		}
		err = log.Append(b.t.Context(), []manifest.Run{run})
		got, serr := log.Seal(b.t.Context())
		if err := errors.Join(err, serr, log.Close()); err != nil || got.String() != root {
			b.t.Errorf("disk %d: root %v, want %s (%v)", img.Key, got, root, err)
		}
	}
}

func TestConvertedGuestIsPublished(t *testing.T) {
	t.Parallel()
	b := convertingBench(t)
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == "commit" && !bytes.Equal(b.image().medium, b.disks[2000]) {
			t.Error("the image was changed before commit")
		}
	}
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkConverted(out)
	text, err := os.ReadFile(filepath.Join(b.dir, "2000.sha256"))
	if want := out.Facts.Verified[0].SHA256 + "  web01_2000-flat.vmdk\n"; err != nil || string(text) != want {
		t.Errorf("audit file %q, %v; want %q", text, err, want)
	}
	if told := b.told(journal.Noted); !slices.ContainsFunc(told, func(e journal.Event) bool { return strings.Contains(e.Message, "/etc/fstab: device names") }) {
		t.Errorf("told %+v", told)
	}
	if out, err = b.migrate(migrate.Permit{}); err != nil || !out.Repeated {
		t.Errorf("once more: %+v, %v", out, err)
	}
}

// The power goes at every single operation, and the same command goes on.
func TestCrashWhileConvertedGuestIsPublished(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	whole := convertingBench(t)
	if whole.crash(1<<30, migrate.Permit{}) {
		t.Fatal("crashed")
	}
	sealing := slices.Index(whole.ops, "finish")
	if n := len(whole.ops); n < sealing+12 {
		t.Fatalf("only %d operations: %v", n, whole.ops)
	}
	for n := sealing; n < len(whole.ops); n += min(2, sparse) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			b := convertingBench(t)
			if !b.crash(int64(n+1), migrate.Permit{}) {
				t.Fatalf("it did not crash: %v", b.ops)
			}
			for range n % 3 { // and again, a little further on
				b.crash(int64(2+n%5), migrate.Permit{})
			}
			out, err := b.migrate(migrate.Permit{})
			if err != nil {
				t.Fatalf("after %v: %v", b.ops, err)
			}
			b.checkConverted(out)
		})
	}
}

// What a crash leaves of the image is damaged further before the same command goes on: then the
// source's bytes are copied again, and converted again.
func TestDamageWhileConvertedGuestIsPublished(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, damage := range map[string]func(b *bench) error{
		"overlay gone":    func(b *bench) error { return migrate.RemoveOverlay(filepath.Join(b.dir, "2000.overlay")) },
		"overlay damaged": func(b *bench) error { return flipLast(filepath.Join(b.dir, "2000.overlay")) },
		"manifest gone":   func(b *bench) error { return manifest.Remove(filepath.Join(b.dir, "2000.manifest")) },
		"chunk off the manifest": func(b *bench) error {
			log, err := manifest.Open(filepath.Join(b.dir, "2000.manifest"))
			if err != nil {
				return err
			}
			return errors.Join(log.Drop(3, 1), log.Close())
		},
		"nothing": func(*bench) error { return nil },
	} {
		for _, at := range []string{"open image", "write", "finish", "publish"} {
			if !lane.Slow && at != "write" && at != "publish" {
				continue // the image is there in part, or whole
			}
			t.Run(name+" at "+at, func(t *testing.T) {
				t.Parallel()
				b := convertingBench(t)
				b.failsInCommit(at)
				if _, err := b.migrate(migrate.Permit{}); err == nil {
					t.Fatal("nothing failed")
				}
				b.before = failing("", nil)
				b.powerCut()
				if err := damage(b); err != nil && !(at == "publish" && strings.HasPrefix(name, "overlay")) {
					t.Fatal(err)
				}
				out, err := b.migrate(migrate.Permit{})
				if err != nil {
					t.Fatal(err)
				}
				if name == "manifest gone" && at == "publish" {
					return // the memory target does not see that
				}
				b.checkConverted(out)
			})
		}
	}
}

// Where the record is lost while images are changed, no run takes them for what was copied.
func TestRecordLostWhileConvertedGuestIsPublished(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for _, at := range []string{"open image", "write", "finish"} {
		for _, next := range []journal.Hardware{journal.Virtio, journal.Compat} {
			t.Run(fmt.Sprint(at, " ", next), func(t *testing.T) {
				t.Parallel()
				b := convertingBench(t)
				b.failsInCommit(at)
				if _, err := b.migrate(migrate.Permit{}); err == nil {
					t.Fatal("nothing failed")
				}
				b.before, b.hardware = failing("", nil), next
				if err := os.RemoveAll(filepath.Join(b.dir, "state")); err != nil {
					t.Fatal(err)
				}
				out, err := b.migrate(migrate.Permit{})
				if err != nil {
					t.Fatal(err)
				}
				if next == journal.Virtio {
					b.checkConverted(out)
				} else {
					b.checkPublished(out)
				}
			})
		}
	}
}

// A run that shut its VM down, and is begun again with other hardware, still knows that.
func TestOtherHardwareKeepsHowTheVMWasFound(t *testing.T) {
	t.Parallel()
	b := convertingBench(t)
	b.convert, b.vm.Power = refusing, inventory.PoweredOn
	if _, err := b.migrate(migrate.Permit{PowerOff: true}); !fault.Is(err, fault.Unsupported) {
		t.Fatal(err)
	}
	b.hardware, b.before = journal.Compat, failing("publish", fault.New(fault.Denied, "not now"))
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Denied) {
		t.Fatal(err)
	}
	b.before = failing("", nil)
	p := b.process()
	if err := errors.Join(p.Discard(t.Context(), b.plan().ID, b.rig(t, b.dir)), p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	if b.vm.Power != inventory.PoweredOn {
		t.Errorf("the VM is %s", b.vm.Power)
	}
}

// failsInCommit has the operation fail once commit began.
func (b *bench) failsInCommit(op string) {
	began := false
	b.onEvent = func(e journal.Event) { began = began || e.Kind == journal.StepStarted && e.Step == "commit" }
	b.before = func(_ context.Context, o string) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if o == op && began {
			return fault.New(fault.Denied, "not now")
		}
		return nil
	}
}

// flipLast damages the last chunk that an overlay holds.
func flipLast(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[bytes.Index(data, []byte("drivers"))] ^= 1
	return os.WriteFile(path, data, 0o600)
}

func TestWarmRunIsConverted(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a run at every operation")
	}
	t.Parallel()
	probe := warmBench(t, 7)
	probe.converts(journal.AutoHardware)
	out, err := probe.warm(2)
	if err != nil {
		t.Fatal(err)
	}
	probe.checkConverted(out)
	steps := len(probe.ops)
	for at := steps * 2 / 3; at < steps; at += 3 * sparse {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := warmBench(t, 7)
			b.converts(journal.AutoHardware)
			if out, failed := b.warmKilledAt(at); !failed {
				b.checkConverted(out)
				return
			}
			b.powerCut()
			b.work()
			b.before = func(context.Context, string) error { return nil }
			out, err := b.warm(1)
			if err != nil {
				t.Fatal(err)
			}
			b.checkConverted(out)
			b.nothingLeft()
		})
	}
}

// The trial boots what will be published: the images with what is converted above them.
func TestTrialBootsWhatIsConverted(t *testing.T) {
	t.Parallel()
	b := convertingBench(t)
	domains, out, err := b.tried(migrate.Permit{Trial: true}, testboot.Report{Verdict: testboot.Booted}, nil)
	if err != nil || len(domains) != 1 || !strings.Contains(domains[0], "2000.overlay") || !strings.Contains(domains[0], "2001.overlay") {
		t.Fatalf("%q: %v", domains, err)
	}
	b.checkConverted(out)
}

// refusing is a conversion that does not take the guest.
func refusing(context.Context, []convert.Disk, convert.Options) (convert.Result, error) {
	return convert.Result{}, fault.New(fault.Unsupported, "its root is on XFS").WithHint("use the compat profile.")
}

// A guest that cannot be converted is not published with virtio. With other hardware the same
// run goes on, and copies nothing again.
func TestGuestThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	for _, next := range []journal.Hardware{journal.Compat, journal.AutoHardware} {
		b := convertingBench(t)
		b.convert = refusing
		_, err := b.migrate(migrate.Permit{})
		hint := fault.HintOf(err)
		if !fault.Is(err, fault.Unsupported) || b.published != nil || !strings.Contains(err.Error(), "its root is on XFS") || !strings.Contains(hint, "--hardware compat") {
			t.Fatalf("%v (remedy: %s)", err, hint)
		}
		written := b.written.Load()
		b.hardware = next
		out, err := b.migrate(migrate.Permit{})
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		if b.written.Load() != written || b.published.Hardware != targets.Compat || b.published.Converted != nil {
			t.Errorf("%d writes more, hardware %q", b.written.Load()-written, b.published.Hardware)
		}
		warned := slices.ContainsFunc(out.Facts.Warnings, func(w inventory.Warning) bool { return w.Code == "not-converted" && w.Remedy != "" })
		if warned != (next == journal.AutoHardware) {
			t.Errorf("%s: warnings %+v", next, out.Facts.Warnings)
		}
	}
}

// What breaks is no verdict on the guest: auto does not go on with other hardware.
func TestBrokenConversionIsNoRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.converts(journal.AutoHardware)
	broken := errors.New("input/output error")
	b.convert = func(context.Context, []convert.Disk, convert.Options) (convert.Result, error) {
		return convert.Result{}, broken
	}
	if _, err := b.migrate(migrate.Permit{}); !errors.Is(err, broken) || b.published != nil {
		t.Errorf("%v", err)
	}
}

// Once commit may have begun, the hardware stays.
func TestHardwareStaysOnceItIsVerified(t *testing.T) {
	t.Parallel()
	b := convertingBench(t)
	b.failsInCommit("write")
	if _, err := b.migrate(migrate.Permit{}); err == nil {
		t.Fatal("nothing failed")
	}
	b.before, b.hardware = failing("", nil), journal.Compat
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "hardware virtio, not compat") {
		t.Fatalf("%v", err)
	}
	b.hardware = journal.Virtio
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkConverted(out)
}

// A warm run finds it out while the VM is off: it is told how to have it on again.
func TestGuestOfAWarmRunThatCannotBeConverted(t *testing.T) {
	t.Parallel()
	b := warmBench(t, 3)
	b.converts(journal.Virtio)
	b.convert = refusing
	if _, err := b.warm(1); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "--discard") || b.published != nil {
		t.Fatalf("%v (remedy: %s)", err, fault.HintOf(err))
	}
	p := b.process()
	if err := errors.Join(p.Discard(t.Context(), b.plan().ID, b.rig(t, b.dir)), p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	if b.vm.Power != inventory.PoweredOn {
		t.Errorf("the VM is %s", b.vm.Power)
	}
}
