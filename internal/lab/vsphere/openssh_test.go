package vsphere

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// OpenSSH can log in to a host with a key and run commands.
func TestOpenSSHLogsIn(t *testing.T) {
	if testing.Short() {
		t.Skip("starts ssh")
	}
	for _, tool := range []string{"ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: scripts/setup.sh test", tool)
		}
	}
	dir := t.TempDir()
	key, known := filepath.Join(dir, "key"), filepath.Join(dir, "known_hosts")
	if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	cfg := withSSH(Config{})
	cfg.SSH.AuthorizedKeys = []string{strings.TrimSpace(string(public))}
	l := startLab(t, cfg)
	host, port, err := net.SplitHostPort(l.SSHAddr(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(known, []byte("["+host+"]:"+port+" "+l.SSHHostKey("")), 0o600); err != nil {
		t.Fatal(err)
	}
	ssh := func(command string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "ssh", "-F", "none", "-i", key, "-p", port, "-l", "root",
			"-o", "UserKnownHostsFile="+known, "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", host, command)
		cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := ssh("vmware -v"); err != nil || !strings.HasPrefix(out, "VMware ESXi") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := ssh("exit 7"); err == nil || !strings.Contains(err.Error(), "7") {
		t.Errorf("%q, %v", out, err)
	}
}
