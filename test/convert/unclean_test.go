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

// A guest that lost its power has a journal to be replayed. This process refuses it; mounting
// replays it, on the overlay, and the result says so. Without anything that mounts it the error has a remedy.
func TestApplianceReplaysJournals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  guest.FileSystem
		make  func(testing.TB, tree) string
		check []string
		none  fault.Kind // without anything that mounts it
		slow  bool
	}{
		"xfs":  {guest.XFS, xfsOf, []string{"xfs_repair", "-n"}, fault.NotFound, true}, // it requires an appliance in any case
		"ext4": {guest.Ext4, extOf, []string{"e2fsck", "-fn"}, fault.Conflict, false},  // a clean shutdown repairs it
	} {
		if c.slow && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			image := diskOf(t, c.make(t, linux("/dev/sda1")))
			losePower(t, image, c.kind)
			if _, err := convert.LinuxAppend(t.Context(), layered(t, image), convert.Options{}); err == nil || fault.HintOf(err) == "" {
				t.Errorf("without an appliance: %v", err)
			}
			none := appliance.New(appliance.Options{Root: t.TempDir()})
			_, err := convert.LinuxAppend(t.Context(), layered(t, image), convert.Options{Appliance: none})
			if hint := fault.HintOf(err); !fault.Is(err, c.none) || !strings.Contains(hint, "apt install") || (c.none == fault.Conflict) != strings.Contains(hint, "shut its guest down") {
				t.Errorf("without a kernel: %v (remedy: %s), want %v", err, hint, c.none)
			}
			disks := layered(t, image)
			result, err := convert.LinuxAppend(t.Context(), disks, convert.Options{Appliance: ourAppliance(t)})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(result.Notes, func(n string) bool { return strings.Contains(n, "journal was replayed") }) {
				t.Errorf("notes %q do not tell of the journal", result.Notes)
			}
			put(t, disks, image)
			part := cut(t, image)
			run(t, c.check[0], append(c.check[1:], part)...)
			if got := held(t, c.kind, part, "var-written"); got != "before the power went" {
				t.Errorf("what the journal held is %q", got)
			}
		})
	}
}

// losePower writes to the guest's file system and ends without unmounting.
func losePower(t *testing.T, image string, kind guest.FileSystem) {
	t.Helper()
	disks := layered(t, image)
	fs, m := mounted(t, disks, kind)
	if err := fs.WriteFile("var-written", []byte("before the power went"), extwrite.Attr{Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := fs.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, disks, image)
}

// mounted has an appliance mount the disk's partition.
func mounted(t *testing.T, disks []convert.Disk, kind guest.FileSystem) (convert.FileSystem, convert.Mounted) {
	t.Helper()
	p := disks[0].Report.Partitions[0]
	m, err := ourAppliance(t).Mount(t.Context(), []convert.Volume{{Name: "sda1", Kind: kind, Device: disks[0].Overlay.Slice(t.Context(), p.Off, p.Len)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m.FileSystem(0), m
}

// ending is an appliance that something happens to at the first change.
type ending struct {
	*appliance.Appliance
	end func()
}

func (e ending) Mount(ctx context.Context, v []convert.Volume) (convert.Mounted, error) {
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

// Whatever becomes of the appliance before it has unmounted, no overlay has a change.
func TestApplianceThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	plain := diskOf(t, xfsOf(t, linux("/dev/sda1")))
	full := fullExt(t)
	for name, c := range map[string]struct {
		image     string
		appliance func(cancel func()) convert.Appliance
		kind      fault.Kind
		want      string
	}{
		"killed":        {plain, func(cancel func()) convert.Appliance { return ending{ourAppliance(t), cancel} }, fault.Canceled, "cancel"},
		"late":          {plain, func(func()) convert.Appliance { return with(t, appliance.Options{Deadline: time.Second}) }, fault.Transient, "console output"},
		"other program": {plain, func(func()) convert.Appliance { return with(t, appliance.Options{Program: "/sbin/ldconfig"}) }, fault.Unsupported, "console output"},
		"full":          {full, func(func()) convert.Appliance { return ourAppliance(t) }, fault.Full, "no space"},
	} {
		if name == "other program" && !lane.Slow {
			continue // it ends as "late" does, after a whole boot
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			disks := layered(t, c.image)
			_, err := convert.LinuxAppend(ctx, disks, convert.Options{Appliance: c.appliance(cancel)})
			if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %v with %q", err, c.kind, c.want)
			}
			if c.kind != fault.Canceled && fault.HintOf(err) == "" {
				t.Errorf("%v has no remedy", err)
			}
			if n := len(disks[0].Overlay.Changed()); n != 0 {
				t.Errorf("%d ranges were changed", n)
			}
		})
	}
}

// fullExt is a guest whose file system has no room, and a journal to be replayed.
func fullExt(t *testing.T) string {
	t.Helper()
	image := diskOf(t, extOf(t, linux("/dev/sda1")))
	disks := layered(t, image)
	fs, m := mounted(t, disks, guest.Ext4)
	if err := fs.WriteFile("fill", make([]byte, 60<<20), extwrite.Attr{Mode: 0o600}); !fault.Is(err, fault.Full) {
		t.Fatalf("60 MiB in 40: %v", err)
	}
	if err := fs.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, disks, image)
	return image
}

// with is our appliance with other options.
func with(t testing.TB, o appliance.Options) *appliance.Appliance {
	t.Helper()
	o.Kernel = kernelImage(t)
	if o.Program == "" {
		o.Program = decamp
	}
	return appliance.New(o)
}
