package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "order")
	for _, want := range []struct {
		content string
		mode    fs.FileMode
	}{{"a long first content", 0o644}, {"short", 0o600}, {"", 0o600}} {
		if err := Replace(path, []byte(want.content), want.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want.content {
			t.Errorf("content %q, %v", got, err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != want.mode {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
	}
	checkNames(t, dir, "order")
}

// A failed Replace keeps the existing entries and leaves no temporary file.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "taken", "by a folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "taken"), []byte("x"), 0o600); err == nil {
		t.Error("Replace of a folder succeeds")
	}
	checkNames(t, dir, "taken")
	if err := Replace(filepath.Join(dir, "no", "folder"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

// A reader always reads one complete content while other goroutines replace the file.
func TestReplaceConcurrently(t *testing.T) {
	const writers, times = 4, 50
	dir := t.TempDir()
	path := filepath.Join(dir, "order")
	content := func(i int) string { return strings.Repeat(fmt.Sprint(i), 10_000+i) }
	if err := Replace(path, []byte(content(0)), 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for range times {
				if err := Replace(path, []byte(content(i)), 0o600); err != nil {
					t.Error(err)
				}
				got, err := os.ReadFile(path)
				if err != nil || len(got) == 0 || string(got) != content(int(got[0]-'0')) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
	all.Wait()
	checkNames(t, dir, "order")
}

func TestSync(t *testing.T) {
	dir := t.TempDir()
	if err := Sync(dir); err != nil {
		t.Error(err)
	}
	if err := Sync(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

func checkNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("the folder has %q, want %q", names, want)
	}
}
