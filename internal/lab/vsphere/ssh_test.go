package vsphere

import (
	"bytes"
	"crypto/ed25519"
	"crypto/md5"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/lab/nfstest"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/crypto/ssh"
)

// withSSH returns a configuration whose hosts run SSH from the start.
func withSSH(cfg Config) Config {
	cfg.SSH.Enabled = true
	return cfg
}

// clientConfig returns a configuration with keyboard-interactive login and the lab's host key.
func clientConfig(t *testing.T, l *Lab) *ssh.ClientConfig {
	t.Helper()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(l.SSHHostKey("")))
	if err != nil {
		t.Fatal(err)
	}
	answer := func(_, _ string, questions []string, _ []bool) ([]string, error) {
		return slices.Repeat([]string{l.Password()}, len(questions)), nil
	}
	return &ssh.ClientConfig{User: "root", HostKeyCallback: ssh.FixedHostKey(key), Auth: []ssh.AuthMethod{ssh.KeyboardInteractive(answer)}}
}

func dialSSH(t *testing.T, l *Lab) *ssh.Client {
	t.Helper()
	c, err := ssh.Dial("tcp", l.SSHAddr(""), clientConfig(t, l))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// runCommand runs a command and returns its combined output and its exit status.
func runCommand(t *testing.T, c *ssh.Client, command string) (out string, status int) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := s.CombinedOutput(command)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		return string(b), exit.ExitStatus()
	}
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return string(b), 0
}

// mustRun runs a command that must succeed, and returns its output.
func mustRun(t *testing.T, c *ssh.Client, command string) string {
	t.Helper()
	out, status := runCommand(t, c, command)
	if status != 0 {
		t.Fatalf("%s: status %d\n%s", command, status, out)
	}
	return out
}

func hostServices(t *testing.T, c *vim25.Client) (types.ManagedObjectReference, map[string]types.HostService) {
	t.Helper()
	host, err := find.NewFinder(c).DefaultHostSystem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	system, err := host.ConfigManager().ServiceSystem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := system.Service(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]types.HostService{}
	for _, s := range list {
		all[s.Key] = s
	}
	return system.Reference(), all
}

func TestSSHIsStartedAndStoppedThroughTheAPI(t *testing.T) {
	l := startLab(t, Config{})
	c := login(t, l).Client
	if l.SSHAddr("") != "" {
		t.Error("SSH runs before it was started")
	}
	ref, before := hostServices(t, c)
	if s := before["TSM-SSH"]; s.Running || s.Policy != "off" {
		t.Errorf("%+v", s)
	}
	if _, err := methods.StartService(t.Context(), c, &types.StartService{This: ref, Id: "TSM-SSH"}); err != nil {
		t.Fatal(err)
	}
	if _, err := methods.UpdateServicePolicy(t.Context(), c, &types.UpdateServicePolicy{This: ref, Id: "TSM-SSH", Policy: "on"}); err != nil {
		t.Fatal(err)
	}
	if _, s := hostServices(t, c); !s["TSM-SSH"].Running || s["TSM-SSH"].Policy != "on" || s["TSM"].Running {
		t.Errorf("%+v", s)
	}
	client := dialSSH(t, l)
	addr := l.SSHAddr("")
	if _, err := methods.StopService(t.Context(), c, &types.StopService{This: ref, Id: "TSM-SSH"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ssh.Dial("tcp", addr, clientConfig(t, l)); err == nil {
		t.Error("SSH runs after it was stopped")
	}
	if out := mustRun(t, client, "echo still here"); out != "still here\n" {
		t.Errorf("the open session: %q", out)
	}
	if _, err := methods.StartService(t.Context(), c, &types.StartService{This: ref, Id: "nosuch"}); err == nil {
		t.Error("an unknown service was started")
	}
}

func TestHostWithoutSSH(t *testing.T) {
	l := startLab(t, Config{SSH: SSH{Unavailable: true}})
	c := login(t, l).Client
	ref, _ := hostServices(t, c)
	if _, err := methods.StartService(t.Context(), c, &types.StartService{This: ref, Id: "TSM-SSH"}); err == nil || l.SSHAddr("") != "" {
		t.Errorf("%v, %q", err, l.SSHAddr(""))
	}
}

func TestSSHLogins(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	sshPublic, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	line := string(ssh.MarshalAuthorizedKey(sshPublic))
	l := startLab(t, withSSH(Config{}))
	try := func(auth ssh.AuthMethod) error {
		cfg := clientConfig(t, l)
		cfg.Auth = []ssh.AuthMethod{auth}
		c, err := ssh.Dial("tcp", l.SSHAddr(""), cfg)
		if err == nil {
			c.Close()
		}
		return err
	}
	if try(ssh.Password(l.Password())) == nil {
		t.Error("the method password was accepted, want only keyboard-interactive")
	}
	if try(ssh.PublicKeys(signer)) == nil {
		t.Error("an unknown key was accepted")
	}
	mustRun(t, dialSSH(t, l), "echo '"+strings.TrimSpace(line)+"' >>/etc/ssh/keys-root/authorized_keys")
	if err := try(ssh.PublicKeys(signer)); err != nil {
		t.Errorf("a key in authorized_keys: %v", err)
	}
	wrong := ssh.KeyboardInteractive(func(_, _ string, q []string, _ []bool) ([]string, error) {
		return slices.Repeat([]string{"wrong"}, len(q)), nil
	})
	for range 5 {
		if try(wrong) == nil {
			t.Fatal("a wrong password was accepted")
		}
	}
	if _, err := ssh.Dial("tcp", l.SSHAddr(""), clientConfig(t, l)); err == nil {
		t.Error("the account is not locked after five wrong passwords")
	}
}

func TestShellCommands(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withSSH(withNFS(Config{VMs: []VM{web01()}}, s)))
	c := dialSSH(t, l)
	for command, want := range map[string]string{
		"ls /vmfs/volumes":                                           "datastore1\n",
		"ls /vmfs/volumes/datastore1/web01":                          "vmware.log\nweb01-flat.vmdk\nweb01.nvram\nweb01.vmdk\nweb01.vmx\n",
		"mkdir /tmp/l; cd /tmp/l; echo x >a; cat a; rm a; ls":        "x\n",
		"mkdir -p /tmp/a/b; ls -d /tmp/a/b":                          "/tmp/a/b\n",
		"nosuch '1\\r2' 2>&1 || true":                                "sh: nosuch: not found\n",
		"printf '%s-%s\\n' a b c":                                    "a-b\nc-\n",
		"sh -c 'shift 2; echo $1 $#' sh a b c":                       "c 1\n",
		"mkdir /tmp/m; mkdir /tmp/m 2>&1; mkdir /no/where 2>&1":      "mkdir: /tmp/m: File exists\nmkdir: /no/where: No such file or directory\n",
		"cd /vmfs/volumes; echo */web01/*-flat.vmdk":                 "datastore1/web01/web01-flat.vmdk\n",
		"for f in /vmfs/volumes/*/web01/web01.v*; do echo $f; done":  "/vmfs/volumes/datastore1/web01/web01.vmdk\n/vmfs/volumes/datastore1/web01/web01.vmx\n",
		"for f in a 'b c' \"*\" no*where; do echo \"<$f>\"; done":    "<a>\n<b c>\n<*>\n<no*where>\n",
		"sh -c 'for a; do echo $a; done' sh 1 2":                     "1\n2\n",
		"echo x >/tmp/m1; mv /tmp/m1 /tmp/m2; cat /tmp/m2":           "x\n",
		"stat -c %s /vmfs/volumes/datastore1/web01/web01-flat.vmdk":  "8388608\n",
		"test -e /nothing || echo no":                                "no\n",
		"[ -d /tmp ] && echo yes":                                    "yes\n",
		"echo abcdef >/tmp/t; tail -c 3 /tmp/t":                      "ef\n",
		"echo abc | md5sum":                                          "0bee89b07a248e27c83fc3d5951213c1  -\n",
		"vmware -v":                                                  "VMware ESXi 8.0.3 build-24022510\n",
		"rm /vmfs/volumes/datastore1/web01/web01.vmdk 2>&1; echo $?": "rm: /vmfs/volumes/datastore1/web01/web01.vmdk: Read-only file system\n1\n",
		"cat /nothing 2>&1; echo $?":                                 "cat: /nothing: can't open '/nothing': No such file or directory\n1\n",
		"vim-cmd vmsvc/getallvms | wc -l":                            "2\n",
	} {
		if got, _ := runCommand(t, c, command); got != want {
			t.Errorf("%s\ngot  %q\nwant %q", command, got, want)
		}
	}
	if out, status := runCommand(t, c, "nosuch"); status != 127 || out != "sh: nosuch: not found\n" {
		t.Errorf("%d %q", status, out)
	}
}

func TestMD5OfASourceDisk(t *testing.T) {
	l := startLab(t, withSSH(Config{VMs: []VM{web01()}}))
	c := dialSSH(t, l)
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	sum := md5.New()
	if _, err := io.Copy(sum, io.NewSectionReader(disk, 0, disk.Size)); err != nil {
		t.Fatal(err)
	}
	const flat = "/vmfs/volumes/datastore1/web01/web01-flat.vmdk"
	if got, want := mustRun(t, c, "md5sum "+flat), fmt.Sprintf("%x  %s\n", sum.Sum(nil), flat); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if out, status := runCommand(t, c, "sha256sum "+flat); status != 127 {
		t.Errorf("sha256sum: %d %q", status, out)
	}
	if err := l.SetPower("web01", true); err != nil {
		t.Fatal(err)
	}
	if out, status := runCommand(t, c, "md5sum "+flat); status != 1 || !strings.Contains(out, "Device or resource busy") {
		t.Errorf("the disk of a running VM: %d %q", status, out)
	}
}

const addLanding = "esxcli storage nfs add -H 127.0.0.1 -s " + nfstest.Export + " -v landing"

func TestEsxcliMountsAndRemoves(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withSSH(withNFS(Config{ReadOnlyLicence: true}, s))) // esxcli works with any licence
	c := dialSSH(t, l)
	mustRun(t, c, addLanding)
	if out := mustRun(t, c, "esxcli storage nfs list"); !strings.Contains(out, "landing") || strings.Count(out, "\n") != 3 {
		t.Errorf("list:\n%s", out)
	}
	_, hosts := datastoreSystems(t, login(t, l).Client)
	if got := datastoreNames(t, login(t, l).Client, hosts[0]); !slices.Contains(got, "landing") {
		t.Errorf("in the inventory: %v", got)
	}
	if _, status := runCommand(t, c, addLanding); status != 1 {
		t.Errorf("add again: %d", status)
	}
	if out, status := runCommand(t, c, "esxcli storage nfs add --host=127.0.0.1 --share=/other --volume-name=x"); status != 1 || !strings.Contains(out, "Sysinfo error") {
		t.Errorf("a path that is not exported: %d %q", status, out)
	}
	mustRun(t, c, "esxcli storage nfs remove -v landing")
	if _, status := runCommand(t, c, "esxcli storage nfs remove -v landing"); status != 1 || len(l.Mounts()) != 0 {
		t.Errorf("removed twice: %d, %v", status, l.Mounts())
	}
}

const vmkfstoolsCopy = "vmkfstools -i /vmfs/volumes/datastore1/web01/web01.vmdk /vmfs/volumes/landing/web01.vmdk -d thin"

func TestVmkfstools(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withSSH(withNFS(Config{VMs: []VM{web01()}}, s)))
	c := dialSSH(t, l)
	mustRun(t, c, addLanding)
	out := mustRun(t, c, vmkfstoolsCopy+" 2>&1")
	if !strings.HasPrefix(out, "Destination disk format: VMFS thin-provisioned\nCloning disk '") || !strings.HasSuffix(out, "\rClone: 100% done.\n") {
		t.Errorf("%q", out)
	}
	checkCopied(t, l, s)
	if out, status := runCommand(t, c, vmkfstoolsCopy); status != 255 || !strings.Contains(out, "Failed to clone disk: The file already exists (39).") {
		t.Errorf("again: %d %q", status, out)
	}
	mustRun(t, c, "vmkfstools -U /vmfs/volumes/landing/web01.vmdk")
	if names := s.Names(""); len(names) != 0 {
		t.Errorf("files after -U: %v", names)
	}
	if _, status := runCommand(t, c, "vmkfstools --nonsense"); status != 1 {
		t.Errorf("usage: %d", status)
	}
}

// detachedCopy starts a copy in the background, with files for its pid, log and exit status.
const detachedCopy = `setsid sh -c 'echo $$ >/tmp/pid; ` + vmkfstoolsCopy + ` >/tmp/log 2>&1; echo $? >/tmp/exit' </dev/null >/dev/null 2>&1 &`

func TestDetachedCopySurvivesItsConnection(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withSSH(withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 4 << 20}}}, s)))
	first := dialSSH(t, l)
	mustRun(t, first, addLanding)
	mustRun(t, first, detachedCopy)
	waitFor(t, "half of the copy", func() bool {
		out, _ := runCommand(t, first, "cat /tmp/log") // the file may not exist yet
		return strings.Contains(out, "Clone: 50% done.")
	})
	l.DropSSH()
	second := dialSSH(t, l)
	mustRun(t, second, "kill -0 $(cat /tmp/pid)")
	l.Faults().Clear()
	waitFor(t, "the exit file", func() bool { _, status := runCommand(t, second, "test -s /tmp/exit"); return status == 0 })
	if out := mustRun(t, second, "cat /tmp/exit"); out != "0\n" {
		t.Errorf("exit file: %q", out)
	}
	checkCopied(t, l, s)
}

func TestAttachedCopyEndsWithItsConnection(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withSSH(withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 4 << 20}}}, s)))
	c := dialSSH(t, l)
	mustRun(t, c, addLanding)
	session, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	session.Stdout = &out
	if err := session.Start(vmkfstoolsCopy); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the copy to begin", func() bool { m := l.Mounts(); return m[0].OpenFiles == 1 })
	l.DropSSH()
	waitFor(t, "the copy to end and leave its file", func() bool {
		return l.Mounts()[0].OpenFiles == 0 && slices.Equal(s.Names(""), []string{"web01-flat.vmdk"})
	})
}

func TestKilledVmkfstools(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withSSH(withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 4 << 20}}}, s)))
	c := dialSSH(t, l)
	mustRun(t, c, addLanding)
	mustRun(t, c, detachedCopy)
	waitFor(t, "the copy to begin", func() bool { m := l.Mounts(); return m[0].OpenFiles == 1 })
	pid, err := strconv.Atoi(strings.TrimSpace(mustRun(t, c, "cat /tmp/pid")))
	if err != nil {
		t.Fatal(err)
	}
	mustRun(t, c, fmt.Sprintf("kill -9 -%d", pid))
	waitFor(t, "the copy to end", func() bool { m := l.Mounts(); return m[0].OpenFiles == 0 })
	waitFor(t, "the shell to end", func() bool { _, status := runCommand(t, c, fmt.Sprintf("kill -0 %d", pid)); return status == 1 })
	if _, status := runCommand(t, c, "test -e /tmp/exit"); status != 1 {
		t.Error("a killed shell wrote its exit file")
	}
}

func TestTooManyCopiesAreKilled(t *testing.T) {
	s := serveNFS(t)
	cfg := withSSH(withNFS(Config{VMs: []VM{web01()}, Faults: []Fault{{Kind: FaultCloneStall, At: 4 << 20}}}, s))
	cfg.SSH.MaxClones = 1
	l := startLab(t, cfg)
	c := dialSSH(t, l)
	mustRun(t, c, addLanding)
	mustRun(t, c, detachedCopy)
	waitFor(t, "the copy to begin", func() bool { m := l.Mounts(); return m[0].OpenFiles == 1 })
	if _, status := runCommand(t, c, vmkfstoolsCopy); status != 137 {
		t.Errorf("a copy above the limit: %d", status)
	}
}

func TestControlReportsSSHAndMounts(t *testing.T) {
	s := serveNFS(t)
	l := startLab(t, withSSH(withNFS(Config{}, s)))
	c := dialSSH(t, l)
	mustRun(t, c, addLanding)
	i := l.control.labInfo()
	if len(i.SSH) != 1 || i.SSH[0].Addr != l.SSHAddr("") || !strings.HasPrefix(i.SSH[0].HostKey, "ssh-ed25519 ") || len(i.Mounts) != 1 {
		t.Errorf("%+v %+v", i.SSH, i.Mounts)
	}
	for _, call := range []struct{ method, path string }{{"DELETE", "/ssh"}, {"POST", "/powercut"}} {
		r, err := http.NewRequestWithContext(t.Context(), call.method, l.ControlURL()+call.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", call.path, resp.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if len(l.Mounts()) != 0 {
		t.Errorf("mounts after a power cut: %v", l.Mounts())
	}
	if err := c.Wait(); err == nil {
		t.Error("the connection is still open")
	}
}

func TestSSHOfEachHost(t *testing.T) {
	l := startLab(t, withSSH(Config{VCenter: true}))
	a, b := l.SSHAddr("esx1.lab"), l.SSHAddr("esx2.lab")
	if a == "" || b == "" || a == b || l.SSHHostKey("esx1.lab") == l.SSHHostKey("esx2.lab") || l.SSHAddr("nobody") != "" {
		t.Errorf("%q %q", a, b)
	}
	var host mo.HostSystem
	c := login(t, l).Client
	_, hosts := datastoreSystems(t, c)
	if err := hosts[1].Properties(t.Context(), hosts[1].Reference(), []string{"configManager.serviceSystem"}, &host); err != nil || host.ConfigManager.ServiceSystem == nil {
		t.Errorf("service system of the second host: %v", err)
	}
}

func TestConfigOfNFSAndSSHIsChecked(t *testing.T) {
	for _, text := range []string{
		`{"nfs":{"connections":-1}}`, `{"nfs":{"writeSize":"2MiB"}}`, `{"nfs":{"inFlight":-1}}`, `{"ssh":{"maxClones":-1}}`,
		`{"ssh":{"enabled":true,"unavailable":true}}`, `{"nfs":{"port":2049}}`,
	} {
		if _, err := parseConfig([]byte(text)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
	if _, err := parseConfig([]byte(`{"nfs":{"portmap":"127.0.0.1:1111","unstable":true},"ssh":{"enabled":true,"sha256sum":true}}`)); err != nil {
		t.Error(err)
	}
}

func FuzzArguments(f *testing.F) {
	f.Add("-H 127.0.0.1 -s /land -v landing")
	f.Add("--host=a --share b --readonly")
	f.Add("-c -5 -n x --")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Fields(line)
		if opts, err := parseOptions(args); err == nil && len(opts) > len(args) {
			t.Errorf("%q: %v", args, opts)
		}
		if n, _, rest := countArgs(args); n < 0 || len(rest) > len(args) {
			t.Errorf("%q: %d, %q", args, n, rest)
		}
		if _, rest := splitFlags(args); len(rest) > len(args) {
			t.Errorf("%q: %q", args, rest)
		}
	})
}

// A connection accepts a limited number of concurrent commands.
func TestSessionsOfAConnectionAreLimited(t *testing.T) {
	cfg := withSSH(Config{})
	cfg.SSH.MaxSessions = 2
	l := startLab(t, cfg)
	c := dialSSH(t, l)
	var held []*ssh.Session
	for range 2 {
		s, err := c.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start("sleep 1000"); err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
	}
	if _, err := c.NewSession(); err == nil {
		t.Error("a third concurrent command was accepted")
	}
	if out := mustRun(t, dialSSH(t, l), "echo other"); out != "other\n" {
		t.Errorf("another connection: %q", out)
	}
	held[0].Close()
	waitFor(t, "another command to be accepted", func() bool {
		s, err := c.NewSession()
		if err != nil {
			return false
		}
		s.Close()
		return true
	})
}

func TestLockdownModeRefusesLogins(t *testing.T) {
	cfg := withSSH(Config{})
	cfg.SSH.Lockdown = true
	l := startLab(t, cfg)
	if _, err := ssh.Dial("tcp", l.SSHAddr(""), clientConfig(t, l)); err == nil {
		t.Error("the correct password was accepted")
	}
}

// isClosedPort reports whether an address refuses connections.
func isClosedPort(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// SSHServers returns the address of SSH before the service starts.
func TestSSHServersBeforeTheStart(t *testing.T) {
	l := startLab(t, Config{})
	if s := l.SSHServers(); len(s) != 1 || s[0].Running || !isClosedPort(s[0].Addr) || !strings.HasPrefix(s[0].Fingerprint, "SHA256:") {
		t.Errorf("off: %+v", s)
	}
	l = startLab(t, withSSH(Config{}))
	if s := l.SSHServers(); len(s) != 1 || !s[0].Running || s[0].Addr != l.SSHAddr("") {
		t.Errorf("on: %+v", s)
	}
}
