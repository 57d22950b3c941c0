package complete

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/internal/lab/pve"
)

// newTestCompleter returns a completer with an empty state directory, whose messages fail the test.
func newTestCompleter(t *testing.T) *Completer {
	c, _ := newTestCache(t)
	report := func(format string, args ...any) { t.Errorf("printed: "+format, args...) }
	return &Completer{Cache: c, Assembler: &assemble.Assembler{
		State: t.TempDir(), Env: func(string) string { return "" },
		Prompts: assemble.Prompts{Warn: report, Notify: report, Log: slog.New(slog.DiscardHandler)},
	}}
}

// writePrivate writes a file with mode 0600, and returns its path.
func writePrivate(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantTargets checks the completions of a value of --to. In want, ~ stands for the typed text.
func (c *Completer) wantTargets(t *testing.T, files config.Paths, typed, want string) {
	t.Helper()
	got := strings.Join(c.Targets(t.Context(), typed, files, nil), " ")
	if want = strings.ReplaceAll(want, "~", typed); got != want {
		t.Errorf("%q completes to %q, want %q", typed, got, want)
	}
}

func TestTargetCompletionsAreKindsNamesAndFolders(t *testing.T) {
	c := newTestCompleter(t)
	files := config.Paths{User: writePrivate(t, filepath.Join(t.TempDir(), "config.yaml"), "targets:\n  store: dir:/srv/vm\n  rack: proxmox:https://pve1:8006/pve1?staging=/srv/stage\n")}
	c.wantTargets(t, files, "", "dir: kubevirt: libvirt:qemu+ssh:// libvirt:qemu:///system openstack: place: proxmox:https:// rack store")
	c.wantTargets(t, files, "st", "store")
	c.wantTargets(t, config.Paths{User: writePrivate(t, filepath.Join(t.TempDir(), "config.yaml"), "targets: [\n")}, "p", "place: proxmox:https://")

	folder := t.TempDir()
	for _, name := range []string{"vms", "vms-old", ".hidden", "$(reboot)"} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writePrivate(t, filepath.Join(folder, "vms.txt"), "")
	c.wantTargets(t, files, "dir:"+folder+"/", "~vms-old/ ~vms/")
	c.wantTargets(t, files, "kubevirt:"+folder+"/vms-", "~old/")
	c.wantTargets(t, files, "dir:"+folder+"/.", "~hidden/")
	t.Chdir(folder)
	c.wantTargets(t, files, "dir:", "dir:vms-old/ dir:vms/")

	c.wantTargets(t, files, "place:r", "")
	writePrivate(t, filepath.Join(c.Assembler.State, "access.yaml"), "version: 1\nplaces:\n  rack1: {to: 'proxmox:https://pve1:8006/pve1'}\n")
	c.wantTargets(t, files, "place:r", "~ack1")

	vm := &inventory.VM{Ref: "vm-1", Name: "web01"}
	plan := journal.New(&url.URL{Scheme: "esxi", Host: "esx1"}, vm, "proxmox:https://pve7:8006/pve7?token=/root/token&staging=/srv/stage", "raw", "https", time.Unix(1_800_000_000, 0))
	if _, err := journal.NewStore(c.Assembler.State).Create(plan); err != nil {
		t.Fatal(err)
	}
	c.wantTargets(t, files, "proxmox:https://", "~pve7:8006/pve7")
}

func TestTargetsHaveParameters(t *testing.T) {
	c := newTestCompleter(t)
	for typed, want := range map[string]string{
		"libvirt:qemu:///system?":                 "~keyfile= ~known_hosts= ~pkipath= ~pool= ~socket=",
		"proxmox:https://pve1/pve1?storage=a&s":   "~sh=",
		"proxmox:https://pve1/pve1?ssh=root@h&s":  "~torage=",
		"kubevirt:/srv/vm?storage":                "~Class=",
		"openstack:lab?x=y&volumeT":               "~ype=",
		"place:rack1?":                            "",
		"dir:/srv/vm?st":                          "",
		"proxmox:https://pve1/pve1?cpu=":          "", // unknown values
		"proxmox:https://pve1/pve1?storage=":      "", // without a token
		"libvirt:qemu:///nothing?pool=":           "",
		"kubevirt:/srv/vm?storageClass=":          "", // a folder without a cluster
		"kubevirt:/srv?kubeconfig=/none&network=": "",
	} {
		c.wantTargets(t, config.Paths{}, typed, want)
	}
}

func TestTargetStoragesAndNetworks(t *testing.T) {
	c := newTestCompleter(t)
	node, err := pve.Start(pve.Config{Dir: t.TempDir(), Networks: []pve.Network{{Name: "vmbr0"}, {Name: "$(reboot)"}, {Name: "a+b"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	proxmox := fmt.Sprintf("proxmox:%s/pve1?token=%s&fingerprint=%s", node.URL(), writePrivate(t, filepath.Join(t.TempDir(), "token"), node.Token()), node.Fingerprint())
	c.wantTargets(t, config.Paths{}, proxmox+"&storage=", "~local ~local-lvm")
	c.wantTargets(t, config.Paths{}, proxmox+"&import=l", "~ocal")
	c.wantTargets(t, config.Paths{}, proxmox+"&storage=local&bridge=", "~vmbr0") // no names that require quoting or escaping

	before := len(node.Requests())
	c.wantTargets(t, config.Paths{}, proxmox+"&storage=local-", "~lvm")
	if n := len(node.Requests()); n != before {
		t.Errorf("got %d requests for cached words", n-before)
	}

	cluster := kube.Start(kube.Config{Classes: []string{"fast", "slow"}})
	t.Cleanup(cluster.Close)
	cluster.Put("network-attachment-definitions", "vms", "lan", map[string]any{})
	kubevirt := "kubevirt:/srv/vm?kubeconfig=" + writePrivate(t, filepath.Join(t.TempDir(), "kubeconfig"), string(cluster.Kubeconfig()))
	c.wantTargets(t, config.Paths{}, kubevirt+"&storageClass=f", "~ast")
	c.wantTargets(t, config.Paths{}, kubevirt+"&network=", "~multus:vms/lan ~pod")
	c.wantTargets(t, config.Paths{}, kubevirt+"&namespace=", "~vms")

	cloud := openstack.Start(openstack.Config{})
	t.Cleanup(cloud.Close)
	folder := t.TempDir()
	t.Setenv("OS_CLIENT_CONFIG_FILE", writePrivate(t, filepath.Join(folder, "clouds.yaml"), string(cloud.CloudsYAML(writePrivate(t, filepath.Join(folder, "ca.pem"), string(cloud.CA()))))))
	t.Setenv("OS_CLOUD", "")
	c.wantTargets(t, config.Paths{}, "openstack:lab?network=", "~dmz ~lan")
	c.wantTargets(t, config.Paths{}, "openstack:lab?network=lan&volumeType=", "~fast ~slow")
}

// A kubeconfig that names a credential plugin starts no program.
func TestTargetsStartNoPlugin(t *testing.T) {
	c, cluster := newTestCompleter(t), kube.Start(kube.Config{Classes: []string{"fast"}})
	t.Cleanup(cluster.Close)
	mark := filepath.Join(t.TempDir(), "started")
	text := strings.Replace(string(cluster.Kubeconfig()), "token:", "exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: touch, args: ["+mark+"]}\n#", 1)
	c.wantTargets(t, config.Paths{}, "kubevirt:/srv/vm?kubeconfig="+writePrivate(t, filepath.Join(t.TempDir(), "kubeconfig"), text)+"&storageClass=", "")
	if _, err := os.Stat(mark); err == nil || !strings.Contains(text, "exec:") {
		t.Errorf("the plugin was started: %s", text)
	}
}

// A completion waits for a target that does not respond for the time limit. The next completion sends no request.
func TestCompletionOfUnresponsiveTargets(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	token := writePrivate(t, filepath.Join(t.TempDir(), "token"), "root@pam!decamp=11111111-2222-3333-4444-555555555555")
	for _, typed := range []string{
		"proxmox:https://" + silent.Addr().String() + "/pve1?token=" + token + "&storage=",
		"libvirt:qemu:///system?socket=" + socket.Addr().String() + "&pool=",
	} {
		c := newTestCompleter(t)
		var limits []time.Duration
		c.Cache.After = func(d time.Duration) <-chan time.Time {
			limits = append(limits, d)
			passed := make(chan time.Time, 1)
			passed <- time.Now()
			return passed
		}
		for range 2 {
			c.wantTargets(t, config.Paths{}, typed, "")
		}
		if !slices.Equal(limits, []time.Duration{limit}) {
			t.Errorf("%s: got time limits %v of two completions, want one", typed, limits)
		}
	}
}
