package proxmox

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/internal/lab/pve"
)

// runPrivilegesScript runs packaging/privileges/proxmox.sh with a pveum that records its arguments. It returns the
// permissions it sets and the line for a token file.
func runPrivilegesScript(t *testing.T, args ...string) (acl pve.ACL, token string) {
	t.Helper()
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	pveum := "#!/bin/sh\nIFS='\t'; echo \"$*\" >>" + log + "\n" +
		`case $2 in token) echo '{"full-tokenid":"decamp@pve!mover","info":{"privsep":"0"},"value":"s3cret-0001"}';; esac` + "\n"
	executable.Write(t, filepath.Join(bin, "pveum"), pveum)
	script, err := filepath.Abs("../../../packaging/privileges/proxmox.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	roles := map[string][]string{}
	acl = pve.ACL{}
	for line := range strings.Lines(string(calls)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		switch strings.Join(words[:2], " ") {
		case "role add":
			roles[words[2]] = strings.Fields(words[4])
		case "acl modify":
			acl[words[2]] = roles[words[6]]
		}
	}
	return acl, strings.TrimSpace(string(out))
}

// The published script grants exactly the privileges that a delivery and a start require.
func TestPublishedPrivilegesSuffice(t *testing.T) {
	t.Parallel()
	acl, token := runPrivilegesScript(t, "local-lvm", "local", "vmbr0")
	if token != "decamp@pve!mover=s3cret-0001" {
		t.Errorf("got token %q", token)
	}
	deliver := func(acl pve.ACL) error {
		s := startServer(t, pve.Config{Tokens: []pve.Token{{User: "decamp@pve", ID: "mover", Secret: "s3cret-0001", ACL: acl}}})
		p := newPlatform(t, s, Options{})
		vm := changedVM(biosVM(), func(vm *inventory.VM) { vm.Disks = vm.Disks[:1] })
		if err := p.Check(t.Context(), vm); err != nil {
			return err
		}
		_, err := p.Deliver(t.Context(), newDelivery(t, vm))
		return err
	}
	if err := deliver(acl); err != nil {
		t.Fatalf("with all of %v: %v", acl, err)
	}
	for path, privileges := range acl {
		for i, privilege := range privileges {
			if privilege == "VM.PowerMgmt" {
				continue // only a start requires it: see TestStartFails
			}
			less := pve.ACL{}
			for at, all := range acl {
				less[at] = all
			}
			less[path] = slices.Delete(slices.Clone(privileges), i, i+1)
			if deliver(less) == nil {
				t.Errorf("%s on %s is granted but not required", privilege, path)
			}
		}
	}
}

// A storage for both disks and uploads gets the privileges for both. VLANs and VNets get permissions on their paths.
func TestPublishedPrivilegesByPath(t *testing.T) {
	t.Parallel()
	acl, _ := runPrivilegesScript(t, "store", "store", "vmbr1/20", "zone1/vnet7")
	want := []string{"Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit", "Datastore.Allocate"}
	if !slices.Equal(acl["/storage/store"], want) {
		t.Errorf("on the storage: %q", acl["/storage/store"])
	}
	for _, path := range []string{"/sdn/zones/localnetwork/vmbr1/20", "/sdn/zones/zone1/vnet7"} {
		if !slices.Equal(acl[path], []string{"SDN.Use"}) {
			t.Errorf("on %s: %q", path, acl[path])
		}
	}
}
