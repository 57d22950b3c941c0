package nfs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// requires skips a test whose judge is not installed.
func requires(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s: %v", program, err)
	}
}

// url is a file as libnfs names it.
func (r *rig) url(name string) string {
	return fmt.Sprintf("nfs://127.0.0.1/land/%s?nfsport=%s&mountport=%s", name, r.port(), r.port())
}

func (r *rig) run(name string, args ...string) []byte {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		r.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.String())
	}
	return out
}

// A file copied in and out by libnfs has the bytes it had.
func TestLibnfsCopiesInAndOut(t *testing.T) {
	requires(t, "nfs-cp")
	r := newRig(t, nil)
	want := pattern(5<<20 + 12345)
	in := t.TempDir() + "/in"
	if err := os.WriteFile(in, want, 0o644); err != nil {
		t.Fatal(err)
	}
	r.mkdir(r.root, "web 01")
	for _, name := range []string{"disk-flat.vmdk", "web 01/disk-flat.vmdk"} {
		r.run("nfs-cp", in, r.url(name))
		if got := r.get(name); got != string(want) {
			t.Errorf("%s was not copied in as it is", name)
		}
		out := t.TempDir() + "/out"
		r.run("nfs-cp", r.url(name), out)
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was not copied out as it is: %v", name, err)
		}
	}
	if got := r.run("nfs-cat", r.url("disk-flat.vmdk")); !bytes.Equal(got, want) {
		t.Error("nfs-cat shows something else")
	}
}

func TestLibnfsLists(t *testing.T) {
	requires(t, "nfs-ls")
	r := newRig(t, nil)
	const files = 500
	for i := range files {
		r.put(fmt.Sprintf("a rather long name to fill the pages of a listing %d", i), "x")
	}
	out := string(r.run("nfs-ls", r.url("")))
	if n := strings.Count(out, "a rather long name"); n != files {
		t.Errorf("nfs-ls shows %d files of %d", n, files)
	}
}

// pattern is n bytes that are not the same anywhere.
func pattern(n int) []byte {
	p := make([]byte, n)
	seed := uint64(n)
	for i := range p {
		if i%8 == 0 {
			seed = seed*6364136223846793005 + 1442695040888963407
		}
		p[i] = byte(seed >> (i % 8 * 8))
	}
	return p
}
