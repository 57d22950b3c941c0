package inventory_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

func validVM() *inventory.VM {
	p := inventory.Path{Datastore: "nas 1 (50%)", File: "Žižkov & söhne/a,b=c.vmdk"}
	return &inventory.VM{
		Ref: "vm-42", Name: "Žižkov & söhne, 'web'", UUID: "564d1234-0000-1111-2222-333344445555", InstanceUUID: "52aa0000-1111-2222-3333-444455556666",
		Host: "ha-host", HostName: "esx1.example", Cluster: "blue", Datacenter: "F/DC%2f1", Folder: strings.Repeat("長い名前/", 200) + "prod/app", VMX: p, NVRAM: p,
		GuestID: "windows2019srvNext_64Guest", GuestName: "Microsoft Windows Server 2022 (64-bit)", Annotation: "first\n\tsecond \u0096",
		Tags: []inventory.Tag{{Category: "env", Name: "<prod>"}}, Attributes: map[string]string{"Owner": "R&D"}, CPUs: 4, CoresPerSocket: 2, MemoryMiB: 8192,
		Firmware: inventory.EFI, BootOrder: []string{"net:4000", "disk:2000", "cdrom", "floppy"},
		Controllers: []inventory.Controller{{Key: 1000, Unexpected: "VirtualNVDIMMController"}},
		Disks: []inventory.Disk{{Key: 2000, Label: "Hard disk 1", Path: p, Base: p, Capacity: 1 << 40, Mode: "independent_persistent",
			UUID: "6000C29a-4cbb-f2e9-5b95-000000000001", ChangeID: "52 de c0 d9 b9 43 9d 10-61 d5 4c 1b e9 7b 65 63/81"}},
		NICs: []inventory.NIC{{Key: 4000, Label: "Network adapter 1", Model: "vmxnet3", MAC: "00:50:56:ab:cd:ef", AddressType: "manual", Network: "VLAN/20"}},
	}
}

func TestValidVMIsNotChanged(t *testing.T) {
	vm := validVM()
	if problems := vm.RemoveInvalid(); problems != nil || !reflect.DeepEqual(vm, validVM()) {
		t.Errorf("problems %q, VM %+v", problems, vm)
	}
	if problems := (&inventory.VM{}).RemoveInvalid(); problems != nil {
		t.Errorf("an empty VM has problems: %q", problems)
	}
}

// TestEveryStringOfAVMIsChecked sets each string field to a value that is invalid in all fields. The test
// fails for a new field until RemoveInvalid checks it.
func TestEveryStringOfAVMIsChecked(t *testing.T) {
	const bad = "a\x00\xff"
	filled := func() *inventory.VM {
		vm := validVM()
		vm.Warnings = []inventory.Warning{{Code: "x"}}
		return vm
	}
	n := 0
	eachString(reflect.ValueOf(filled()).Elem(), "", func(field string, _ reflect.Value) {
		if strings.HasPrefix(field, ".Warnings") || field == ".Power" || field == ".Controllers[0].Bus" || field == ".Disks[0].Backing" {
			return
		}
		n++
		vm := filled()
		eachString(reflect.ValueOf(vm).Elem(), "", func(other string, v reflect.Value) {
			if other == field {
				v.SetString(bad)
			}
		})
		problems := vm.RemoveInvalid()
		if len(problems) != 1 || !strings.Contains(problems[0], "is not valid: want ") {
			t.Errorf("%s = %q: problems %q, want one", field, bad, problems)
		}
		if text := fmt.Sprintf("%+v", vm); strings.Contains(text, bad) {
			t.Errorf("%s: the value is not removed: %s", field, text)
		}
	})
	if n < 30 {
		t.Errorf("%d strings were checked", n)
	}
	vm := filled()
	vm.Attributes["a\x00"] = "b"
	vm.Attributes["b"] = "\xff"
	if problems := vm.RemoveInvalid(); len(problems) != 2 || len(vm.Attributes) != 1 {
		t.Errorf("problems %q, attributes %q", problems, vm.Attributes)
	}
}

func eachString(v reflect.Value, name string, f func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.String:
		f(name, v)
	case reflect.Struct:
		for i := range v.NumField() {
			eachString(v.Field(i), name+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachString(v.Index(i), fmt.Sprintf("%s[%d]", name, i), f)
		}
	}
}

func TestInvalidValues(t *testing.T) {
	for what, change := range map[string]func(*inventory.VM){
		"reference that starts with a dash": func(vm *inventory.VM) { vm.Ref = "-42" },
		"UUID with an option of QEMU":       func(vm *inventory.VM) { vm.UUID += ",x=y" },
		"MAC with an option of QEMU":        func(vm *inventory.VM) { vm.NICs[0].MAC += ",netdev=x" },
		"MAC with a line break":             func(vm *inventory.VM) { vm.NICs[0].MAC += "\n" },
		"path outside of the datastore":     func(vm *inventory.VM) { vm.Disks[0].Path.File = "../../etc/passwd" },
		"path with an empty element":        func(vm *inventory.VM) { vm.Disks[0].Path.File = "/etc/passwd" },
		"datastore with the name ..":        func(vm *inventory.VM) { vm.VMX.Datastore = ".." },
		"datastore with a slash":            func(vm *inventory.VM) { vm.VMX.Datastore = "a/b" },
		"path without a datastore":          func(vm *inventory.VM) { vm.VMX.Datastore = "" },
		"unknown firmware":                  func(vm *inventory.VM) { vm.Firmware = "coreboot" },
		"name with an escape sequence":      func(vm *inventory.VM) { vm.Name = "a\x1b[31m" },
		"name with a line break":            func(vm *inventory.VM) { vm.Name = "a\nb" },
		"name with a line separator":        func(vm *inventory.VM) { vm.Name = "a\u2028b" },
		"name that is too long":             func(vm *inventory.VM) { vm.Name = strings.Repeat("a", 1<<10+1) },
		"notes that are too long":           func(vm *inventory.VM) { vm.Annotation = strings.Repeat("a", 256<<10+1) },
		"notes that XML cannot represent":   func(vm *inventory.VM) { vm.Annotation = "a\uffff" },
		"negative capacity":                 func(vm *inventory.VM) { vm.Disks[0].Capacity = -1 },
		"negative memory":                   func(vm *inventory.VM) { vm.MemoryMiB = -1 },
		"two devices with one key":          func(vm *inventory.VM) { vm.NICs[0].Key = vm.Disks[0].Key },
	} {
		vm := validVM()
		change(vm)
		if problems := vm.RemoveInvalid(); len(problems) != 1 {
			t.Errorf("%s: problems %q", what, problems)
		}
	}
}

// The replaced references of two VMs with invalid references differ.
func TestInvalidReferencesStayDifferent(t *testing.T) {
	a, b := &inventory.VM{Ref: "-1"}, &inventory.VM{Ref: "-2"}
	a.RemoveInvalid()
	b.RemoveInvalid()
	if a.Ref == b.Ref || a.RemoveInvalid() != nil || b.RemoveInvalid() != nil {
		t.Errorf("%q and %q", a.Ref, b.Ref)
	}
}

// TestHostileInventoryIsClean checks the result of RemoveInvalid for random VMs, and that JSON preserves it.
func TestHostileInventoryIsClean(t *testing.T) {
	r := inventorytest.New(1)
	clean := 0
	for range inventorytest.Runs {
		vm := inventorytest.VM(r)
		if vm.RemoveInvalid() == nil {
			clean++
		}
		if again := vm.RemoveInvalid(); again != nil {
			t.Fatalf("the second call returns problems: %q", again)
		}
		eachString(reflect.ValueOf(vm).Elem(), "", func(field string, v reflect.Value) {
			for _, x := range v.String() {
				if unicode.IsControl(x) && field != ".Annotation" && !strings.HasPrefix(field, ".Tags") {
					t.Fatalf("%s = %q has a control character", field, v.String())
				}
			}
			if !utf8.ValidString(v.String()) {
				t.Fatalf("%s = %q is not UTF-8", field, v.String())
			}
		})
		if len(vm.Tags) == 0 {
			vm.Tags = nil // JSON has one form for nil and empty
		}
		if len(vm.Attributes) == 0 {
			vm.Attributes = nil
		}
		text, err := json.Marshal(vm)
		if err != nil {
			t.Fatal(err)
		}
		var back inventory.VM
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, vm) {
			t.Fatalf("JSON changes a VM: %v\n%+v\n%+v", err, back, vm)
		}
	}
	if clean < inventorytest.Runs/10 || clean > inventorytest.Runs*9/10 {
		t.Errorf("%d of %d VMs have no invalid values, want 10 %% to 90 %%", clean, inventorytest.Runs)
	}
}
