package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble/diskimage"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
	"github.com/decamp/decamp/test/lane"
)

// newChain writes a disk of three layers with data, zeros, an odd size, and a part that a later layer adds.
func newChain(t *testing.T) *vmdktest.Disk {
	t.Helper()
	return writeChain(t, vmdktest.Chain{Seed: 1, Name: "web01", Layers: []vmdktest.Layer{
		{Sectors: vmdktest.Odd, Data: 0.5},
		{Format: vmdktest.SESparse, Data: 0.2, Zero: 0.1, Unmapped: 0.1, Run: 3},
		{Format: vmdktest.SESparse, Sectors: vmdktest.Odd + 4096, Data: 0.1, Zero: 0.1, Run: 3},
	}})
}

// newStreamDisk writes a stream-optimized disk, as in OVF exports.
func newStreamDisk(t *testing.T) *vmdktest.Disk {
	t.Helper()
	return writeChain(t, vmdktest.Chain{Seed: 2, Name: "web01", Layers: []vmdktest.Layer{
		{Format: vmdktest.Stream, Sectors: vmdktest.Odd, Data: 0.3, Run: 5},
	}})
}

func writeChain(t *testing.T, c vmdktest.Chain) *vmdktest.Disk {
	t.Helper()
	d, err := c.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mustExit runs decamp and checks its exit code.
func (r *testProgram) mustExit(code int, args ...string) {
	r.t.Helper()
	if got := r.run(r.t.Context(), args); got != code {
		r.t.Fatalf("decamp %s: exit code %d, want %d: %s%s", strings.Join(args, " "), got, code, r.stderr(), r.out)
	}
}

// openImage opens a converted image.
func openImage(t *testing.T, path string) disk.Source {
	t.Helper()
	var src disk.Source
	var err error
	if filepath.Ext(path) == ".qcow2" {
		src, err = qcow2.OpenSource(path, qcow2.SourceOptions{})
	} else {
		src, err = rawfile.OpenSource(path, rawfile.SourceOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// wantImage checks the content of the image, that its manifest is sealed, and that no temporary files remain.
func wantImage(t *testing.T, path string, want *vmdktest.Overlay) {
	t.Helper()
	if err := want.Compare(t.Context(), openImage(t, path)); err != nil {
		t.Error(err)
	}
	s, err := manifest.Load(path + ".manifest")
	if err != nil {
		t.Fatal(err)
	}
	if s.Info().Size != want.Size() {
		t.Errorf("got manifest %v", s.Info())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(path + ".[pr]*"); len(left) > 0 {
		t.Errorf("temporary files remain: %v", left)
	}
}

func TestConvertAChain(t *testing.T) {
	d := newChain(t)
	for _, name := range []string{"x.raw", "x.img", "x.qcow2"} {
		out := filepath.Join(t.TempDir(), name)
		r := newTestProgram(t)
		r.mustExit(0, "convert", d.Path(), out, "--sums")
		wantImage(t, out, d.Want)
		mustContain(t, r.out.String(), out, "root", "sha256", "the whole image, read from")
		if r.stderr() != "writing "+out+" from its beginning\n" {
			t.Errorf("got standard error %q", r.stderr())
		}
	}
}

// The content of each converted flavour is that of its generator. The tests of vmdktest compare the generator with
// qemu-img.
func TestConvertEveryFlavour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for i, recipe := range vmdktest.Recipes() {
		if i%4 > 0 && !lane.Slow {
			continue // the tests of package vmdk read all recipes
		}
		t.Run(recipe.Name, func(t *testing.T) {
			t.Parallel()
			d := writeChain(t, recipe.Chain)
			out := filepath.Join(t.TempDir(), "x.qcow2")
			newTestProgram(t).mustExit(0, "convert", d.Path(), out, "--no-verify")
			wantImage(t, out, d.Want)
		})
	}
}

func TestConvertTheStandardInput(t *testing.T) {
	d := newStreamDisk(t)
	r := newTestProgram(t)
	var err error
	if r.in, err = os.Open(d.Path()); err != nil {
		t.Fatal(err)
	}
	defer r.in.Close()
	out := filepath.Join(t.TempDir(), "x.qcow2")
	r.mustExit(0, "convert", "-", out)
	wantImage(t, out, d.Want)
}

func TestConvertStopsWhileStandardInputIsIdle(t *testing.T) {
	d := newStreamDisk(t)
	whole, err := os.ReadFile(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	pipe, into, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer into.Close()           // after the command, so that the pipe stays open
	go into.Write(whole[:1<<16]) // less than the capacity of the pipe
	r := newTestProgram(t)
	r.in = pipe
	out := filepath.Join(t.TempDir(), "x.raw")
	ctx, cancel := contextUntil(t, func() bool { return fileExists(out + ".partial") })
	defer cancel()
	if code := r.run(ctx, []string{"convert", "-", out}); code != 130 {
		t.Errorf("exit code %d: %s", code, r.stderr())
	}
}

func TestConvertTruncatedStreamPublishesNothing(t *testing.T) {
	d := newStreamDisk(t)
	st, err := os.Stat(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.Path(), st.Size()/2); err != nil {
		t.Fatal(err)
	}
	r := newTestProgram(t)
	if r.in, err = os.Open(d.Path()); err != nil {
		t.Fatal(err)
	}
	defer r.in.Close()
	out := filepath.Join(t.TempDir(), "x.raw")
	r.mustExit(8, "convert", "-", out)
	if fileExists(out) || fileExists(out+".manifest") {
		t.Error("an image of a truncated disk was published")
	}
}

func TestVerifyAConvertedImage(t *testing.T) {
	d := newChain(t)
	for _, name := range []string{"x.raw", "x.qcow2"} {
		out := filepath.Join(t.TempDir(), name)
		newTestProgram(t).mustExit(0, "convert", d.Path(), out)
		r := newTestProgram(t)
		r.mustExit(0, "verify", out)
		mustContain(t, r.out.String(), name, "sha256", out+" is identical with the copied data.")
		newTestProgram(t).mustExit(2, "verify", out, "--spot", "1M", "--source", "esxi://root@h")

		info, err := os.Stat(out)
		if err != nil {
			t.Fatal(err)
		}
		overwriteMiB(t, out)
		if err := os.Chtimes(out, info.ModTime(), info.ModTime()); err != nil { // as after a storage failure
			t.Fatal(err)
		}
		r = newTestProgram(t)
		r.mustExit(8, "verify", out)
		mustContain(t, r.out.String(), "BAD")
		if err := os.Remove(out + ".manifest"); err != nil {
			t.Fatal(err)
		}
		newTestProgram(t).mustExit(3, "verify", out)
	}
}

// overwriteMiB writes to one MiB near the end of an image.
func overwriteMiB(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err == nil {
		_, err = f.WriteAt(bytes.Repeat([]byte{0xEE}, 1<<20), info.Size()-6<<20)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// decamp verify does not report the writes of a started VM as corruption.
func TestVerifyDoesNotReportWritesAsCorruption(t *testing.T) {
	d := newChain(t)
	for _, name := range []string{"x.raw", "x.qcow2"} {
		out := filepath.Join(t.TempDir(), name)
		newTestProgram(t).mustExit(0, "convert", d.Path(), out)
		overwriteMiB(t, out)
		r := newTestProgram(t)
		r.mustExit(11, "verify", out)
		mustContain(t, r.stderr(), "changed since it was published, as expected after a start")
		if text := r.stderr() + r.out.String(); strings.Contains(text, "BAD") || strings.Contains(text, "again") {
			t.Errorf("got output %s", text)
		}
	}
}

func TestConvertAsJSON(t *testing.T) {
	d := newChain(t)
	r := newTestProgram(t)
	out := filepath.Join(t.TempDir(), "x.qcow2")
	r.mustExit(0, "convert", d.Path(), out, "--json")
	lines := strings.Split(strings.TrimSpace(r.out.String()), "\n")
	var got diskimage.Result
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatal(err)
	}
	if got.Out != out || got.Size != d.Want.Size() || got.Verified == nil || got.Verified.Root != got.Root || got.Warnings == nil {
		t.Errorf("got %+v", got)
	}
	if r.stderr() != "" {
		t.Errorf("got standard error %s", r.stderr())
	}
}

func TestConvertOverwritesOnlyWithForce(t *testing.T) {
	d := newChain(t)
	out := filepath.Join(t.TempDir(), "x.raw")
	if err := os.WriteFile(out, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newTestProgram(t)
	r.mustExit(6, "convert", d.Path(), out)
	mustContain(t, r.stderr(), "already exists", "--force")
	if text, err := os.ReadFile(out); string(text) != "mine" {
		t.Fatalf("the file has %d bytes now, %v", len(text), err)
	}
	r.mustExit(0, "convert", d.Path(), out, "--force", "--no-verify")
	wantImage(t, out, d.Want)
	mustContain(t, r.out.String(), "no, because of --no-verify")
}

// decamp convert resumes a partial image if the disk did not change. Otherwise it starts again.
func TestConvertResumes(t *testing.T) {
	d := newChain(t)
	out := filepath.Join(t.TempDir(), "x.raw")
	newTestProgram(t).mustExit(0, "convert", d.Path(), out)
	makePartial(t, out)
	r := newTestProgram(t)
	r.mustExit(0, "convert", d.Path(), out)
	wantImage(t, out, d.Want)
	mustContain(t, r.stderr(), "with 6 of 9 chunks durable")

	makePartial(t, out)
	base := filepath.Join(d.Folder, "web01-flat.vmdk")
	if err := os.Chtimes(base, time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	r = newTestProgram(t)
	r.mustExit(0, "convert", d.Path(), out)
	wantImage(t, out, d.Want)
	mustContain(t, r.stderr(), "writing ", " again: ", "from its beginning")
}

// makePartial turns a finished image into a partial image without three chunks.
func makePartial(t *testing.T, out string) {
	t.Helper()
	if err := errors.Join(os.Rename(out, out+".partial"), os.Rename(out+".manifest", out+".partial.manifest")); err != nil {
		t.Fatal(err)
	}
	log, err := manifest.Open(out + ".partial.manifest")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.Drop(4, 3), log.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(out+".partial", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xEE}, 3<<20), 4<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// decamp convert finds a corrupt chunk before it publishes the image. The same command repairs it.
func TestConvertFindsCorruptChunks(t *testing.T) {
	d := newChain(t)
	out := filepath.Join(t.TempDir(), "x.raw")
	newTestProgram(t).mustExit(0, "convert", d.Path(), out)
	if err := errors.Join(os.Rename(out, out+".partial"), os.Rename(out+".manifest", out+".partial.manifest")); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(out+".partial", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("flipped bits"), 5<<20+77)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	r := newTestProgram(t)
	r.mustExit(8, "convert", d.Path(), out)
	mustContain(t, r.stderr(), "at 5242880", "run the same command again")
	if fileExists(out) {
		t.Error("the corrupt image was published")
	}
	r = newTestProgram(t)
	r.mustExit(0, "convert", d.Path(), out)
	wantImage(t, out, d.Want)
	mustContain(t, r.stderr(), "with 8 of 9 chunks durable")
}

func TestConvertQCOW2AndRaw(t *testing.T) {
	d := newChain(t)
	dir := t.TempDir()
	steps := []string{d.Path(), filepath.Join(dir, "a.qcow2"), filepath.Join(dir, "b.raw"), filepath.Join(dir, "c.qcow2")}
	for i := range 3 {
		newTestProgram(t).mustExit(0, "convert", steps[i], steps[i+1])
		wantImage(t, steps[i+1], d.Want)
	}
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Fatal("qemu-img is not installed: run scripts/setup.sh")
	}
	if out, err := exec.Command("qemu-img", "compare", steps[2], steps[3]).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestConvertChainWithMovedParent(t *testing.T) {
	d := writeChain(t, vmdktest.Chain{Seed: 4, Name: "web01", Layers: []vmdktest.Layer{
		{Sectors: vmdktest.Odd, Data: 0.5},
		{Format: vmdktest.COWD, Data: 0.2, Run: 5, Text: vmdktest.Text{
			Parent: "/vmfs/volumes/5f0c-11/base/web01.vmdk", ParentCID: "12345678",
		}},
	}})
	elsewhere := t.TempDir()
	for _, name := range []string{"web01.vmdk", "web01-flat.vmdk"} {
		if err := os.Rename(filepath.Join(d.Folder, name), filepath.Join(elsewhere, name)); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(t.TempDir(), "x.raw")
	newTestProgram(t).mustExit(3, "convert", d.Path(), out)
	r := newTestProgram(t)
	r.mustExit(6, "convert", d.Path(), out, "--folder", elsewhere)
	mustContain(t, r.stderr(), "12345678", "--ignore-cid")
	r = newTestProgram(t)
	r.mustExit(0, "convert", d.Path(), out, "--folder", elsewhere, "--ignore-cid")
	wantImage(t, out, d.Want)
	mustContain(t, r.stderr(), "Warning: ", "12345678")
}

func TestConvertRefuses(t *testing.T) {
	d := newChain(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "x.raw")
	noise := filepath.Join(dir, "noise")
	if err := os.WriteFile(noise, []byte("\x00\x01\x02"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		code    int
		args    []string
		message string
	}{
		{"no format", 2, []string{d.Path(), filepath.Join(dir, "x")}, "use --format"},
		{"invalid format", 2, []string{d.Path(), out, "--format", "vhd"}, "want raw or qcow2"},
		{"invalid kind", 2, []string{d.Path(), out, "--from", "vhd"}, "want vmdk, qcow2 or raw"},
		{"flags of files for a stream", 2, []string{"-", out, "--ignore-cid"}, "are not supported"},
		{"sums without verification", 2, []string{d.Path(), out, "--sums", "--no-verify"}, "exclude each other"},
		{"no such file", 3, []string{filepath.Join(dir, "gone.vmdk"), out}, "no such file"},
		{"no such folder", 3, []string{d.Path(), filepath.Join(dir, "no", "x.raw")}, "mkdir -p"},
		{"flat file", 2, []string{filepath.Join(d.Folder, "web01-flat.vmdk"), out}, "web01.vmdk"},
		{"noise", 7, []string{noise, out}, "--from raw"},
		{"same file", 2, []string{d.Path(), d.Path(), "--format", "raw", "--force"}, "is the input disk"},
		{"a folder", 6, []string{d.Path(), dir, "--format", "raw", "--force"}, "is not a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTestProgram(t)
			r.mustExit(c.code, append([]string{"convert"}, c.args...)...)
			mustContain(t, r.stderr(), c.message)
			if left, _ := filepath.Glob(out + "*"); len(left) > 0 {
				t.Errorf("temporary files remain: %v", left)
			}
		})
	}
}

func TestInspectAChain(t *testing.T) {
	d := newChain(t)
	r := newTestProgram(t)
	r.mustExit(0, "inspect", d.Path())
	golden(t, "testdata/inspect.txt", r.out.String())

	r = newTestProgram(t)
	r.mustExit(0, "inspect", d.Path(), "--json")
	var got inspected
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Layers) != 3 || got.Size != d.Want.Size() || got.Usage.Data+got.Usage.Zero != got.Size {
		t.Errorf("got %+v", got)
	}
	for _, l := range got.Layers {
		if l.Usage.Data+l.Usage.Zero+l.Usage.Absent != l.Size {
			t.Errorf("layer %s: usage %+v of %d bytes", l.Name, l.Usage, l.Size)
		}
	}
}

func TestInspectImages(t *testing.T) {
	d := newChain(t)
	out := filepath.Join(t.TempDir(), "x.qcow2")
	newTestProgram(t).mustExit(0, "convert", d.Path(), out)
	r := newTestProgram(t)
	r.mustExit(0, "inspect", out)
	mustContain(t, r.out.String(), "x.qcow2: qcow2", "64 KiB  -    -       6.6 MiB  1.5 MiB")
}

func TestInspectShowsWarnings(t *testing.T) {
	d := newChain(t)
	r := newTestProgram(t)
	r.mustExit(0, "inspect", filepath.Join(d.Folder, "web01-000002-sesparse.vmdk"))
	mustContain(t, r.out.String(), "Warnings", "has no descriptor")
	r = newTestProgram(t)
	r.mustExit(2, "inspect", "-")
}

// contextUntil returns a context that is canceled when cond returns true.
func contextUntil(t *testing.T, cond func() bool) (context.Context, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for ctx.Err() == nil && !cond() {
			runtime.Gosched()
		}
		cancel()
	}()
	return ctx, func() { cancel(); <-watching }
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// decamp inspect --guest reads a disk with a file system and without a partition table.
func TestInspectTheGuest(t *testing.T) {
	packed, err := os.Open("../../internal/guest/ext/testdata/ext4.img.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "seed.raw")
	if err := os.WriteFile(disk, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newTestProgram(t)
	r.mustExit(0, "inspect", disk, "--guest")
	mustContain(t, r.out.String(), "Guest: Seed OS 3\n  will boot only with the compat profile: no kernel was found\n")
	r = newTestProgram(t)
	r.mustExit(0, "inspect", disk, "--guest", "--json")
	var got inspected
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Guest == nil || got.Guest.OS.ID != "seed" || got.Guest.Linux == nil {
		t.Errorf("got guest %+v", got.Guest)
	}
	r = newTestProgram(t)
	if r.mustExit(0, "inspect", disk); strings.Contains(r.out.String(), "Guest:") {
		t.Error("decamp inspect reads the guest without --guest")
	}
}
