package convert

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/guest/extwrite"
	"github.com/decamp/decamp/test/lane"
)

// A guest that lost power has an unreplayed journal. decamp refuses to write its file system without an appliance, and the
// error has a remedy. An appliance replays the journal on the overlay, and the result reports that.
func TestApplianceReplaysJournals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  guest.FileSystem
		make  func(testing.TB, tree) string
		check []string
		none  fault.Kind // kind of the error without a kernel for the appliance
		slow  bool
	}{
		"xfs":  {guest.XFS, newXFS, []string{"xfs_repair", "-n"}, fault.NotFound, true}, // XFS always requires an appliance
		"ext4": {guest.Ext4, newExt4, []string{"e2fsck", "-fn"}, fault.Conflict, false}, // a clean shutdown replays the journal
	} {
		if c.slow && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := newDisk(t, c.make(t, newDebian("/dev/sda1")))
			losePower(t, image, c.kind)
			if _, err := convert.LinuxAppend(t.Context(), openDisks(t, image), convert.Options{}); err == nil || fault.HintOf(err) == "" {
				t.Errorf("without an appliance: %v", err)
			}
			none := appliance.New(appliance.Options{Root: t.TempDir()})
			_, err := convert.LinuxAppend(t.Context(), openDisks(t, image), convert.Options{Appliance: none})
			if hint := fault.HintOf(err); !fault.Is(err, c.none) || !strings.Contains(hint, "apt install") || (c.none == fault.Conflict) != strings.Contains(hint, "shut its guest down") {
				t.Errorf("without a kernel: %v (remedy: %s), want %v", err, hint, c.none)
			}
			disks := openDisks(t, image)
			result, err := convert.LinuxAppend(t.Context(), disks, convert.Options{Appliance: newAppliance(t)})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(result.Notes, func(n string) bool { return strings.Contains(n, "journal was replayed") }) {
				t.Errorf("notes %q, want one about the journal", result.Notes)
			}
			applyChanges(t, disks, image)
			part := extractPartition(t, image)
			runTool(t, c.check[0], append(c.check[1:], part)...)
			if got := readGuestFile(t, c.kind, part, "var-written"); got != "before the power went" {
				t.Errorf("the file from the journal contains %q", got)
			}
		})
	}
}

// losePower writes to the guest's file system and does not unmount it.
func losePower(t *testing.T, image string, kind guest.FileSystem) {
	t.Helper()
	disks := openDisks(t, image)
	fs, m := mountDisk(t, disks, kind)
	if err := fs.WriteFile("var-written", []byte("before the power went"), extwrite.Attr{Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := fs.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	applyChanges(t, disks, image)
}

// mountDisk mounts the first partition of the disk with an appliance.
func mountDisk(t *testing.T, disks []convert.Disk, kind guest.FileSystem) (convert.FileSystem, convert.Mounted) {
	t.Helper()
	p := disks[0].Report.Partitions[0]
	m, err := newAppliance(t).Mount(t.Context(), []convert.Volume{{Name: "sda1", Kind: kind, Device: disks[0].Overlay.Slice(t.Context(), p.Off, p.Len)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m.FileSystem(0), m
}

// endingAppliance is an appliance that calls end before the first flush.
type endingAppliance struct {
	*appliance.Appliance
	end func()
}

func (e endingAppliance) Mount(ctx context.Context, v []convert.Volume) (convert.Mounted, error) {
	m, err := e.Appliance.Mount(ctx, v)
	return endingMount{m, e.end}, err
}

type endingMount struct {
	convert.Mounted
	end func()
}

func (e endingMount) FileSystem(i int) convert.FileSystem {
	return endingFiles{e.Mounted.FileSystem(i), e.end}
}

type endingFiles struct {
	convert.FileSystem
	end func()
}

func (e endingFiles) Flush() error {
	e.end()
	return e.FileSystem.Flush()
}

// If the appliance fails before it has unmounted the file systems, the overlays do not change.
func TestFailedApplianceChangesNothing(t *testing.T) {
	t.Parallel()
	plain := newDisk(t, newXFS(t, newDebian("/dev/sda1")))
	full := newFullExt4(t)
	for name, c := range map[string]struct {
		image     string
		appliance func(cancel func()) convert.Appliance
		kind      fault.Kind
		want      string
	}{
		"killed": {plain, func(cancel func()) convert.Appliance { return endingAppliance{newAppliance(t), cancel} }, fault.Canceled, "cancel"},
		"late":   {plain, func(func()) convert.Appliance { return newApplianceWith(t, appliance.Options{Deadline: time.Second}) }, fault.Transient, "console output"},
		"other program": {plain, func(func()) convert.Appliance {
			return newApplianceWith(t, appliance.Options{Program: "/sbin/ldconfig"})
		}, fault.Unsupported, "console output"},
		"full": {full, func(func()) convert.Appliance { return newAppliance(t) }, fault.Full, "no space"},
	} {
		if name == "other program" && !lane.Slow {
			continue // similar to "late", but takes a complete boot
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			disks := openDisks(t, c.image)
			_, err := convert.LinuxAppend(ctx, disks, convert.Options{Appliance: c.appliance(cancel)})
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.want)
			}
			if c.kind != fault.Canceled && fault.HintOf(err) == "" {
				t.Errorf("%v has no remedy", err)
			}
			if n := len(disks[0].Overlay.Changed()); n != 0 {
				t.Errorf("%d ranges changed, want 0", n)
			}
		})
	}
}

// newFullExt4 creates a guest with a full file system and an unreplayed journal.
func newFullExt4(t *testing.T) string {
	t.Helper()
	image := newDisk(t, newExt4(t, newDebian("/dev/sda1")))
	disks := openDisks(t, image)
	fs, m := mountDisk(t, disks, guest.Ext4)
	if err := fs.WriteFile("fill", make([]byte, 60<<20), extwrite.Attr{Mode: 0o600}); !fault.Is(err, fault.Full) {
		t.Fatalf("got %v after writing 60 MiB to a file system of 40 MiB, want a Full error", err)
	}
	if err := fs.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	applyChanges(t, disks, image)
	return image
}

// newApplianceWith is like newAppliance, with other options.
func newApplianceWith(t testing.TB, o appliance.Options) *appliance.Appliance {
	t.Helper()
	o.Kernel = kernelImage(t)
	if o.Program == "" {
		o.Program = decampBinary
	}
	return appliance.New(o)
}
