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

// requireTool skips the test if a program is not installed.
func requireTool(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s: %v", program, err)
	}
}

// fileURL returns the URL of a file for libnfs.
func (r *rig) fileURL(name string) string {
	return fmt.Sprintf("nfs://127.0.0.1/land/%s?nfsport=%s&mountport=%s", name, r.port(), r.port())
}

func (r *rig) runTool(name string, args ...string) []byte {
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

// A file that libnfs copies to the export and back keeps its content.
func TestLibnfsCopies(t *testing.T) {
	requireTool(t, "nfs-cp")
	r := newRig(t, nil)
	want := testPattern(5<<20 + 12345)
	in := t.TempDir() + "/in"
	if err := os.WriteFile(in, want, 0o644); err != nil {
		t.Fatal(err)
	}
	r.mkdir(r.root, "web 01")
	for _, name := range []string{"disk-flat.vmdk", "web 01/disk-flat.vmdk"} {
		r.runTool("nfs-cp", in, r.fileURL(name))
		if got := r.readFile(name); got != string(want) {
			t.Errorf("%s differs after the copy to the export", name)
		}
		out := t.TempDir() + "/out"
		r.runTool("nfs-cp", r.fileURL(name), out)
		if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs after the copy from the export, error %v", name, err)
		}
	}
	if got := r.runTool("nfs-cat", r.fileURL("disk-flat.vmdk")); !bytes.Equal(got, want) {
		t.Error("the output of nfs-cat differs from the file")
	}
}

func TestLibnfsLists(t *testing.T) {
	requireTool(t, "nfs-ls")
	r := newRig(t, nil)
	const files = 500
	for i := range files {
		r.writeFile(fmt.Sprintf("a rather long name to fill the pages of a listing %d", i), "x")
	}
	out := string(r.runTool("nfs-ls", r.fileURL("")))
	if n := strings.Count(out, "a rather long name"); n != files {
		t.Errorf("nfs-ls lists %d files, want %d", n, files)
	}
}

// testPattern returns n pseudo-random bytes. The content depends only on n.
func testPattern(n int) []byte {
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
