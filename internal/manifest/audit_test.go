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

// requireTool skips the test if a tool is not installed.
func requireTool(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("needs %s", tool)
	}
}

// sha256sum and md5sum accept the audit files in the image's folder, and refuse a changed image.
func TestAuditFilesSatisfyTheRealTools(t *testing.T) {
	requireTool(t, "sha256sum")
	requireTool(t, "md5sum")
	src := disk.NewSparsePattern(20<<20+512, 0.5, 1)
	report, err := Verify(context.Background(), src, newSealed(t, src), VerifyOptions{MD5: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web01.raw", "my disk (1)-flat.vmdk", `odd\name.raw`, "two\nlines", "-n"} {
		dir := t.TempDir()
		image, base := filepath.Join(dir, name), filepath.Join(dir, "disk0")
		if err := os.WriteFile(image, readDisk(t, src), 0o644); err != nil {
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
			t.Errorf("the tools accept a changed %q", name)
		}
	}
}

// The audit file equals the output of md5sum for the flat file on the host.
func TestAuditFileEqualsTheOutputOfTheTool(t *testing.T) {
	requireTool(t, "md5sum")
	src := disk.NewPattern(3 << 20)
	report, err := Verify(context.Background(), src, newSealed(t, src), VerifyOptions{MD5: true})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "web01-flat.vmdk"), readDisk(t, src), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("md5sum", "web01-flat.vmdk")
	cmd.Dir = dir
	printed, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second call replaces the file
		if err := WriteAudit(filepath.Join(dir, "web01.qcow2"), "web01-flat.vmdk", report); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(filepath.Join(dir, "web01.qcow2.md5"))
	if err != nil || string(written) != string(printed) {
		t.Errorf("wrote %q, md5sum prints %q (%v)", written, printed, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.new*")); len(left) != 0 {
		t.Errorf("%v remain", left)
	}
}

func TestAuditFailsWithoutFolder(t *testing.T) {
	err := WriteAudit(filepath.Join(t.TempDir(), "gone", "disk0"), "x", Report{})
	if err == nil || !strings.Contains(err.Error(), "disk0.sha256") {
		t.Errorf("error is %v", err)
	}
}

// Without an MD5, WriteAudit writes no MD5 file.
func TestAuditWithoutMD5(t *testing.T) {
	dir := t.TempDir()
	if err := WriteAudit(filepath.Join(dir, "disk0"), "disk0.raw", Report{SHA256: "00"}); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 1 || files[0] != filepath.Join(dir, "disk0.sha256") {
		t.Errorf("%v, %v", files, err)
	}
}
