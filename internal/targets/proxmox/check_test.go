package proxmox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/namemap"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	files := pve.Storage{ID: "local", Type: "dir", Content: []string{"iso", "import"}, Size: 1 << 30}
	blocks := pve.Storage{ID: "local-lvm", Type: "lvmthin", Content: []string{"images"}, Size: 1 << 30}
	tests := []struct {
		name string
		node pve.Config
		opts Options
		vm   func(*inventory.VM)
		kind fault.Kind
		hint string
	}{
		{name: "old", node: pve.Config{Version: "8.3.5"}, kind: fault.Unsupported, hint: "apt full-upgrade"},
		{name: "no such storage", opts: Options{Storage: "tank"}, kind: fault.NotFound, hint: "storage="},
		{name: "no disks there", node: pve.Config{Storages: []pve.Storage{files}}, opts: Options{Storage: "local"}, kind: fault.Invalid, hint: "pvesm set local"},
		{name: "no import", node: pve.Config{Storages: []pve.Storage{blocks}}, kind: fault.Invalid, hint: "pvesm set local --content iso,vztmpl,backup,import"},
		{name: "import elsewhere", node: pve.Config{Storages: []pve.Storage{blocks, files}}, opts: Options{Import: "local-lvm"}, kind: fault.Invalid, hint: "pvesm set"},
		{
			name: "no room for uploads", node: pve.Config{Storages: []pve.Storage{blocks, {ID: "local", Type: "dir", Content: []string{"import"}, Size: 1 << 10}}},
			kind: fault.Full, hint: "import=",
		},
		{
			name: "thick", node: pve.Config{Storages: []pve.Storage{files, {ID: "local-lvm", Type: "lvm", Content: []string{"images"}, Size: 2 << 20}}},
			kind: fault.Full, hint: "storage=",
		},
		{name: "unsupported controller", vm: func(vm *inventory.VM) { vm.Controllers[0].Bus = inventory.BusLogic }, kind: fault.Unsupported, hint: "vSphere"},
		{name: "its name is taken", vm: func(vm *inventory.VM) { vm.Name = "older" }, kind: fault.Conflict, hint: "qm set 150 --name"},
		{name: "no such bridge", opts: Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "vmbr9"}}}}, kind: fault.NotFound, hint: "bridge="},
		{name: "another certificate", opts: Options{Fingerprint: strings.Repeat("AA", 32)}, kind: fault.Denied, hint: "pvenode cert info"},
		{name: "another token", opts: Options{Token: "root@pam!other=11111111"}, kind: fault.Denied, hint: "pveum user token list"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, tt.node)
			s.AddGuest(150, map[string]string{"name": "older"})
			vm := biosVM()
			if tt.vm != nil {
				tt.vm(vm)
			}
			err := newPlatform(t, s, tt.opts).Check(t.Context(), vm)
			if !fault.Is(err, tt.kind) || !strings.Contains(fault.HintOf(err), tt.hint) {
				t.Errorf("got %v: %v (hint %q), want %v (hint %q)", fault.KindOf(err), err, fault.HintOf(err), tt.kind, tt.hint)
			}
			checkReadOnly(t, s)
		})
	}
	s := startServer(t, pve.Config{})
	if err := newPlatform(t, s, Options{}).Check(t.Context(), biosVM()); err != nil {
		t.Errorf("Check without a problem: %v", err)
	}
	checkReadOnly(t, s)
}

// checkReadOnly checks that the node received only GET requests.
func checkReadOnly(t *testing.T, s *pve.Server) {
	t.Helper()
	for _, r := range s.Requests() {
		if r.Method != "GET" {
			t.Errorf("Check sends %s %s", r.Method, r.Path)
		}
	}
}

// Check reports all missing privileges at once. With exactly these privileges, Check and Deliver succeed.
func TestCheckReportsEachMissingPrivilege(t *testing.T) {
	t.Parallel()
	vm := changedVM(biosVM(), func(vm *inventory.VM) { vm.Disks = vm.Disks[:1] })
	acl := pve.ACL{
		"/vms": {"VM.Audit"}, "/storage": {"Datastore.Audit"}, "/nodes": {"Sys.Audit"},
	}
	s := startServer(t, pve.Config{Tokens: []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: acl}}})
	p := newPlatform(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "vmbr3,7"}}}})
	err := p.Check(t.Context(), vm)
	if !fault.Is(err, fault.Denied) || !strings.Contains(fault.HintOf(err), "pveum acl modify /vms --tokens 'mover@pve!t' --roles Decamp-vms") {
		t.Fatalf("%v, hint %q", err, fault.HintOf(err))
	}
	needs := p.newChecker().neededPrivileges(vm, 100, requirements{
		into: []share{{storage: storage{ID: "local-lvm"}}}, uploads: storage{ID: "local"}, networks: []network{{"vmbr3", 7}},
	})
	for path, privileges := range needs {
		for _, privilege := range privileges {
			held := map[string]bool{"VM.Audit": true, "Datastore.Audit": true}
			if got := strings.Contains(err.Error(), privilege); got == held[privilege] {
				t.Errorf("%s on %s: reported as missing: %v: %v", privilege, path, got, err)
			}
		}
	}
	// Each of them is required, and no others are.
	grant := func(without string) pve.ACL {
		acl := pve.ACL{"/vms": needs["/vms/100"], "/nodes": nil}
		for path, privileges := range needs {
			if !strings.HasPrefix(path, "/vms") {
				acl[path] = privileges
			}
		}
		cut := pve.ACL{}
		for path, privileges := range acl {
			for _, privilege := range privileges {
				if privilege != without {
					cut[path] = append(cut[path], privilege)
				}
			}
		}
		return cut
	}
	for _, without := range append([]string{""}, "VM.Allocate", "VM.Config.CPU", "VM.Config.CDROM", "Datastore.AllocateSpace",
		"Datastore.AllocateTemplate", "Datastore.Allocate", "SDN.Use") {
		s := startServer(t, pve.Config{Tokens: []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: grant(without)}}})
		p := newPlatform(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "vmbr3,7"}}}})
		err := p.Check(t.Context(), vm)
		if (err == nil) != (without == "") {
			t.Errorf("Check without %q: %v", without, err)
		}
		if _, err := p.Deliver(t.Context(), newDelivery(t, vm)); (err == nil) != (without == "") {
			t.Errorf("Deliver without %q: %v", without, err)
		}
	}
}

// The privilege to use a VNet belongs to its zone. The API lists only VNets that the token may use.
func TestVNetsRequireZonePrivilege(t *testing.T) {
	t.Parallel()
	acl := pve.ACL{"/": pve.All(), "/sdn": nil, "/sdn/zones/prod/web": {"SDN.Use"}}
	s := startServer(t, pve.Config{
		Networks: []pve.Network{{Name: "vmbr0"}, {Name: "web", Zone: "prod"}, {Name: "db", Zone: "prod"}},
		Tokens:   []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: acl}},
	})
	p := newPlatform(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "web"}}}})
	if err := p.Check(t.Context(), biosVM()); err != nil {
		t.Error(err)
	}
	if _, err := p.Deliver(t.Context(), newDelivery(t, biosVM())); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"db", "vmbr0"} {
		p := newPlatform(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: other}}}})
		if err := p.Check(t.Context(), biosVM()); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestCheckReportsAnUnavailableNode(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{Offline: []string{"pve2"}})
	for node, kind := range map[string]fault.Kind{"pve2": fault.Unreachable, "pve9": fault.NotFound} {
		o := Options{Token: Token(s.Token()), Fingerprint: s.Fingerprint()}
		p, err := New(s.URL()+"/"+node, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(t.Context(), biosVM()); !fault.Is(err, kind) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", node, err, fault.HintOf(err))
		}
	}
}

func TestClockDifferenceWarning(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{Skew: 2 * time.Hour})
	receipt, err := newPlatform(t, s, Options{}).Deliver(t.Context(), newDelivery(t, biosVM()))
	if err != nil {
		t.Fatal(err)
	}
	if len(receipt.Warnings) != 1 || receipt.Warnings[0].Code != "clock" || !strings.Contains(receipt.Warnings[0].Text, " differ by ") {
		t.Errorf("got warnings %v, want one about the clock", receipt.Warnings)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("root@pam!decamp=s3cret-0001\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]fault.Kind{
		"https://pve1:8006/pve1?token=" + token:                                   0,
		"https://pve1/pve1?storage=tank&import=nas&bridge=vmbr1,5&token=" + token: 0,
		"https://pve1:8006?token=" + token:                                        fault.Invalid,
		"http://pve1:8006/pve1?token=" + token:                                    fault.Invalid,
		"https://pve1:8006/a/b?token=" + token:                                    fault.Invalid,
		"https://pve1/pve1?storage=a:b&token=" + token:                            fault.Invalid,
		"https://pve1/pve1?bridge=vmbr0,5000&token=" + token:                      fault.Invalid,
		"https://pve1/pve1?disk=tank&token=" + token:                              fault.Invalid,
		"https://pve1/pve1?fingerprint=AA&token=" + token:                         fault.Invalid,
		"https://pve1/pve1":                                                       fault.Invalid,
		"https://pve1/pve1?token=/nowhere":                                        fault.NotFound,
	} {
		p, err := New(address, Options{})
		if (err == nil) != (want == 0) || err != nil && (!fault.Is(err, want) || fault.HintOf(err) == "" && want == fault.NotFound) {
			t.Errorf("%s: %v", address, err)
		}
		if err == nil && !strings.HasSuffix(p.api.host, ":8006") {
			t.Errorf("%s: got host %s", address, p.api.host)
		}
	}
}

// The error for an address without a token names the parameter and explains how to create a token.
func TestMissingTokenHasARemedy(t *testing.T) {
	t.Parallel()
	_, err := newClient("pve1:8006", Options{})
	if !fault.Is(err, fault.Invalid) || err.Error() != "the Proxmox address has no parameter token=" || !strings.Contains(fault.HintOf(err), "add token=FILE") {
		t.Errorf("%v; %s", err, fault.HintOf(err))
	}
}

// The secret of the token is not part of formatted options, errors, hints or requests.
func TestTokenIsNotPrinted(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{Version: "8.3"})
	p := newPlatform(t, s, Options{})
	secret := strings.SplitN(s.Token(), "=", 2)[1]
	output := fmt.Sprintf("%v %+v %#v %s", p.opts, p.opts, p.opts, p.Check(t.Context(), biosVM()))
	p.api.token = Token(strings.Replace(string(p.api.token), "1111", "2222", 1))
	err := p.Check(t.Context(), biosVM())
	output += fmt.Sprint(err, fault.HintOf(err))
	for _, r := range s.Requests() {
		output += r.Path + fmt.Sprint(r.Form)
	}
	if strings.Contains(output, secret) || strings.Contains(output, "2222") {
		t.Errorf("the output contains the secret: %s", output)
	}
}
