package guest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/guest/bombs"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	tinyguest "github.com/decamp/decamp/test/guest"
)

// maxBombAlloc limits the bytes that one examination allocates in total, including released ones.
const maxBombAlloc = 1 << 30

// Each bomb is examined within the limits of memory and work, and the report names the limit. A cancellation ends
// the examination in every reader.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, bomb := range bombs.All() {
		t.Run(bomb.Name, func(t *testing.T) {
			image := bomb.Disk()
			b := budgettest.New(t)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			reads := 0
			reports, err := detectAll(t.Context(), b, []disk.Source{countingDisk{image, &reads}})
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatal(err)
			}
			u := b.Used()
			t.Logf("%d MiB allocated, %+v", (after.TotalAlloc-before.TotalAlloc)>>20, u)
			const last = 1 << 20 // one charge may exceed a limit
			if l := budget.Examination(); u.Peak > l.Memory || u.Read > l.Read+last || u.Steps > l.Steps+last || u.Unpacked > l.Unpacked {
				t.Errorf("usage %+v exceeds the limits", u)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > maxBombAlloc {
				t.Errorf("%d MiB allocated, want at most %d", got>>20, maxBombAlloc>>20)
			}
			if got := limitOf(reports[0]); (got == "") != (bomb.Limit == "") || !strings.Contains(got, bomb.Limit) {
				t.Errorf("limit in the warnings: %q, want %q\nwarnings %v", got, bomb.Limit, reports[0].Warnings)
			}
			if bomb.Name == packedInitramfs {
				checkInitramfsNotExamined(t, reports[0])
			}
			for _, at := range []int{2, 20} {
				if at <= reads {
					checkCancellation(t, image, at)
				}
			}
		})
	}
}

// limitOf returns the warning that something is not examined.
func limitOf(r Report) string {
	for _, w := range r.Warnings {
		if strings.Contains(w.Text, "not examined") {
			return w.Text
		}
	}
	return ""
}

// packedInitramfs is the name of a bomb whose guest can be examined except for the initramfs.
const packedInitramfs = "initramfs: a gzip archive of 1 GiB"

// checkInitramfsNotExamined verifies that an initramfs that reaches a limit leaves the rest of the guest examined.
func checkInitramfsNotExamined(t *testing.T, r Report) {
	t.Helper()
	if r.Linux == nil || len(r.Linux.Kernels) != 1 || !r.Linux.Kernels[0].Unread || !strings.Contains(r.Verdict, "boot/initrd.img-6.1.0 is not examined: ") {
		t.Errorf("verdict %q, Linux %+v", r.Verdict, r.Linux)
	}
	if err := Examined([]Report{{}, r}); err == nil || !strings.Contains(err.Error(), "packed into") {
		t.Errorf("Examined: got %v, want an error about the initramfs", err)
	}
}

// If the budget is exhausted, the report contains no partial data about the guest.
func TestGuestNotExamined(t *testing.T) {
	r := examineBomb(t, "configuration: 500 files of YAML")
	if r.Linux != nil || r.OS.ID != "debian" || !strings.HasPrefix(r.Verdict, "not examined: it requires more than ") {
		t.Errorf("verdict %q, OS %+v, Linux %+v", r.Verdict, r.OS, r.Linux)
	}
	if len(r.Warnings) != 1 || r.Warnings[0].Code != NotExamined || Examined([]Report{r}) == nil {
		t.Errorf("warnings %v, want only %s", r.Warnings, NotExamined)
	}
}

func examineBomb(t *testing.T, name string) Report {
	t.Helper()
	r, err := Detect(t.Context(), bombDisk(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// bombDisk returns the disk of a bomb.
func bombDisk(t testing.TB, name string) *bombs.Image {
	t.Helper()
	for _, bomb := range bombs.All() {
		if bomb.Name == name {
			return bomb.Disk()
		}
	}
	t.Fatalf("no bomb %q", name)
	return nil
}

// A hole whose size in bytes exceeds 64 bits is refused.
func TestOversizedNTFSHoleIsRefused(t *testing.T) {
	r := examineBomb(t, "NTFS: a hole of 2^63 bytes")
	if len(r.Warnings) != 1 || r.Warnings[0].Code != "file-system" || !strings.Contains(r.Warnings[0].Text, "a run of 8796093022208 clusters") {
		t.Errorf("warnings %v", r.Warnings)
	}
}

// stalledDisk is a disk whose reads block from an offset on, until their context ends.
type stalledDisk struct {
	disk.Source
	from int64
}

func (s stalledDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off >= s.from {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Source.ReadAt(ctx, p, off)
}

// An expired deadline is not an error: the report contains the results until then.
func TestDeadlineOfDetect(t *testing.T) {
	answers, stalls := bombs.All()[0].Disk(), stalledDisk{bombs.All()[0].Disk(), 0}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		reports, err := DetectAll(t.Context(), []disk.Source{answers, stalls})
		if err != nil {
			t.Fatal(err)
		}
		want := "not examined: it takes longer than 5m0s"
		if took := time.Since(began); took != 5*time.Minute || reports[0].Verdict != want || reports[1].Verdict != "" || reports[0].WholeDisk != Ext4 {
			t.Errorf("after %v: %+v", took, reports)
		}
		for _, r := range reports {
			if len(r.Warnings) != 1 || r.Warnings[0].Code != NotExamined || !strings.HasPrefix(r.Warnings[0].Text, want) {
				t.Errorf("warnings %v, want only %q", r.Warnings, want)
			}
		}
	})
}

// countingDisk counts the reads of a disk.
type countingDisk struct {
	disk.Source
	reads *int
}

func (c countingDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	*c.reads++
	return c.Source.ReadAt(ctx, p, off)
}

// cancelingDisk is a disk that calls cancel at one of its reads.
type cancelingDisk struct {
	disk.Source
	left   *int
	cancel context.CancelFunc
}

func (c cancelingDisk) ReadAt(_ context.Context, p []byte, off int64) error {
	if *c.left--; *c.left == 0 {
		c.cancel()
	}
	return c.Source.ReadAt(context.Background(), p, off)
}

// checkCancellation verifies that a cancellation at a read ends the examination within few reads, although the
// disk still answers.
func checkCancellation(t *testing.T, image disk.Source, at int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b, release := budget.New(ctx, budget.Examination())
	defer release()
	left := at
	if _, err := detectAll(ctx, b, []disk.Source{cancelingDisk{image, &left, cancel}}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled at read %d: %v", at, err)
	}
	if late := -left; late > 40 {
		t.Errorf("canceled at read %d: %d reads later", at, late)
	}
}

// Real guests use less than 1 % of the limits.
func TestBudgetOfRealGuests(t *testing.T) {
	for _, name := range []tinyguest.Name{tinyguest.BIOS, tinyguest.UEFI, tinyguest.NoVirtio, tinyguest.Vendor} {
		src, err := rawfile.OpenSource(tinyguest.Image(t, name), rawfile.SourceOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		b := budgettest.New(t)
		if _, err := detectAll(t.Context(), b, []disk.Source{src}); err != nil {
			t.Fatal(err)
		}
		if u, l := b.Used(), budget.Examination(); u.Read > l.Read/100 || u.Steps > l.Steps/100 || u.Peak > l.Memory/100 || u.Unpacked > l.Unpacked/100 {
			t.Errorf("%s: usage %+v exceeds 1 %% of the limits", name, u)
		}
	}
}
