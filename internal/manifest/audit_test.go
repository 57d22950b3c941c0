package manifest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
)

// requires skips the test where a tool is missing, and says which.
func requires(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("needs %s", tool)
	}
}

// The real tools take the audit files in the image's folder, and refuse a changed image.
func TestAuditFilesSatisfyTheRealTools(t *testing.T) {
	requires(t, "sha256sum")
	requires(t, "md5sum")
	src := disk.NewSparsePattern(20<<20+512, 0.5, 1)
	report, err := Verify(context.Background(), src, sealed(t, src), VerifyOptions{MD5: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web01.raw", "my disk (1)-flat.vmdk", `odd\name.raw`, "two\nlines", "-n"} {
		dir := t.TempDir()
		image, base := filepath.Join(dir, name), filepath.Join(dir, "disk0")
		if err := os.WriteFile(image, content(t, src), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := WriteAudit(base, name, report); err != nil {
			t.Fatal(err)
		}
		check := func(tool, file string) error {
			cmd := exec.Command(tool, "-c", "--strict", file)
			cmd.Dir = dir
			return cmd.Run()
		}
		for tool, file := range map[string]string{"sha256sum": "disk0.sha256", "md5sum": "disk0.md5"} {
			if err := check(tool, file); err != nil {
				t.Errorf("%s -c for %q: %v", tool, name, err)
			}
		}
		if err := os.WriteFile(image, []byte("something else"), 0o644); err != nil {
			t.Fatal(err)
		}
		if check("sha256sum", "disk0.sha256") == nil || check("md5sum", "disk0.md5") == nil {
			t.Errorf("a changed %q passes", name)
		}
	}
}

// What the tools print for the flat file on the host is the audit file, byte for byte.
func TestAuditFileIsWhatTheToolPrints(t *testing.T) {
	requires(t, "md5sum")
	src := disk.NewPattern(3 << 20)
	report, err := Verify(context.Background(), src, sealed(t, src), VerifyOptions{MD5: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web01-flat.vmdk"), content(t, src), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("md5sum", "web01-flat.vmdk")
	cmd.Dir = dir
	printed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second replaces the first
		if err := WriteAudit(filepath.Join(dir, "web01.qcow2"), "web01-flat.vmdk", report); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(filepath.Join(dir, "web01.qcow2.md5"))
	if err != nil || string(written) != string(printed) {
		t.Errorf("wrote %q, md5sum prints %q (%v)", written, printed, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new*")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

func TestAuditNeedsItsFolder(t *testing.T) {
	err := WriteAudit(filepath.Join(t.TempDir(), "gone", "disk0"), "x", Report{})
	if err == nil || !strings.Contains(err.Error(), "disk0.sha256") {
		t.Errorf("error is %v", err)
	}
}

// Without an MD5 there is no file for one.
func TestAuditWithoutMD5(t *testing.T) {
	dir := t.TempDir()
	if err := WriteAudit(filepath.Join(dir, "disk0"), "disk0.raw", Report{SHA256: "00"}); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 1 || files[0] != filepath.Join(dir, "disk0.sha256") {
		t.Errorf("%v, %v", files, err)
	}
}
