package kubevirt

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

var (
	hostileName       = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	hostileLabelKey   = regexp.MustCompile(`^decamp\.github\.io/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	hostileLabelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
)

// The parsed manifests of hostile VMs have the values of the inventory.
func TestHostileInventoryInManifests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := inventorytest.New(6)
	opts := Options{Network: multusPrefix + "ns/net"}
	for n := range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		def := newDefinition(vm)
		text, _, err := Manifests(def, opts)
		if err != nil {
			t.Fatalf("%+v: %v", vm, err)
		}
		o, err := newObjects(def, opts)
		if err != nil {
			t.Fatal(err)
		}
		f := &Folder{root: "/srv/stage", opts: opts}
		text = append(f.headerComment(o, def), text...)
		docs := parseDocuments(t, text)
		if len(docs) != len(vm.Disks)+1 {
			t.Fatalf("%d documents, want %d:\n%s", len(docs), len(vm.Disks)+1, text)
		}
		d := docs[len(docs)-1]
		if d.Kind != "VirtualMachine" || !hostileName.MatchString(d.Metadata.Name) {
			t.Fatalf("%s %q", d.Kind, d.Metadata.Name)
		}
		notes := d.Metadata.Annotations
		want := map[string]string{
			refNote: string(vm.Ref), instanceNote: vm.InstanceUUID, uuidNote: vm.UUID, nameNote: vm.Name, hostNote: vm.HostName, vmxNote: vm.VMX.String(),
		}
		for key, value := range want {
			if have, ok := notes[key]; !ok || have != value {
				t.Fatalf("%s: %q, want %q in:\n%s", key, have, value, text)
			}
		}
		if notes["description"] != vm.Annotation {
			t.Fatalf("description: %q, want %q in:\n%s", notes["description"], vm.Annotation, text)
		}
		for key, value := range d.Metadata.Labels {
			if !hostileLabelKey.MatchString(key) || !hostileLabelValue.MatchString(value) {
				t.Fatalf("Kubernetes refuses the label %q: %q", key, value)
			}
		}
		var tags []inventory.Tag
		if len(vm.Tags) > 0 {
			if err := json.Unmarshal([]byte(notes[tagsNote]), &tags); err != nil || !reflect.DeepEqual(tags, vm.Tags) {
				t.Fatalf("tags %q, want %q: %v", tags, vm.Tags, err)
			}
		}
		attributes := map[string]string{}
		if len(vm.Attributes) > 0 {
			if err := json.Unmarshal([]byte(notes[attributesNote]), &attributes); err != nil || !reflect.DeepEqual(attributes, vm.Attributes) {
				t.Fatalf("attributes %q, want %q: %v", attributes, vm.Attributes, err)
			}
		}
		for i, n := range vm.NICs {
			if got := d.Spec.Template.Spec.Domain.Devices.Interfaces[i].MAC; got != n.MAC {
				t.Fatalf("MAC %q, want %q", got, n.MAC)
			}
		}
		if got := d.Spec.Template.Spec.Domain.Firmware.UUID; got != vm.UUID {
			t.Fatalf("UUID %q, want %q", got, vm.UUID)
		}
		if n%10 > 0 {
			continue
		}
		if err := madeOf(bytes.NewReader(text), vm); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
	}
}

type manifestDocument struct {
	Kind     string
	Metadata struct {
		Name                string
		Annotations, Labels map[string]string
	}
	Spec struct {
		Template struct {
			Spec struct {
				Domain struct {
					Firmware struct{ UUID string }
					Devices  struct {
						Interfaces []struct {
							MAC string `yaml:"macAddress"`
						}
					}
				}
			}
		}
	}
}

func parseDocuments(t *testing.T, text []byte) (all []manifestDocument) {
	t.Helper()
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var d manifestDocument
		err := dec.Decode(&d)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		all = append(all, d)
	}
}

// The JSON of hostile VMs is one line and decodes to the same object.
func TestHostileInventoryInJSON(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := inventorytest.New(7)
	for range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		o, err := newObjects(newDefinition(vm), Options{Network: multusPrefix + "ns/net"})
		if err != nil {
			t.Fatal(err)
		}
		text, err := marshalJSON(o.vm)
		if err != nil {
			t.Fatal(err)
		}
		var back virtualMachine
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back.Metadata, o.vm.Metadata) || strings.Count(string(text), "\n") != 1 {
			t.Fatalf("%v: %s", err, text)
		}
	}
}
