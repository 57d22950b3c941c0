package kubevirt

import (
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/namemap"
)

func TestManifestsByAMap(t *testing.T) {
	vm := biosVM()
	vm.Disks[0].Path.Datastore = "ssd1"
	maps := namemap.Map{
		Networks: map[string]namemap.Network{"VM *": {To: "multus:vms/lan", Model: "virtio"}},
		Storages: map[string]string{"ssd*": "fast"},
		Names:    map[string]string{"web 01": "Shop"},
	}
	text, _, err := Manifests(newDefinition(vm), Options{StorageClass: "slow", Maps: maps})
	if err != nil {
		t.Fatal(err)
	}
	for want, times := range map[string]int{
		"  name: shop\n": 1, "name: shop-disk0\n": 2, "storageClassName: fast\n": 1, "networkName: vms/lan\n": 1, "model: virtio\n": 1,
		`decamp.github.io/name: "web 01"`: 1, "slow": 0,
	} {
		if got := strings.Count(string(text), want); got != times {
			t.Errorf("%q occurs %d times, want %d, in\n%s", want, got, times, text)
		}
	}
}

func TestUnsupportedMapsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		maps namemap.Map
		kind fault.Kind
		hint string
	}{
		"a tag":          {namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: Pod, VLAN: 20}}}, fault.Unsupported, "vlan: 20"},
		"a tag for all":  {namemap.Map{Networks: map[string]namemap.Network{"*": {To: Pod, VLAN: 20}}}, fault.Unsupported, "NetworkAttachmentDefinition"},
		"a model":        {namemap.Map{Networks: map[string]namemap.Network{"VM Network": {To: Pod, Model: "vmxnet3"}}}, fault.Unsupported, "e1000e"},
		"a bridge":       {namemap.Map{Networks: map[string]namemap.Network{"*": {To: "vmbr0"}}}, fault.Invalid, "multus:"},
		"no class":       {namemap.Map{Storages: map[string]string{"*": "Local LVM"}}, fault.Invalid, "kubectl get storageclass"},
		"no class by *":  {namemap.Map{Storages: map[string]string{"d*": "s_*"}}, fault.Invalid, "kubectl get storageclass"},
		"a bad net by *": {namemap.Map{Networks: map[string]namemap.Network{"VM*": {To: "multus:*"}}}, fault.Invalid, "multus:"},
	} {
		vm := biosVM()
		vm.Disks[0].Path.Datastore = "ds1"
		_, _, err := Manifests(newDefinition(vm), Options{Maps: c.maps})
		if !fault.Is(err, c.kind) || !strings.Contains(fault.HintOf(err), c.hint) {
			t.Errorf("%s: got %v (hint %q)", name, err, fault.HintOf(err))
		}
	}
}
