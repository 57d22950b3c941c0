package extwrite

import (
	"strings"
	"testing"
)

// New files get the SELinux label of their folder if the label fits into the inode.
func TestNewFilesGetTheLabelOfTheirFolder(t *testing.T) {
	const label = "system_u:object_r:etc_t:s0"
	long := "system_u:object_r:etc_t:" + strings.Repeat("c", 300) // too long for an inode of 256 bytes
	for _, c := range []struct{ form, label, want string }{
		{"ext4", label, label}, {"ext3", label, label}, {"ext4 1k", label, label},
		{"ext4 large inodes", long, long}, {"ext4", long, ""}, {"ext4 small inodes", label, ""},
	} {
		t.Run(c.form, func(t *testing.T) {
			path := formNamed(t, c.form).makeImage(t, seedTree(t))
			runProgram(t, "debugfs", "-w", "-R", "ea_set /etc security.selinux "+c.label, path)
			fs := openImage(t, path)
			for _, err := range []error{
				fs.WriteFile("etc/new", []byte("x"), Attr{Mode: 0o644}),
				fs.Mkdir("etc/folder", Attr{Mode: 0o755}),
				fs.WriteFile("etc/folder/new", nil, Attr{Mode: 0o644}),
				fs.Symlink("etc/link", "/dev/null"),
				fs.WriteFile("boot/new", nil, Attr{Mode: 0o644}),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			fs.checkClean(t)
			labelled := []string{"/etc/new", "/etc/folder", "/etc/folder/new", "/etc/link"}
			var requests []string
			for _, path := range labelled {
				requests = append(requests, "ea_get -V "+path+" security.selinux")
			}
			answers := fs.debugfs(t, append(requests, "ea_list /boot/new")...)
			for i, path := range labelled {
				if got := answers[i]; !strings.Contains(got, c.want) || c.want == "" && strings.Contains(got, "etc_t") {
					t.Errorf("label of %s is %q, want %q", path, got, c.want)
				}
			}
			if got := answers[len(labelled)]; strings.Contains(got, "selinux") {
				t.Errorf("a file in a folder without a label has %q", got)
			}
		})
	}
}
