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

// conversion is a source disk and the path of the image.
type conversion struct {
	*rig
	disk *vmdktest.Disk
	out  string
}

func newConversion(t *testing.T, format string, megabytes int64) *conversion {
	t.Helper()
	d, err := vmdktest.Chain{Seed: 3, Layers: []vmdktest.Layer{
		{Sectors: megabytes<<11 + 77, Data: 0.8, Run: 20},
		{Format: vmdktest.SESparse, Data: 0.2, Zero: 0.1, Unmapped: 0.1, Run: 40},
	}}.Write(t.TempDir())
	must(t, err)
	r := &rig{t: t, dir: t.TempDir()}
	return &conversion{rig: r, disk: d, out: filepath.Join(r.dir, "x."+format)}
}

// start starts a decamp convert that waits at its next event until the test reads it.
func (b *conversion) start() *migration {
	b.t.Helper()
	u := &migration{Cmd: b.command("convert", b.disk.Path(), b.out, "--json"), t: b.t}
	u.Stderr = &u.stderr
	u.startStepwise()
	return u
}

// complete runs decamp convert to its end and checks the result.
func (b *conversion) complete() result {
	b.t.Helper()
	res := b.run("convert", b.disk.Path(), b.out).wantExit(0)
	b.checkImage()
	if left, _ := filepath.Glob(b.out + ".[pr]*"); len(left) > 0 {
		b.t.Errorf("temporary files are left: %v", left)
	}
	return res
}

// checkImage compares the published image with the source disk.
func (b *conversion) checkImage() {
	b.t.Helper()
	f := image.File{Path: b.out, Format: image.Format(filepath.Ext(b.out)[1:]), Size: b.disk.Want.Size()}
	src, err := f.Read(b.t.Context())
	must(b.t, err)
	defer src.Close()
	if err := b.disk.Want.Compare(b.t.Context(), src); err != nil {
		b.t.Error(err)
	}
}

// checkUnpublished checks that the image does not exist yet.
func (b *conversion) checkUnpublished() {
	b.t.Helper()
	if _, err := os.Lstat(b.out); err == nil {
		b.t.Errorf("%s exists before it is complete", b.out)
	}
}

func TestKilledOrInterruptedConversionResumes(t *testing.T) {
	t.Parallel()
	for i, format := range []string{"raw", "qcow2"} {
		for j, m := range []moment{{journal.Noted, ""}, {journal.StepDone, "copy"}} {
			for k, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
				if (i+j+k)%2 > 0 && !lane.Slow {
					continue
				}
				t.Run(fmt.Sprintf("%s %s %v", format, m.kind, s), func(t *testing.T) {
					t.Parallel()
					b := newConversion(t, format, 48)
					u := b.start()
					u.untilEvent(m.kind, m.step)
					u.endWith(s)
					if _, err := os.Lstat(b.out); err == nil && (m.kind == journal.StepDone || s == syscall.SIGINT) {
						b.checkImage() // published before the result was printed, or before the signal was handled
						return
					}
					b.checkUnpublished()
					res := b.complete()
					if m.kind == journal.StepDone && strings.Contains(res.stderr, "writing ") {
						t.Errorf("a complete image is written again: %s", res.stderr)
					}
				})
			}
		}
	}
}

// A conversion that is killed several times, each time after a random delay, still creates a correct image.
func TestConversionKilledAtRandomTimes(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			b := newConversion(t, format, 96)
			for try := range map[bool]time.Duration{false: 6, true: 12}[lane.Slow] {
				u := b.start()
				u.readEvents(1)
				<-time.After(rand.N(try*40*time.Millisecond + time.Millisecond))
				u.endWith(syscall.SIGKILL)
				if _, err := os.Lstat(b.out); err == nil { // the conversion ended before the kill
					b.checkImage()
					must(t, os.Remove(b.out)) // the next try starts from the beginning
				}
			}
			b.complete()
		})
	}
}

func TestTwoConversionsIntoOneImage(t *testing.T) {
	t.Parallel()
	b := newConversion(t, "raw", 64)
	file := image.File{Path: b.out + ".partial", Format: image.Raw, Size: b.disk.Want.Size()}
	first, _, err := file.Open(t.Context())
	must(t, err)
	b.run("convert", b.disk.Path(), b.out).wantExit(6).wantOutput("Remedy: ")
	must(t, first.Close())
	b.complete()
}

func TestConversionResumesAfterFullDisk(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			b := newConversion(t, format, 32)
			mountTmpfs(t, b.dir, "size=16m")
			b.run("convert", b.disk.Path(), b.out).wantExit(9).wantOutput("Remedy: ")
			b.checkUnpublished()
			remountTmpfs(t, b.dir, "size=200m")
			b.complete()
		})
	}
}
