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

const template = "/usr/share/OVMF/OVMF_VARS_4M.fd"

// fresh are the variables that the node's firmware begins with.
func fresh(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(template)
	if err != nil {
		t.Skip(err)
	}
	return data
}

// withEntry is a delivery of an EFI VM with a boot entry, and one disk that is empty.
func withEntry(t *testing.T) platform.Delivery {
	t.Helper()
	vm := with(sparseVM(1<<20), func(vm *inventory.VM) { vm.Firmware = inventory.EFI })
	d := deliver(t, vm)
	d.Open = open
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

// entered are the variables that d's guest is to have.
func entered(t *testing.T, d platform.Delivery) []byte {
	t.Helper()
	store, err := efi.OpenStore(fresh(t))
	if err == nil {
		err = store.Add(*d.EFI)
	}
	if err != nil {
		t.Fatal(err)
	}
	return store.Bytes()
}

// variablesAre compares the EFI disk of d's guest, which is complete, and has a disk and an EFI disk.
func variablesAre(t *testing.T, s *pve.Server, d platform.Delivery, want []byte) {
	t.Helper()
	vmid, config := guestOf(t, s, d.VM)
	if is := parseDescription(config["description"], d.VM, vmid); is.plan != "" {
		t.Errorf("the guest is %+v", is)
	}
	got, err := s.Read(t.Context(), config["efidisk0"])
	if err != nil || len(got) < variablesSize || !bytes.Equal(got[:variablesSize], want) {
		t.Errorf("the EFI disk %q has %d bytes, err %v, and not what it should", config["efidisk0"], len(got), err)
	}
	if all := s.Volumes(); len(all) != 2 {
		t.Errorf("volumes %v", all)
	}
}

// The entries are in the firmware's own variables, which are else as the node made them, on every kind of storage.
func TestBootEntriesGoToEveryStorage(t *testing.T) {
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
			continue // "inactive" is LVM, too
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, d := serveSSH(t, node(kind))
			p := directPlace(t, server, d, Options{Storage: "tank"})
			vm := withEntry(t)
			receipt, err := p.Deliver(t.Context(), vm)
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			if len(receipt.Warnings) != 0 || !receipt.EFI {
				t.Errorf("receipt %+v", receipt)
			}
			variablesAre(t, server, vm, entered(t, vm))
			_, config := guestOf(t, server, vm.VM)
			data, err := server.Read(t.Context(), config["efidisk0"])
			if err != nil {
				t.Fatal(err)
			}
			if kind.Type != "dir" && !bytes.Contains(data[variablesSize:], []byte("old tenant")) {
				t.Error("what is behind the variables was written to")
			}
			store, err := efi.OpenStore(data[:variablesSize])
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := efi.StateOf(store.Variables()); !reflect.DeepEqual(got, *vm.EFI) {
				t.Errorf("the firmware has %+v", got)
			}
			if err := p.Withdraw(t.Context(), vm.VM); err != nil {
				t.Error(err)
			}
			checkGone(t, server)
		})
	}
}

// By the API alone nothing is carried; both ways say so beforehand.
func TestWhichWayCarriesBootEntries(t *testing.T) {
	t.Parallel()
	server, d := serveSSH(t, pve.Config{})
	def := withEntry(t).Definition
	for name, tt := range map[string]struct {
		place *Platform
		state *efi.State
		takes bool
		warns bool
	}{
		"by the API":       {place(t, server, Options{}), def.EFI, false, true},
		"over SSH":         {directPlace(t, server, d, Options{}), def.EFI, true, false},
		"over SSH, no one": {directPlace(t, server, d, Options{}), &efi.State{}, true, true},
	} {
		def.EFI = tt.state
		o, err := tt.place.Outline(def, targets.Outline{})
		if err != nil {
			t.Fatal(err)
		}
		if warns := len(o.Warnings) == 1 && o.Warnings[0].Code == "efi-variables"; tt.place.CarriesEFI() != tt.takes || warns != tt.warns {
			t.Errorf("%s: %v, warnings %v", name, tt.place.CarriesEFI(), o.Warnings)
		}
	}
}

// Where nothing can be added the guest is delivered with the variables that Proxmox made, and it is said why.
func TestBootEntriesThatStayBehind(t *testing.T) {
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
			tool(t, d, "pvesm", "case $2 in *-disk-0) echo "+other+"; exit;; esac\n"+string(pvesm))
		}
	}
	for name, tt := range map[string]struct {
		spoil func(*testing.T, *pve.SSH)
		why   string
	}{
		"no store":         {diverted(variablesSize), "it is no firmware volume"},
		"a smaller store":  {diverted(128 << 10), "has 131072 bytes"},
		"one write fails":  {failsOnce, "no room"},
		"no such tool now": {func(t *testing.T, d *pve.SSH) { refuseDisk(t, d) }, "does not have the volume"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := fresh(t)
			server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
			p := directPlace(t, server, d, Options{Storage: "tank"})
			tt.spoil(t, d)
			vm := withEntry(t)
			receipt, err := p.Deliver(t.Context(), vm)
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			if w := receipt.Warnings; len(w) != 1 || w[0].Code != "efi-variables" || w[0].Remedy == "" || !strings.Contains(w[0].Text, tt.why) {
				t.Errorf("warnings %v, want %q", w, tt.why)
			}
			variablesAre(t, server, vm, want)
			again, err := p.Deliver(t.Context(), vm) // as after a crash before anybody wrote the first receipt down
			if err != nil || !reflect.DeepEqual(again, receipt) || !again.EFI {
				t.Errorf("delivered again: %+v, %v; first it was %+v", again, err, receipt)
			}
		})
	}
}

// failsOnce has a disk that is full when the EFI disk is written to for the first time, and then no more.
func failsOnce(t *testing.T, d *pve.SSH) {
	folder := t.TempDir()
	real, err := exec.LookPath("qemu-nbd")
	if err != nil {
		t.Fatal(err)
	}
	rules := filepath.Join(folder, "rules")
	if err := os.WriteFile(rules, []byte("[inject-error]\nevent = \"pwritev\"\nerrno = \"28\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, d, "qemu-nbd", fmt.Sprintf("PATH=/usr/bin:/bin\nfor last; do :; done\ncase $last in *-disk-0) mkdir %s/was 2>/dev/null && exec %s -f raw \"blkdebug:%s:$last\";; esac\nexec %s \"$@\"",
		folder, real, rules, real))
}

// refuseDisk has a node that does not know the EFI disk.
func refuseDisk(t *testing.T, d *pve.SSH) {
	pvesm, err := os.ReadFile(filepath.Join(d.Tools, "pvesm"))
	if err != nil {
		t.Fatal(err)
	}
	tool(t, d, "pvesm", "case $2 in *-disk-0) exit 2;; esac\n"+string(pvesm))
}

// Where neither the entries nor what was there before can be written the guest is not left so.
func TestHalfWrittenVariablesAreNotLeft(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	fresh(t)
	for name, tt := range map[string]struct {
		spoil func(*testing.T, *pve.SSH)
		kind  fault.Kind
	}{
		"no write works": {func(t *testing.T, d *pve.SSH) { fail(t, d, 5, "pwritev") }, fault.Corrupt},
		"it reads back otherwise": {func(t *testing.T, d *pve.SSH) {
			tool(t, d, "dd", "case $1 in *-disk-0) exec /usr/bin/head -c 540672 /dev/urandom;; esac\nexec /usr/bin/dd \"$@\"")
		}, fault.Corrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
			p := directPlace(t, server, d, Options{Storage: "tank"})
			tt.spoil(t, d)
			if _, err := p.Deliver(t.Context(), withEntry(t)); !fault.Is(err, tt.kind) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "EFI variables") {
				t.Errorf("%v (%s)", err, fault.HintOf(err))
			}
			checkGone(t, server)
		})
	}
}

// Whoever dies at a call, or at a byte on the way to the EFI disk, leaves a guest that says that it is unfinished;
// the next delivery gives it fresh variables with the entries, once.
func TestBootEntriesAfterACrashAnywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	want := entered(t, withEntry(t))
	t.Parallel()
	total := callsOf(t, withEntry(t))
	step := 1
	if !lane.Slow {
		step = 3 // TestBootEntriesWhoseWriteBreaksOff dies within the write
	}
	for back := -1; back < 12; back += step { // calls: from before the guest is defined to the end
		site, server, _ := entrySite(t)
		d := withEntry(t)
		cut := func(call int) targettest.Outcome {
			switch at := total - max(back, 0); {
			case call < at:
				return targettest.Pass
			case call == at && back >= 0:
				return targettest.Unanswered
			}
			return targettest.Lost // the last one, if back is -1: all is written, and it is not said
		}
		site.SetCallHook(cut)
		_, _ = site.Platform.Deliver(t.Context(), d) // nobody hears of its end
		site.SetCallHook(nil)
		if _, err := site.Platform.Deliver(t.Context(), d); err != nil {
			t.Fatalf("after a crash %d calls before the end: %v", back, err)
		}
		variablesAre(t, server, d, want)
		if t.Failed() {
			t.Fatalf("after a crash %d calls before the end", back)
		}
	}
}

// callsOf counts the calls of a delivery.
func callsOf(t *testing.T, d platform.Delivery) (n int) {
	t.Helper()
	site, _, _ := entrySite(t)
	site.SetCallHook(func(call int) targettest.Outcome { n = call; return targettest.Pass })
	if _, err := site.Platform.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	return n
}

// entrySite is a site of its own, without logins.
func entrySite(t *testing.T) (targettest.Site, *pve.Server, *Platform) {
	t.Helper()
	server, d := serveSSH(t, node(pve.Storage{ID: "tank", Type: "lvmthin"}))
	p := directPlace(t, server, d, Options{Storage: "tank"})
	tapped := &targettest.CallHook{Next: p.api.http.Transport}
	p.api.http.Transport = tapped
	p.shell.dial = dials(tapped, here(d))
	return targettest.Site{Platform: p, SetCallHook: tapped.SetHook}, server, p
}

// A connection that breaks within the write is gone on with; whoever dies there has written all or nothing, and what
// a node without power left is made anew.
func TestBootEntriesWhoseWriteBreaksOff(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	vm := withEntry(t)
	want := entered(t, vm)
	request := differingPages(fresh(t), want).Len
	for name, tt := range map[string]struct {
		after int64 // bytes that arrive at the EFI disk
		dies  bool
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
			site, server, p := entrySite(t)
			d := withEntry(t)
			next := p.shell.dial
			var broken atomic.Bool
			p.shell.dial = func(command string) (net.Conn, error) {
				conn, err := next(command)
				if err == nil && strings.Contains(command, "-disk-0") && strings.Contains(command, " write ") && !broken.Load() {
					conn = &breaking{Conn: conn, left: tt.after, hook: func() {
						broken.Store(true)
						if tt.dies {
							site.SetCallHook(func(int) targettest.Outcome { return targettest.Lost })
						}
					}}
				}
				return conn, err
			}
			_, err := p.Deliver(t.Context(), d)
			if !broken.Load() || (err == nil) == tt.dies {
				t.Fatalf("broken %v, err %v", broken.Load(), err)
			}
			if tt.dies {
				_, config := guestOf(t, server, d.VM)
				got, err := server.Read(t.Context(), config["efidisk0"])
				if err != nil || !bytes.Equal(got[:variablesSize], fresh(t)) {
					t.Errorf("half of the entries is there: %v", err)
				}
				if tt.torn {
					tear(t, server, want)
				}
				site.SetCallHook(nil)
				if _, err := p.Deliver(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			variablesAre(t, server, d, want)
		})
	}
}

// tear leaves half of what was to be written on the EFI disk.
func tear(t *testing.T, server *pve.Server, want []byte) {
	t.Helper()
	r := differingPages(fresh(t), want)
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

// breaking breaks once so many bytes were written to it.
type breaking struct {
	net.Conn
	left int64
	hook func()
}

func (b *breaking) Write(p []byte) (int, error) {
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
		"tank:vm-100-disk-0,size=128K":                                           "", // 2m is what is meant
		"":                                                                       "",
	} {
		if got, err := variablesOf(option); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", option, got, err)
		}
	}
}

// A guest without fallback loader comes up by its boot entry.
func TestDirectGuestBootsByItsEntry(t *testing.T) {
	t.Parallel()
	path := tinyguest.Image(t, tinyguest.Entry)
	s, d := serveSSH(t, pve.Config{})
	p := directPlace(t, s, d, Options{})
	vm := tinyVM(inventory.LSISAS, inventory.EFI)
	def := targets.Definition{VM: vm, Images: []targets.Image{
		{Key: 2000, Path: path, Manifest: t.TempDir() + "/m", Format: targets.Raw, Size: tinyguest.Size, Root: "aa55"},
	}}
	src, err := open(t.Context(), def.Images[0])
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	report, err := guest.Detect(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	def.EFI = new(guest.EFIState([]guest.Report{report}, efi.State{}))
	receipt, err := p.Deliver(t.Context(), platform.Delivery{Open: open, Definition: def})
	if err != nil {
		t.Fatal(err)
	}
	if m := start(t, s, p, def, receipt.ID); m.Driver != "virtio_scsi" || m.Firmware != "efi" || m.UUID != vm.UUID {
		t.Errorf("the guest sees %+v", m)
	}
}
