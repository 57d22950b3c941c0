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

// edits are the changes that the conversion in these tests writes, by disk and offset. One change spans two
// chunks, another is in the last chunk, which has one sector.
var edits = map[int32]map[int64]string{
	2000: {2*mib - 3: "drivers", 5 * mib: "the last sector"},
	2001: {8192: "UUID=8d1a"},
}

// convertWithEdits is a conversion that writes edits to the disks in order.
func convertWithEdits(ctx context.Context, disks []convert.Disk, _ convert.Options) (convert.Result, error) {
	for i, d := range disks {
		for off, text := range edits[2000+int32(i)] {
			if err := d.Overlay.WriteAt(ctx, []byte(text), off); err != nil {
				return convert.Result{}, err
			}
		}
	}
	return convert.Result{Changes: []convert.Change{{Path: "etc/fstab", Reason: "device names replaced by UUIDs"}}}, nil
}

// newConvertingTestBed returns a test bed whose guest is converted.
func newConvertingTestBed(t *testing.T) *testBed {
	b := newTestBed(t)
	b.setConversion(journal.Virtio)
	return b
}

func (b *testBed) setConversion(h journal.Hardware) { b.hardware, b.convert = h, convertWithEdits }

// checkConverted checks that the published images are the VM's disks with the edits.
func (b *testBed) checkConverted(out migrate.Outcome) {
	b.t.Helper()
	if b.published == nil {
		b.t.Fatal("no VM was published")
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
			b.t.Errorf("image of disk %d is not the disk with the edits, or it is not finished (%v)", img.Key, m.finished)
		}
		if !migrate.IsSealed(img) || img.Copied == img.Root || img.Copied != out.Facts.Verified[i].Root || out.Facts.Images[i] != img {
			b.t.Errorf("image %+v, verified %+v, recorded %+v", img, out.Facts.Verified[i], out.Facts.Images[i])
		}
		b.checkRoots(img)
	}
	if left, _ := filepath.Glob(filepath.Join(b.dir, "*.overlay")); left != nil {
		b.t.Errorf("overlays %v remain", left)
	}
}

// checkRoots compares the roots of an image with roots that it computes from the data.
func (b *testBed) checkRoots(img targets.Image) {
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
	b := newConvertingTestBed(t)
	b.onEvent = func(e journal.Event) {
		if e.Kind == journal.StepStarted && e.Step == "commit" && !bytes.Equal(b.firstImage().medium, b.disks[2000]) {
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
	if notes := b.eventsOf(journal.Noted); !slices.ContainsFunc(notes, func(e journal.Event) bool { return strings.Contains(e.Message, "/etc/fstab: device names") }) {
		t.Errorf("notes %+v", notes)
	}
	if out, err = b.migrate(migrate.Permit{}); err != nil || !out.Repeated {
		t.Errorf("second run: %+v, %v", out, err)
	}
}

// After a power failure at any operation, the same command continues the run.
func TestCrashWhileConvertedGuestIsPublished(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	whole := newConvertingTestBed(t)
	if whole.crashAt(1<<30, migrate.Permit{}) {
		t.Fatal("crashed")
	}
	sealing := slices.Index(whole.ops, "finish")
	if n := len(whole.ops); n < sealing+12 {
		t.Fatalf("only %d operations: %v", n, whole.ops)
	}
	for n := sealing; n < len(whole.ops); n += min(2, killInterval) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			t.Parallel()
			b := newConvertingTestBed(t)
			if !b.crashAt(int64(n+1), migrate.Permit{}) {
				t.Fatalf("the run did not crash: %v", b.ops)
			}
			for range n % 3 { // more crashes, each at a later operation
				b.crashAt(int64(2+n%5), migrate.Permit{})
			}
			out, err := b.migrate(migrate.Permit{})
			if err != nil {
				t.Fatalf("after %v: %v", b.ops, err)
			}
			b.checkConverted(out)
		})
	}
}

// If the files that a crash leaves are also damaged, the same command copies the source again and converts it
// again.
func TestDamageWhileConvertedGuestIsPublished(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for name, damage := range map[string]func(b *testBed) error{
		"overlay gone":    func(b *testBed) error { return migrate.RemoveOverlay(filepath.Join(b.dir, "2000.overlay")) },
		"overlay damaged": func(b *testBed) error { return damageOverlay(filepath.Join(b.dir, "2000.overlay")) },
		"manifest gone":   func(b *testBed) error { return manifest.Remove(filepath.Join(b.dir, "2000.manifest")) },
		"chunk off the manifest": func(b *testBed) error {
			log, err := manifest.Open(filepath.Join(b.dir, "2000.manifest"))
			if err != nil {
				return err
			}
			return errors.Join(log.Drop(3, 1), log.Close())
		},
		"nothing": func(*testBed) error { return nil },
	} {
		for _, at := range []string{"open image", "write", "finish", "publish"} {
			if !lane.Slow && at != "write" && at != "publish" {
				continue // write and publish cover a partly and a completely changed image
			}
			t.Run(name+" at "+at, func(t *testing.T) {
				t.Parallel()
				b := newConvertingTestBed(t)
				b.failInCommit(at)
				if _, err := b.migrate(migrate.Permit{}); err == nil {
					t.Fatal("nothing failed")
				}
				b.before = failOperation("", nil)
				b.powerCut()
				if err := damage(b); err != nil && !(at == "publish" && strings.HasPrefix(name, "overlay")) {
					t.Fatal(err)
				}
				out, err := b.migrate(migrate.Permit{})
				if err != nil {
					t.Fatal(err)
				}
				if name == "manifest gone" && at == "publish" {
					return // the memory target does not detect it
				}
				b.checkConverted(out)
			})
		}
	}
}

// If the record is lost while commit changes the images, the next run does not treat them as copies of the source.
func TestRecordLostWhileConvertedGuestIsPublished(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	for _, at := range []string{"open image", "write", "finish"} {
		for _, next := range []journal.Hardware{journal.Virtio, journal.Compat} {
			t.Run(fmt.Sprint(at, " ", next), func(t *testing.T) {
				t.Parallel()
				b := newConvertingTestBed(t)
				b.failInCommit(at)
				if _, err := b.migrate(migrate.Permit{}); err == nil {
					t.Fatal("nothing failed")
				}
				b.before, b.hardware = failOperation("", nil), next
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

// A run that powered its VM off keeps the original power state when it starts over with other hardware.
func TestOtherHardwareKeepsTheOriginalPowerState(t *testing.T) {
	t.Parallel()
	b := newConvertingTestBed(t)
	b.convert, b.vm.Power = refuseConversion, inventory.PoweredOn
	if _, err := b.migrate(migrate.Permit{PowerOff: true}); !fault.Is(err, fault.Unsupported) {
		t.Fatal(err)
	}
	b.hardware, b.before = journal.Compat, failOperation("publish", fault.New(fault.Denied, "not now"))
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Denied) {
		t.Fatal(err)
	}
	b.before = failOperation("", nil)
	p := b.newProcess()
	if err := errors.Join(p.Discard(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)), p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	if b.vm.Power != inventory.PoweredOn {
		t.Errorf("the VM is %s", b.vm.Power)
	}
}

// failInCommit lets an operation fail after commit has started.
func (b *testBed) failInCommit(op string) {
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

// damageOverlay changes a converted byte in an overlay file.
func damageOverlay(path string) error {
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
	probe := newWarmTestBed(t, 7)
	probe.setConversion(journal.AutoHardware)
	out, err := probe.migrateWarm(2)
	if err != nil {
		t.Fatal(err)
	}
	probe.checkConverted(out)
	steps := len(probe.ops)
	for at := steps * 2 / 3; at < steps; at += 3 * killInterval {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := newWarmTestBed(t, 7)
			b.setConversion(journal.AutoHardware)
			if out, failed := b.killWarmRunAt(at); !failed {
				b.checkConverted(out)
				return
			}
			b.powerCut()
			b.writeInGuest()
			b.before = func(context.Context, string) error { return nil }
			out, err := b.migrateWarm(1)
			if err != nil {
				t.Fatal(err)
			}
			b.checkConverted(out)
			b.checkNoSnapshots()
		})
	}
}

// The trial boots the images that will be published: the copies with the overlays of the conversion.
func TestTrialBootsTheConvertedImages(t *testing.T) {
	t.Parallel()
	b := newConvertingTestBed(t)
	domains, out, err := b.migrateWithTrial(migrate.Permit{Trial: true}, testboot.Report{Verdict: testboot.Booted}, nil)
	if err != nil || len(domains) != 1 || !strings.Contains(domains[0], "2000.overlay") || !strings.Contains(domains[0], "2001.overlay") {
		t.Fatalf("%q: %v", domains, err)
	}
	b.checkConverted(out)
}

// refuseConversion is a conversion that does not support the guest.
func refuseConversion(context.Context, []convert.Disk, convert.Options) (convert.Result, error) {
	return convert.Result{}, fault.New(fault.Unsupported, "its root is on XFS").WithHint("use the compat profile.")
}

// A guest that cannot be converted is not published with virtio. With other hardware the same
// run continues without another copy.
func TestUnconvertibleGuestIsNotPublishedWithVirtio(t *testing.T) {
	t.Parallel()
	for _, next := range []journal.Hardware{journal.Compat, journal.AutoHardware} {
		b := newConvertingTestBed(t)
		b.convert = refuseConversion
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
			t.Errorf("%d more writes, hardware %q", b.written.Load()-written, b.published.Hardware)
		}
		warned := slices.ContainsFunc(out.Facts.Warnings, func(w inventory.Warning) bool { return w.Code == "not-converted" && w.Remedy != "" })
		if warned != (next == journal.AutoHardware) {
			t.Errorf("%s: warnings %+v", next, out.Facts.Warnings)
		}
	}
}

// An error of the conversion does not mean that the guest is unsupported: auto does not continue with other hardware.
func TestConversionErrorIsNotUnsupported(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	b.setConversion(journal.AutoHardware)
	broken := errors.New("input/output error")
	b.convert = func(context.Context, []convert.Disk, convert.Options) (convert.Result, error) {
		return convert.Result{}, broken
	}
	if _, err := b.migrate(migrate.Permit{}); !errors.Is(err, broken) || b.published != nil {
		t.Errorf("%v", err)
	}
}

// The hardware cannot change after verify, because commit may have started.
func TestHardwareCannotChangeAfterVerify(t *testing.T) {
	t.Parallel()
	b := newConvertingTestBed(t)
	b.failInCommit("write")
	if _, err := b.migrate(migrate.Permit{}); err == nil {
		t.Fatal("nothing failed")
	}
	b.before, b.hardware = failOperation("", nil), journal.Compat
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

// If a warm run cannot convert the guest in the outage, the remedy is to discard the run. That powers the VM on.
func TestWarmRunWithUnconvertibleGuest(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 3)
	b.setConversion(journal.Virtio)
	b.convert = refuseConversion
	if _, err := b.migrateWarm(1); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "decamp rollback "+string(b.plan().ID)) || b.published != nil {
		t.Fatalf("%v (remedy: %s)", err, fault.HintOf(err))
	}
	p := b.newProcess()
	if err := errors.Join(p.Discard(t.Context(), b.plan().ID, b.newEnvironment(t, b.dir)), p.engine.Close()); err != nil {
		t.Fatal(err)
	}
	if b.vm.Power != inventory.PoweredOn {
		t.Errorf("the VM is %s", b.vm.Power)
	}
}
