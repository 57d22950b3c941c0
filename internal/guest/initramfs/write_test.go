package initramfs

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget"
)

// Written archives are readable by Walk and by cpio. The files of an appended archive replace earlier ones.
func TestAppendedArchivesReplaceFiles(t *testing.T) {
	var w Writer
	w.DirsBelow("lib", "lib/modules/6.1/kernel/a/x.ko")
	w.File("lib/modules/6.1/kernel/a/x.ko", []byte("odd"))
	w.DirsBelow("lib", "lib/modules/6.1/kernel/b/y.ko")
	w.File("conf/initramfs.conf", []byte("MODULES=dep\n"))
	added := w.Bytes()
	list := string(runTool(t, "", added, "cpio", "-it", "--quiet"))
	want := "lib/modules\nlib/modules/6.1\nlib/modules/6.1/kernel\nlib/modules/6.1/kernel/a\nlib/modules/6.1/kernel/a/x.ko\nlib/modules/6.1/kernel/b\nconf/initramfs.conf\n"
	if list != want {
		t.Errorf("cpio lists %q, want %q", list, want)
	}
	before := runTool(t, "", fullArchive(t), "gzip")
	image := slices.Concat(before, make([]byte, 4+-len(before)&3), runTool(t, "", added, "gzip"))
	seen := map[string]string{}
	c, err := Walk(newBudget(t), bytes.NewReader(image), func(name string, body io.Reader) error {
		text, err := io.ReadAll(body)
		seen[name] = string(text)
		return err
	})
	if err != nil || seen["conf/initramfs.conf"] != "MODULES=dep\n" || len(seen["init"]) != 50_000 || !hasModules(c, "x", "virtio_blk") {
		t.Errorf("%d files, %v, %v", len(seen), c.Modules, err)
	}
}

// An error of the callback ends Walk. Content that the callback does not read is skipped.
func TestWalkStops(t *testing.T) {
	stop, calls := errors.New("enough"), 0
	_, err := Walk(newBudget(t), bytes.NewReader(fullArchive(t)), func(string, io.Reader) error {
		if calls++; calls == 3 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || calls != 3 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

func TestUnpack(t *testing.T) {
	module := []byte("\x7fELF" + strings.Repeat("module ", 5000))
	for name, command := range compressors() {
		data := runTool(t, "", module, command[0], command[1:]...)
		if got, err := Unpack(newBudget(t), data, 1<<20); err != nil || !bytes.Equal(got, module) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if _, err := Unpack(newBudget(t), data, 1000); err == nil && name != "none" {
			t.Errorf("%s: Unpack exceeds the limit", name)
		}
	}
	if _, err := Unpack(newBudget(t), []byte("neither"), 100); err == nil {
		t.Error("Unpack accepts a file that is not a module")
	}
}

// The unpacked content is charged before it is allocated, and the charge is released if it is not returned.
func TestUnpackIsCharged(t *testing.T) {
	const size = 3 << 20
	data := runTool(t, "", make([]byte, size), "gzip")
	b := newBudget(t)
	got, err := Unpack(b, data, size)
	if u := b.Used(); err != nil || len(got) != size || u.Memory != int64(cap(got)) {
		t.Errorf("%d bytes, capacity %d, %v, charged: %+v", len(got), cap(got), err, u)
	}
	b = newBudget(t)
	if got, err := Unpack(b, data, size-1); err == nil || got != nil || b.Used().Memory != 0 {
		t.Errorf("beyond its limit: %d bytes, %v, charged: %+v", len(got), err, b.Used())
	}
	small := budget.Examination()
	small.Memory = 2 << 20
	b, cancel := budget.New(t.Context(), small)
	defer cancel()
	var limit *budget.Error
	if got, err := Unpack(b, data, size); !errors.As(err, &limit) || got != nil || b.Used().Memory != 0 {
		t.Errorf("beyond the budget: %d bytes, %v, charged: %+v", len(got), err, b.Used())
	}
}
