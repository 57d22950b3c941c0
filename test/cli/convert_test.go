package cli

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
	"github.com/decamp/decamp/test/lane"
)

// bench is a disk to convert, and a folder for the image.
type bench struct {
	*rig
	disk *vmdktest.Disk
	out  string
}

func newBench(t *testing.T, format string, megabytes int64) *bench {
	t.Helper()
	d, err := vmdktest.Chain{Seed: 3, Layers: []vmdktest.Layer{
		{Sectors: megabytes<<11 + 77, Data: 0.8, Run: 20},
		{Format: vmdktest.SESparse, Data: 0.2, Zero: 0.1, Unmapped: 0.1, Run: 40},
	}}.Write(t.TempDir())
	must(t, err)
	r := &rig{t: t, dir: t.TempDir()}
	return &bench{rig: r, disk: d, out: filepath.Join(r.dir, "x."+format)}
}

// begins starts a conversion that waits at its next event until the test reads it.
func (b *bench) begins() *under {
	b.t.Helper()
	u := &under{Cmd: b.command("convert", b.disk.Path(), b.out, "--json"), t: b.t}
	u.Stderr = &u.screen
	u.startStepwise()
	return u
}

// completes runs the command again and checks the result.
func (b *bench) completes() result {
	b.t.Helper()
	res := b.run("convert", b.disk.Path(), b.out).ends(0)
	b.whole()
	if left, _ := filepath.Glob(b.out + ".[pr]*"); len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
	return res
}

// whole checks what has the image's name.
func (b *bench) whole() {
	b.t.Helper()
	f := image.File{Path: b.out, Format: image.Format(filepath.Ext(b.out)[1:]), Size: b.disk.Want.Size()}
	src, err := f.Read(b.t.Context())
	must(b.t, err)
	defer src.Close()
	if err := b.disk.Want.Compare(b.t.Context(), src); err != nil {
		b.t.Error(err)
	}
}

// unpublished checks that nothing has the image's name.
func (b *bench) unpublished() {
	b.t.Helper()
	if _, err := os.Lstat(b.out); err == nil {
		b.t.Errorf("%s is there before it is whole", b.out)
	}
}

func TestConversionKilledOrInterruptedGoesOn(t *testing.T) {
	t.Parallel()
	for i, format := range []string{"raw", "qcow2"} {
		for j, m := range []moment{{journal.Noted, ""}, {journal.StepDone, "copy"}} {
			for k, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
				if (i+j+k)%2 > 0 && !lane.Slow {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %v", format, m.kind, s), func(t *testing.T) {
					t.Parallel()
					b := newBench(t, format, 48)
					u := b.begins()
					u.untilEvent(m.kind, m.step)
					u.end(s)
					if _, err := os.Lstat(b.out); err == nil && (m.kind == journal.StepDone || s == syscall.SIGINT) {
						b.whole() // it got its name before the result was printed, or before the signal was handled
						return
					}
					b.unpublished()
					res := b.completes()
					if m.kind == journal.StepDone && strings.Contains(res.stderr, "writing ") {
						t.Errorf("the image was complete and is written again: %s", res.stderr)
					}
				})
			}
		}
	}
}

// The conversion is killed repeatedly, each time a little later, until it ends before the kill.
func TestConversionKilledAtRandomTimes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, format, 96)
			for try := range map[bool]time.Duration{false: 6, true: 12}[lane.Slow] {
				u := b.begins()
				u.someEvents(1)
				<-time.After(rand.N(try*40*time.Millisecond + time.Millisecond))
				u.end(syscall.SIGKILL)
				if _, err := os.Lstat(b.out); err == nil { // an earlier try had copied all
					b.whole()
					must(t, os.Remove(b.out)) // from the beginning
				}
			}
			b.completes()
		})
	}
}

func TestTwoConversionsIntoOneImage(t *testing.T) {
	t.Parallel()
	b := newBench(t, "raw", 64)
	file := image.File{Path: b.out + ".partial", Format: image.Raw, Size: b.disk.Want.Size()}
	first, _, err := file.Open(t.Context())
	must(t, err)
	b.run("convert", b.disk.Path(), b.out).ends(6).says("Remedy: ")
	must(t, first.Close())
	b.completes()
}

func TestConversionWithoutSpaceGoesOn(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, format, 32)
			mount(t, b.dir, "size=16m")
			b.run("convert", b.disk.Path(), b.out).ends(9).says("Remedy: ")
			b.unpublished()
			remount(t, b.dir, "size=200m")
			b.completes()
		})
	}
}
