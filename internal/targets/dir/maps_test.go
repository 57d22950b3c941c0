package dir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
)

// The folder, the files and the domain have the mapped name. The record has both names.
func TestPublishUnderAnotherName(t *testing.T) {
	d := newTarget(t, Options{Domain: DomainOptions{Maps: namemap.Map{Names: map[string]string{"web *": "www *"}}}})
	vm := biosVM()
	def := stageVM(t, d, vm)
	if err := d.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(d.root, "www_01")
	r, err := ReadRecord(folder)
	if err != nil || r.TargetName() != "www 01" || r.Source.Name != "web 01" || r.Images[0].File != "www_01-disk0.raw" {
		t.Fatalf("got record %+v, %v", r, err)
	}
	xml, err := os.ReadFile(filepath.Join(folder, "domain.xml"))
	if err != nil || !strings.Contains(string(xml), "<name>www 01</name>") || !strings.Contains(string(xml), `name="web 01"`) {
		t.Errorf("got domain %s, %v", xml, err)
	}
	if !d.Holds(vm) || d.Folder(vm) != folder {
		t.Errorf("Holds = %v, Folder = %s", d.Holds(vm), d.Folder(vm))
	}
	if err := d.Withdraw(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(folder); err == nil {
		t.Error("the folder exists after Withdraw")
	}
}

func TestFolderHasNoStorages(t *testing.T) {
	d := newTarget(t, Options{Domain: DomainOptions{Maps: namemap.Map{Storages: map[string]string{"ssd*": "fast"}}}})
	vm := biosVM()
	if _, err := d.Plan(t.Context(), vm); err != nil {
		t.Errorf("Plan of a VM without mapped disks: %v", err)
	}
	vm.Disks[0].Path.Datastore = "ssd1"
	if _, err := d.Plan(t.Context(), vm); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "ssd1") {
		t.Errorf("got %v (hint %q), want unsupported", err, fault.HintOf(err))
	}
}

func TestDomainUsesNetworkMap(t *testing.T) {
	maps := namemap.Map{Networks: map[string]namemap.Network{"VM *": {To: "bridge:br-*", VLAN: 20, Model: "e1000e"}, "dmz": {Model: "virtio"}}}
	vm := changedVM(biosVM(), func(vm *inventory.VM) {
		vm.NICs = append(vm.NICs, inventory.NIC{Key: 4001, Model: "vmxnet3", MAC: "00:50:56:ab:cd:02", Network: "dmz", StartConnected: true, DisconnectedByDecamp: true})
	})
	xml, warnings, err := Domain(newDefinition(vm), DomainOptions{Maps: maps})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<source bridge="br-Network">`, `<tag id="20">`, `<model type="e1000e">`, `<source network="default">`, `<model type="virtio">`, `<link state="down">`,
	} {
		if strings.Count(xml, want) != 1 {
			t.Errorf("%s occurs %d times, want once, in\n%s", want, strings.Count(xml, want), xml)
		}
	}
	if len(warnings) != 1 || warnings[0].Code != "vlan" {
		t.Errorf("got warnings %+v, want one about the VLAN", warnings)
	}
}
