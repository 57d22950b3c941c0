package proxmox

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/targettest"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

const varsTemplate = "/usr/share/OVMF/OVMF_VARS_4M.fd"

// freshVariables returns the EFI variables that the node's firmware starts with.
func freshVariables(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(varsTemplate)
	if err != nil {
		t.Skip(err)
	}
	return data
}

// newEntryDelivery returns a delivery of an EFI VM with a boot entry and one empty disk.
func newEntryDelivery(t *testing.T) platform.Delivery {
	t.Helper()
	vm := changedVM(sparseVM(1<<20), func(vm *inventory.VM) { vm.Firmware = inventory.EFI })
	d := newDelivery(t, vm)
	d.Open = openImage
	d.Images[0].Manifest = d.Images[0].Path + ".manifest"
	if err := os.WriteFile(d.Images[0].Path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	d.EFI = &efi.State{Entries: []efi.Entry{{
		Number: 4, Label: "debian", File: `\EFI\debian\shimx64.efi`, Attributes: efi.Active,
		Partition: efi.Partition{Number: 1, Start: 2048, Size: 32768, GUID: efi.GUID{1, 2, 3}},
	}}}
	return d
}

// variablesWithEntries returns the EFI variables that d's guest must have.
func variablesWithEntries(t *testing.T, d platform.Delivery) []byte {
	t.Helper()
	store, err := efi.OpenStore(freshVariables(t))
	if err == nil {
		err = store.Add(*d.EFI)
	}
	if err != nil {
		t.Fatal(err)
	}
	return store.Bytes()
}

// checkVariables compares the EFI disk of d's guest with want. The guest must be complete and have two volumes.
func checkVariables(t *testing.T, s *pve.Server, d platform.Delivery, want []byte) {
	t.Helper()
	vmid, config := guestOf(t, s, d.VM)
	if is := parseDescription(config["description"], d.VM, vmid); is.plan != "" {
		t.Errorf("the guest is unfinished: %+v", is)
	}
	got, err := s.Read(t.Context(), config["efidisk0"])
	if err != nil || len(got) < variablesSize || !bytes.Equal(got[:variablesSize], want) {
		t.Errorf("EFI disk %q: %d bytes, or other content than expected: %v", config["efidisk0"], len(got), err)
	}
	if all := s.Volumes(); len(all) != 2 {
		t.Errorf("got volumes %v, want 2", all)
	}
}

// On every kind of storage the boot entries are added to the firmware's variables. The other variables stay as the
// node created them.
func TestBootEntriesOnEveryStorage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for name, kind := range map[string]pve.Storage{
		"files":    {ID: "tank", Type: "dir"},
		"qcow2":    {ID: "tank", Type: "dir", Format: "qcow2"},
		"lvm":      {ID: "tank", Type: "lvm"},
		"inactive": {ID: "tank", Type: "lvmthin", Lazy: true},
		"rbd":      {ID: "tank", Type: "rbd", Remote: true},
	} {
		if name == "lvm" && !lane.Slow {
			continue // "inactive" is LVM
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, d := startSSHServer(t, configWithStorages(kind))
			p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
			vm := newEntryDelivery(t)
			receipt, err := p.Deliver(t.Context(), vm)
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			if len(receipt.Warnings) != 0 || !receipt.EFI {
				t.Errorf("receipt %+v", receipt)
			}
			checkVariables(t, server, vm, variablesWithEntries(t, vm))
			_, config := guestOf(t, server, vm.VM)
			data, err := server.Read(t.Context(), config["efidisk0"])
			if err != nil {
				t.Fatal(err)
			}
			if kind.Type != "dir" && !bytes.Contains(data[variablesSize:], []byte("old tenant")) {
				t.Error("the data behind the variables was overwritten")
			}
			store, err := efi.OpenStore(data[:variablesSize])
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := efi.StateOf(store.Variables()); !reflect.DeepEqual(got, *vm.EFI) {
				t.Errorf("got entries %+v, want %+v", got, *vm.EFI)
			}
			if err := p.Withdraw(t.Context(), vm.VM); err != nil {
				t.Error(err)
			}
			checkGone(t, server)
		})
	}
}

// The API alone cannot carry over boot entries. The outline has a warning if no entries are carried over.
func TestBootEntriesRequireSSH(t *testing.T) {
	t.Parallel()
	server, d := startSSHServer(t, pve.Config{})
	def := newEntryDelivery(t).Definition
	for name, tt := range map[string]struct {
		platform *Platform
		state    *efi.State
		carries  bool
		warns    bool
	}{
		"by the API":           {newPlatform(t, server, Options{}), def.EFI, false, true},
		"over SSH":             {newDirectPlatform(t, server, d, Options{}), def.EFI, true, false},
		"over SSH, no entries": {newDirectPlatform(t, server, d, Options{}), &efi.State{}, true, true},
	} {
		def.EFI = tt.state
		o, err := tt.platform.Outline(def, targets.Outline{})
		if err != nil {
			t.Fatal(err)
		}
		if warns := len(o.Warnings) == 1 && o.Warnings[0].Code == "efi-variables"; tt.platform.CarriesEFI() != tt.carries || warns != tt.warns {
			t.Errorf("%s: CarriesEFI() = %v, warnings %v", name, tt.platform.CarriesEFI(), o.Warnings)
		}
	}
}

// If nothing can be added, the guest has the variables that Proxmox created, and the receipt has a warning with the
// cause.
func TestMissingBootEntriesCauseWarning(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	diverted := func(size int) func(*testing.T, *pve.SSH) {
		return func(t *testing.T, d *pve.SSH) {
			other := filepath.Join(t.TempDir(), "other")
			if err := os.WriteFile(other, make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
			pvesm, err := os.ReadFile(filepath.Join(d.Tools, "pvesm"))
			if err != nil {
				t.Fatal(err)
			}
			replaceTool(t, d, "pvesm", "case $2 in *-disk-0) echo "+other+"; exit;; esac\n"+string(pvesm))
		}
	}
	for name, tt := range map[string]struct {
		spoil func(*testing.T, *pve.SSH)
		cause string
	}{
		"no store":         {diverted(variablesSize), "it is no firmware volume"},
		"a smaller store":  {diverted(128 << 10), "has 131072 bytes"},
		"one write fails":  {failFirstWrite, "no room"},
		"no such tool now": {func(t *testing.T, d *pve.SSH) { hideEFIDisk(t, d) }, "does not have the volume"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := freshVariables(t)
			server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
			p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
			tt.spoil(t, d)
			vm := newEntryDelivery(t)
			receipt, err := p.Deliver(t.Context(), vm)
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			if w := receipt.Warnings; len(w) != 1 || w[0].Code != "efi-variables" || w[0].Remedy == "" || !strings.Contains(w[0].Text, tt.cause) {
				t.Errorf("warnings %v, want one with %q", w, tt.cause)
			}
			checkVariables(t, server, vm, want)
			again, err := p.Deliver(t.Context(), vm) // as after a crash before the receipt was written
			if err != nil || !reflect.DeepEqual(again, receipt) || !again.EFI {
				t.Errorf("second delivery: got %+v, %v; want %+v", again, err, receipt)
			}
		})
	}
}

// failFirstWrite makes the first write to the EFI disk fail with ENOSPC.
func failFirstWrite(t *testing.T, d *pve.SSH) {
	folder := t.TempDir()
	real, err := exec.LookPath("qemu-nbd")
	if err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(folder, "rules")
	if err := os.WriteFile(rules, []byte("[inject-error]\nevent = \"pwritev\"\nerrno = \"28\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	replaceTool(t, d, "qemu-nbd", fmt.Sprintf("PATH=/usr/bin:/bin\nfor last; do :; done\ncase $last in *-disk-0) mkdir %s/was 2>/dev/null && exec %s -f raw \"blkdebug:%s:$last\";; esac\nexec %s \"$@\"",
		folder, real, rules, real))
}

// hideEFIDisk makes pvesm fail for the EFI disk.
func hideEFIDisk(t *testing.T, d *pve.SSH) {
	pvesm, err := os.ReadFile(filepath.Join(d.Tools, "pvesm"))
	if err != nil {
		t.Fatal(err)
	}
	replaceTool(t, d, "pvesm", "case $2 in *-disk-0) exit 2;; esac\n"+string(pvesm))
}

// If neither the entries nor the old variables can be written, Deliver fails and removes the guest.
func TestFailedVariablesWriteRemovesGuest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	freshVariables(t)
	for name, tt := range map[string]struct {
		spoil func(*testing.T, *pve.SSH)
		kind  fault.Kind
	}{
		"no write works": {func(t *testing.T, d *pve.SSH) { injectError(t, d, 5, "pwritev") }, fault.Corrupt},
		"it reads back otherwise": {func(t *testing.T, d *pve.SSH) {
			replaceTool(t, d, "dd", "case $1 in *-disk-0) exec /usr/bin/head -c 540672 /dev/urandom;; esac\nexec /usr/bin/dd \"$@\"")
		}, fault.Corrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
			p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
			tt.spoil(t, d)
			if _, err := p.Deliver(t.Context(), newEntryDelivery(t)); !fault.Is(err, tt.kind) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "EFI variables") {
				t.Errorf("got %v (hint %q), want %v", err, fault.HintOf(err), tt.kind)
			}
			checkGone(t, server)
		})
	}
}

// After a crash at any call, or within the write to the EFI disk, the guest is marked as unfinished. The next
// delivery creates new variables and adds the entries once.
func TestBootEntriesSurviveCrashAtEveryCall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	want := variablesWithEntries(t, newEntryDelivery(t))
	t.Parallel()
	total := countCalls(t, newEntryDelivery(t))
	step := 1
	if !lane.Slow {
		step = 3 // TestBootEntryWriteResumes crashes within the write
	}
	for back := -1; back < 12; back += step { // calls: from before the guest is defined to the end
		site, server, _ := newEntrySite(t)
		d := newEntryDelivery(t)
		cut := func(call int) targettest.Outcome {
			switch at := total - max(back, 0); {
			case call < at:
				return targettest.Pass
			case call == at && back >= 0:
				return targettest.Unanswered
			}
			return targettest.Lost // the last call if back is -1: all is written, but not reported
		}
		site.SetCallHook(cut)
		_, _ = site.Platform.Deliver(t.Context(), d) // the caller has crashed
		site.SetCallHook(nil)
		if _, err := site.Platform.Deliver(t.Context(), d); err != nil {
			t.Fatalf("after a crash %d calls before the end: %v", back, err)
		}
		checkVariables(t, server, d, want)
		if t.Failed() {
			t.Fatalf("after a crash %d calls before the end", back)
		}
	}
}

// countCalls returns the number of calls of a delivery.
func countCalls(t *testing.T, d platform.Delivery) (n int) {
	t.Helper()
	site, _, _ := newEntrySite(t)
	site.SetCallHook(func(call int) targettest.Outcome { n = call; return targettest.Pass })
	if _, err := site.Platform.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return n
}

// newEntrySite returns a new site whose commands run without a login.
func newEntrySite(t *testing.T) (targettest.Site, *pve.Server, *Platform) {
	t.Helper()
	server, d := startSSHServer(t, configWithStorages(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := newDirectPlatform(t, server, d, Options{Storage: "tank"})
	callHook := &targettest.CallHook{Next: p.api.http.Transport}
	p.api.http.Transport = callHook
	p.shell.dial = hookDial(callHook, dialLocal(d))
	return targettest.Site{Platform: p, SetCallHook: callHook.SetHook}, server, p
}

// A write resumes after its connection breaks. A crash during the write leaves all of the entries or none.
// Half-written variables, as after a power failure of the node, are created again.
func TestBootEntryWriteResumes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	d := newEntryDelivery(t)
	want := variablesWithEntries(t, d)
	request := differingPages(freshVariables(t), want).Len
	for name, tt := range map[string]struct {
		after int64 // bytes that arrive at the EFI disk
		crash bool
		torn  bool
	}{
		"before":           {200, false, false},
		"within":           {1000 + request/2, false, false},
		"dies within":      {1000 + request/2, true, false},
		"torn, and dies":   {1000 + request/2, true, true},
		"dies in the head": {60, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site, server, p := newEntrySite(t)
			d := newEntryDelivery(t)
			next := p.shell.dial
			var broken atomic.Bool
			p.shell.dial = func(command string) (net.Conn, error) {
				conn, err := next(command)
				if err == nil && strings.Contains(command, "-disk-0") && strings.Contains(command, " write ") && !broken.Load() {
					conn = &breakingConn{Conn: conn, left: tt.after, hook: func() {
						broken.Store(true)
						if tt.crash {
							site.SetCallHook(func(int) targettest.Outcome { return targettest.Lost })
						}
					}}
				}
				return conn, err
			}
			_, err := p.Deliver(t.Context(), d)
			if !broken.Load() || (err == nil) == tt.crash {
				t.Fatalf("broken %v, err %v", broken.Load(), err)
			}
			if tt.crash {
				_, config := guestOf(t, server, d.VM)
				got, err := server.Read(t.Context(), config["efidisk0"])
				if err != nil || !bytes.Equal(got[:variablesSize], freshVariables(t)) {
					t.Errorf("some of the entries are written: %v", err)
				}
				if tt.torn {
					tearVariables(t, server, want)
				}
				site.SetCallHook(nil)
				if _, err := p.Deliver(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			checkVariables(t, server, d, want)
		})
	}
}

// tearVariables writes zeros over half of the changed variables on the EFI disk.
func tearVariables(t *testing.T, server *pve.Server, want []byte) {
	t.Helper()
	r := differingPages(freshVariables(t), want)
	for _, path := range server.Volumes() {
		if !strings.HasSuffix(path, "-disk-0") {
			continue
		}
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(make([]byte, r.Len/2), r.Off); err != nil {
			t.Fatal(err)
		}
	}
}

// breakingConn writes left bytes. Then it calls hook and closes the connection.
type breakingConn struct {
	net.Conn
	left int64
	hook func()
}

func (b *breakingConn) Write(p []byte) (int, error) {
	if int64(len(p)) <= b.left {
		b.left -= int64(len(p))
		return b.Conn.Write(p)
	}
	_, _ = b.Conn.Write(p[:b.left])
	b.left = 0
	b.hook()
	_ = b.Conn.Close()
	return 0, net.ErrClosed
}

func TestVariablesOfAnOption(t *testing.T) {
	t.Parallel()
	for option, want := range map[string]string{
		"tank:vm-100-disk-0,efitype=4m,ms-cert=2023,pre-enrolled-keys=1,size=4M": "tank:vm-100-disk-0",
		"tank:vm-100-disk-0,efitype=2m,size=128K":                                "",
		"tank:vm-100-disk-0,size=128K":                                           "", // the default is 2m
		"":                                                                       "",
	} {
		if got, err := variablesOf(option); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", option, got, err)
		}
	}
}

// A guest without a fallback loader boots by its boot entry.
func TestDirectGuestBootsByItsEntry(t *testing.T) {
	t.Parallel()
	path := tinyguest.Image(t, tinyguest.Entry)
	s, d := startSSHServer(t, pve.Config{})
	p := newDirectPlatform(t, s, d, Options{})
	vm := tinyVM(inventory.LSISAS, inventory.EFI)
	def := targets.Definition{VM: vm, Images: []targets.Image{
		{Key: 2000, Path: path, Manifest: t.TempDir() + "/m", Format: targets.Raw, Size: tinyguest.Size, Root: "aa55"},
	}}
	src, err := openImage(t.Context(), def.Images[0])
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	report, err := guest.Detect(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	def.EFI = new(guest.EFIState([]guest.Report{report}, efi.State{}))
	receipt, err := p.Deliver(t.Context(), platform.Delivery{Open: openImage, Definition: def})
	if err != nil {
		t.Fatal(err)
	}
	if m := bootGuest(t, s, p, def, receipt.ID); m.Driver != "virtio_scsi" || m.Firmware != "efi" || m.UUID != vm.UUID {
		t.Errorf("the guest sees %+v", m)
	}
}
