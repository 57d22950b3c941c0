package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/kube"
	"github.com/decamp/decamp/internal/lab/openstack"
	"github.com/decamp/decamp/test/guest"
)

// tutorialLab is a lab with a running VM that boots with VMware's hardware only.
func tutorialLab(t *testing.T) lab.Config {
	return lab.Config{VMs: []lab.VM{{Name: "web01", MemoryMB: 256, PoweredOn: true, NICs: []lab.NIC{{Model: "vmxnet3"}},
		Disks: []lab.Disk{{File: guest.Image(t, guest.NoVirtio), Controller: "pvscsi"}}}}}
}

// The commands of each tutorial run in the order of the page and succeed. Host names, folders and names of runs of
// the page are replaced by those of the test. Commands of other programs (kubectl, pveum, virsh) do not run.
func TestTutorials(t *testing.T) {
	t.Parallel()
	t.Run("proxmox", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tutorialLab(t)).trusting()
		node, to := r.proxmox()
		page := r.tutorial("proxmox", regexp.MustCompile(`'proxmox:[^']*'`), to)
		page.run("doctor", "migrate")
		if ids := node.VMIDs(); len(ids) != 1 {
			t.Errorf("guests %v after the migration", ids)
		}
		node.SwitchOff(100)
		page.run("rollback")
		if ids := node.VMIDs(); len(ids) != 0 {
			t.Errorf("guests %v after the rollback", ids)
		}
	})
	t.Run("openstack", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tutorialLab(t)).trusting()
		cloud := openstack.Start(openstack.Config{})
		t.Cleanup(cloud.Close)
		ca := r.write("ca.pem", string(cloud.CA()))
		r.env = append(r.env, "OS_CLIENT_CONFIG_FILE="+r.write("clouds.yaml", string(cloud.CloudsYAML(ca))))
		page := r.tutorial("openstack", regexp.MustCompile(`openstack:mycloud`), "openstack:lab")
		page.run("doctor", "migrate")
		if servers := cloud.Servers(); len(servers) != 1 {
			t.Errorf("servers %v after the migration", servers)
		} else {
			cloud.SetStatus(servers[0].ID, "SHUTOFF")
		}
		page.run("rollback")
		if servers := cloud.Servers(); len(servers) != 0 {
			t.Errorf("servers %v after the rollback", servers)
		}
	})
	t.Run("kubevirt", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tutorialLab(t)).trusting()
		cluster := kube.Start(kube.Config{Classes: []string{"fast"}})
		t.Cleanup(cluster.Close)
		config := r.write("kubeconfig", string(cluster.Kubeconfig()))
		page := r.tutorial("kubevirt", regexp.MustCompile(`/root/\.kube/decamp`), config)
		page.run("doctor", "migrate")
		if vms := cluster.Objects("virtualmachines"); len(vms) != 1 {
			t.Errorf("VMs %v after the migration", vms)
		}
		cluster.PowerOff("vms", "web01")
		page.run("rollback")
		if vms := cluster.Objects("virtualmachines"); len(vms) != 0 {
			t.Errorf("VMs %v after the rollback", vms)
		}
	})
	t.Run("warm", func(t *testing.T) {
		t.Parallel()
		cfg := tutorialLab(t)
		cfg.VMs[0].Name, cfg.Locks = "db01", lab.LockActive
		r := newRig(t, cfg).trusting()
		page := r.tutorial("warm", regexp.MustCompile(`/srv/vm`), r.vms())
		page.run("doctor")
		migration := r.start(slices.Concat(page.next("migrate"), r.extra, []string{"--json"})...)
		migration.rounds(1)
		page.run("runs", "rehearse", "cutover")
		migration.succeeds()
		r.onlyPublished("db01")
		// The page offers cancel in place of cutover.
		if command := page.next("cancel"); len(page.commands) > 0 || command[1] != r.onlyRun() {
			t.Errorf("%q, then %q", command, page.commands)
		}
	})
}

// A tutorial is a page of docs/tutorials with the commands that have not run yet.
type tutorial struct {
	r        *rig
	name     string
	commands [][]string // words after "decamp"
}

// tutorial reads the commands of a page, with its addresses replaced.
func (r *rig) tutorial(name string, target *regexp.Regexp, to string) *tutorial {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "tutorials", name+".md"))
	must(r.t, err)
	page := target.ReplaceAllLiteralString(string(text), to)
	page = strings.NewReplacer("\\\n", " ", "esxi://root@esx1", r.url(), "/srv/stage", r.vms(), "'", "").Replace(page)
	p := &tutorial{r: r, name: name}
	for line := range strings.Lines(page) {
		if words := strings.Fields(line); strings.HasPrefix(line, "    decamp ") {
			p.commands = append(p.commands, words[1:])
		}
	}
	return p
}

// next returns the next command of the page, which must have this name.
func (p *tutorial) next(name string) []string {
	p.r.t.Helper()
	if len(p.commands) == 0 || p.commands[0][0] != name {
		p.r.t.Fatalf("the next command of %s is not %s: %q", p.name, name, p.commands)
	}
	command := p.commands[0]
	p.commands = p.commands[1:]
	for i, word := range command {
		if word == "RUN" || word == "db01-3f9a1c" {
			command[i] = p.r.onlyRun()
		}
	}
	if name == "rehearse" || slices.Contains(command, "--trial") {
		command = append(command, "--expect", up) // the test guest has no login prompt
	}
	return command
}

// run runs the next commands of the page to their ends.
func (p *tutorial) run(names ...string) {
	p.r.t.Helper()
	for _, name := range names {
		command := p.next(name)
		if name == "doctor" || name == "migrate" {
			command = append(command, p.r.extra...) // these log in to the source
		}
		p.r.run(command...).ends(0)
	}
}
