package qcow2

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

// TestRemedyCommandsWork runs the command in the remedy of each refusal in a shell. The command creates a readable image,
// even if the name of the image has special characters for shells or qemu-img.
func TestRemedyCommandsWork(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	skipWithout(t, "qemu-img")
	skipWithout(t, "qemu-io")
	const key = "secret,id=s,data=x"
	encryption := []string{"--object", key, "-o", "encrypt.format=aes,encrypt.key-secret=s"}
	if lane.Slow { // slow: qemu-img benchmarks its hash for a second
		encryption[3] = "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10"
	}
	for name, c := range map[string]struct {
		args []string
		open string // options of qemu-io
	}{
		"it's, a disk": {encryption, "encrypt.key-secret=s,"},
		"$HOME":        {[]string{"-o", "data_file=data"}, ""},
		"-rf":          {[]string{"-b", "base", "-F", "qcow2"}, ""},
		"nbd:disk":     {[]string{"-b", "base", "-F", "qcow2"}, ""},
	} {
		dir := t.TempDir()
		t.Chdir(dir)
		if err := os.WriteFile("password", []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		qemuImg(t, "create", "-q", "-f", "qcow2", "base", "1M")
		createImage(t, c.args...)
		opts := "driver=qcow2," + c.open + "file.filename=image"
		if out, err := exec.Command("qemu-io", "--object", key, "--image-opts", "-c", "write -P 6 64k 64k", opts).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := os.Rename("image", name); err != nil {
			t.Fatal(err)
		}
		_, err := OpenSource(name, SourceOptions{})
		hint := fault.HintOf(err)
		_, command, found := strings.Cut(hint, ": ")
		if !fault.Is(err, fault.Unsupported) || !found {
			t.Fatalf("%s: %v: %s", name, err, hint)
		}
		command = strings.ReplaceAll(command, "PASSWORDFILE", "password")
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
			continue
		}
		want := make(memory, 1<<20)
		for i := 64 << 10; i < 128<<10; i++ {
			want[i] = 6
		}
		readBack(t, filepath.Join(dir, name+".plain"), want)
	}
}

// createImage creates an image of 1 MiB. For LUKS, qemu-img benchmarks its hash. This sometimes fails on a
// busy machine with "Unable to get accurate CPU usage", so createImage tries again.
func createImage(t *testing.T, args ...string) {
	t.Helper()
	args = append(append([]string{"create", "-q", "-f", "qcow2"}, args...), "image", "1M")
	var out []byte
	var err error
	for range 20 {
		if out, err = exec.Command("qemu-img", args...).CombinedOutput(); err == nil {
			return
		}
	}
	t.Fatalf("qemu-img %q: %v\n%s", args, err, out)
}

// TestRebaseRemedyWorks runs the command in the remedy that sets the missing format of a backing file.
func TestRebaseRemedyWorks(t *testing.T) {
	skipWithout(t, "qemu-img")
	t.Chdir(t.TempDir())
	base := writeRaw(t, disk.NewPattern(1<<20))
	qemuImg(t, "create", "-q", "-f", "qcow2", "my disk", "1M")
	setBacking(t, "my disk", base, "")
	_, err := OpenSource("my disk", SourceOptions{Backing: OpenFile})
	_, command, _ := strings.Cut(fault.HintOf(err), ": ")
	command = strings.ReplaceAll(command, "FORMAT", "raw")
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	compareWithQEMU(t, "my disk")
	got, err := readAll(t, openAll(t, "my disk"))
	if err != nil || disk.AllZero(got) {
		t.Errorf("the content of the raw file is missing (%v)", err)
	}
}
