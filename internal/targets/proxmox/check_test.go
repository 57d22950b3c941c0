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
		name   string
		node   pve.Config
		opts   Options
		vm     func(*inventory.VM)
		kind   fault.Kind
		remedy string
	}{
		{name: "old", node: pve.Config{Version: "8.3.5"}, kind: fault.Unsupported, remedy: "apt full-upgrade"},
		{name: "no such storage", opts: Options{Storage: "tank"}, kind: fault.NotFound, remedy: "storage="},
		{name: "no disks there", node: pve.Config{Storages: []pve.Storage{files}}, opts: Options{Storage: "local"}, kind: fault.Invalid, remedy: "pvesm set local"},
		{name: "no import", node: pve.Config{Storages: []pve.Storage{blocks}}, kind: fault.Invalid, remedy: "pvesm set local --content iso,vztmpl,backup,import"},
		{name: "import elsewhere", node: pve.Config{Storages: []pve.Storage{blocks, files}}, opts: Options{Import: "local-lvm"}, kind: fault.Invalid, remedy: "pvesm set"},
		{
			name: "no room for uploads", node: pve.Config{Storages: []pve.Storage{blocks, {ID: "local", Type: "dir", Content: []string{"import"}, Size: 1 << 10}}},
			kind: fault.Full, remedy: "import=",
		},
		{
			name: "thick", node: pve.Config{Storages: []pve.Storage{files, {ID: "local-lvm", Type: "lvm", Content: []string{"images"}, Size: 2 << 20}}},
			kind: fault.Full, remedy: "storage=",
		},
		{name: "a controller that there is not", vm: func(vm *inventory.VM) { vm.Controllers[0].Bus = inventory.BusLogic }, kind: fault.Unsupported, remedy: "vSphere"},
		{name: "its name is taken", vm: func(vm *inventory.VM) { vm.Name = "older" }, kind: fault.Conflict, remedy: "qm set 150 --name"},
		{name: "no such bridge", opts: Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "vmbr9"}}}}, kind: fault.NotFound, remedy: "bridge="},
		{name: "another certificate", opts: Options{Fingerprint: strings.Repeat("AA", 32)}, kind: fault.Denied, remedy: "pvenode cert info"},
		{name: "another token", opts: Options{Token: "root@pam!other=11111111"}, kind: fault.Denied, remedy: "pveum user token list"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, tt.node)
			s.AddGuest(150, map[string]string{"name": "older"})
			vm := biosVM()
			if tt.vm != nil {
				tt.vm(vm)
			}
			err := place(t, s, tt.opts).Check(t.Context(), vm)
			if !fault.Is(err, tt.kind) || !strings.Contains(fault.HintOf(err), tt.remedy) {
				t.Errorf("%v: %v, hint %q", fault.KindOf(err), err, fault.HintOf(err))
			}
			checkOnlyAsked(t, s)
		})
	}
	s := serve(t, pve.Config{})
	if err := place(t, s, Options{}).Check(t.Context(), biosVM()); err != nil {
		t.Errorf("all is well: %v", err)
	}
	checkOnlyAsked(t, s)
}

func checkOnlyAsked(t *testing.T, s *pve.Server) {
	t.Helper()
	for _, r := range s.Requests() {
		if r.Method != "GET" {
			t.Errorf("Check does %s %s", r.Method, r.Path)
		}
	}
}

// What the token lacks is told all at once, and what is told suffices.
func TestCheckTellsEachPrivilege(t *testing.T) {
	t.Parallel()
	vm := with(biosVM(), func(vm *inventory.VM) { vm.Disks = vm.Disks[:1] })
	acl := pve.ACL{
		"/vms": {"VM.Audit"}, "/storage": {"Datastore.Audit"}, "/nodes": {"Sys.Audit"},
	}
	s := serve(t, pve.Config{Tokens: []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: acl}}})
	p := place(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "vmbr3,7"}}}})
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
				t.Errorf("%s on %s: told: %v: %v", privilege, path, got, err)
			}
		}
	}
	// Each of them is needed, and no others are.
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
		s := serve(t, pve.Config{Tokens: []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: grant(without)}}})
		p := place(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "vmbr3,7"}}}})
		err := p.Check(t.Context(), vm)
		if (err == nil) != (without == "") {
			t.Errorf("without %q: %v", without, err)
		}
		if _, err := p.Deliver(t.Context(), deliver(t, vm)); (err == nil) != (without == "") {
			t.Errorf("without %q it is delivered: %v", without, err)
		}
	}
}

// The right to use a VNet is held in its zone, and shows by its being listed.
func TestVNetsAreUsedByTheRightInTheirZone(t *testing.T) {
	t.Parallel()
	acl := pve.ACL{"/": pve.All(), "/sdn": nil, "/sdn/zones/prod/web": {"SDN.Use"}}
	s := serve(t, pve.Config{
		Networks: []pve.Network{{Name: "vmbr0"}, {Name: "web", Zone: "prod"}, {Name: "db", Zone: "prod"}},
		Tokens:   []pve.Token{{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: acl}},
	})
	p := place(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: "web"}}}})
	if err := p.Check(t.Context(), biosVM()); err != nil {
		t.Error(err)
	}
	if _, err := p.Deliver(t.Context(), deliver(t, biosVM())); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"db", "vmbr0"} {
		p := place(t, s, Options{Maps: namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: other}}}})
		if err := p.Check(t.Context(), biosVM()); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v", other, err)
		}
	}
}

func TestCheckAsksForTheNode(t *testing.T) {
	t.Parallel()
	s := serve(t, pve.Config{Offline: []string{"pve2"}})
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

func TestClocksApartAreToldOf(t *testing.T) {
	t.Parallel()
	s := serve(t, pve.Config{Skew: 2 * time.Hour})
	receipt, err := place(t, s, Options{}).Deliver(t.Context(), deliver(t, biosVM()))
	if err != nil {
		t.Fatal(err)
	}
	if len(receipt.Warnings) != 1 || receipt.Warnings[0].Code != "clock" || !strings.Contains(receipt.Warnings[0].Text, " differ by ") {
		t.Errorf("warnings %v", receipt.Warnings)
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
			t.Errorf("%s is at %s", address, p.api.host)
		}
	}
}

// An address without a token names the parameter, and how to create a token.
func TestMissingTokenHasARemedy(t *testing.T) {
	t.Parallel()
	_, err := newClient("pve1:8006", Options{})
	if !fault.Is(err, fault.Invalid) || err.Error() != "the Proxmox address has no parameter token=" || !strings.Contains(fault.HintOf(err), "add token=FILE") {
		t.Errorf("%v; %s", err, fault.HintOf(err))
	}
}

// Whatever is printed of a place or said by it, its token's secret is not in it.
func TestTheTokenIsNotTold(t *testing.T) {
	t.Parallel()
	s := serve(t, pve.Config{Version: "8.3"})
	p := place(t, s, Options{})
	secret := strings.SplitN(s.Token(), "=", 2)[1]
	said := fmt.Sprintf("%v %+v %#v %s", p.opts, p.opts, p.opts, p.Check(t.Context(), biosVM()))
	p.api.token = Token(strings.Replace(string(p.api.token), "1111", "2222", 1))
	err := p.Check(t.Context(), biosVM())
	said += fmt.Sprint(err, fault.HintOf(err))
	for _, r := range s.Requests() {
		said += r.Path + fmt.Sprint(r.Form)
	}
	if strings.Contains(said, secret) || strings.Contains(said, "2222") {
		t.Errorf("it is told: %s", said)
	}
}
