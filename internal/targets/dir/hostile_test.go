package dir

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/inventory/inventorytest"
)

// parsedDomain has the values of domain.xml that come from the inventory.
type parsedDomain struct {
	XMLName     xml.Name `xml:"domain"`
	Name        string   `xml:"name"`
	UUID        string   `xml:"uuid"`
	Description string   `xml:"description"`
	Source      struct {
		Ref          string `xml:"ref,attr"`
		InstanceUUID string `xml:"instanceUuid,attr"`
		Host         string `xml:"host,attr"`
		VMX          string `xml:"vmx,attr"`
		Name         string `xml:"name,attr"`
		Networks     []struct {
			MAC  string `xml:"mac,attr"`
			Name string `xml:"name,attr"`
		} `xml:"network"`
		Tags []struct {
			Category string `xml:"category,attr"`
			Name     string `xml:"name,attr"`
		} `xml:"tag"`
		Attributes []struct {
			Name  string `xml:"name,attr"`
			Value string `xml:",chardata"`
		} `xml:"attribute"`
	} `xml:"metadata>source"`
	Serial []string `xml:"sysinfo>system>entry"`
	Disks  []struct {
		Serial string `xml:"serial"`
		Source struct {
			File string `xml:"file,attr"`
		} `xml:"source"`
	} `xml:"devices>disk"`
	Cards []struct {
		MAC struct {
			Address string `xml:"address,attr"`
		} `xml:"mac"`
	} `xml:"devices>interface"`
}

// The parsed domains of hostile VMs have the values of the inventory.
func TestHostileInventoryInDomainXML(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := inventorytest.New(4)
	var all bytes.Buffer
	all.WriteString("<all>\n")
	for range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		text, _, err := Domain(newDefinition(vm), DomainOptions{})
		if err != nil {
			t.Fatalf("%+v: %v", vm, err)
		}
		var d parsedDomain
		dec := xml.NewDecoder(strings.NewReader(text))
		if err := dec.Decode(&d); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if rest := text[dec.InputOffset():]; strings.TrimSpace(rest) != "" {
			t.Fatalf("unexpected data after the domain: %q", rest)
		}
		checkEqual(t, "description", d.Description, vm.Annotation)
		checkEqual(t, "uuid", d.UUID, vm.UUID)
		checkEqual(t, "name", d.Name, DomainName(vm.Name))
		if strings.ContainsAny(d.Name, "/\n") || strings.TrimSpace(d.Name) == "" {
			t.Fatalf("libvirt does not accept the name %q", d.Name)
		}
		checkEqual(t, "source", []string{d.Source.Ref, d.Source.InstanceUUID, d.Source.Host, d.Source.VMX, d.Source.Name},
			[]string{string(vm.Ref), vm.InstanceUUID, vm.HostName, vm.VMX.String(), vm.Name})
		if vm.UUID != "" {
			checkEqual(t, "serial number", d.Serial, []string{vm.Serial()})
		}
		var tags []inventory.Tag
		for _, x := range d.Source.Tags {
			tags = append(tags, inventory.Tag{Category: x.Category, Name: x.Name})
		}
		if len(tags)+len(vm.Tags) > 0 {
			checkEqual(t, "tags", tags, vm.Tags)
		}
		attributes := map[string]string{}
		for _, x := range d.Source.Attributes {
			attributes[x.Name] = x.Value
		}
		checkEqual(t, "attributes", attributes, vm.Attributes)
		for i, n := range vm.NICs {
			checkEqual(t, "card", d.Cards[i].MAC.Address, n.MAC)
			checkEqual(t, "network", []string{d.Source.Networks[i].MAC, d.Source.Networks[i].Name}, []string{n.MAC, n.Network})
		}
		if strings.Contains(text, `<mac address=""`) {
			t.Fatalf("libvirt does not accept an empty MAC:\n%s", text)
		}
		if len(d.Cards) != len(vm.NICs) || len(d.Disks) != len(vm.Disks) {
			t.Fatalf("%d cards and %d disks, want %d and %d", len(d.Cards), len(d.Disks), len(vm.NICs), len(vm.Disks))
		}
		for i, x := range vm.Disks {
			checkEqual(t, "file", d.Disks[i].Source.File, newDefinition(vm).Images[i].Final)
			if got := d.Disks[i].Serial; got != "" { // disks on SATA have no serial number
				checkEqual(t, "serial", got, strings.ReplaceAll(x.UUID, "-", ""))
			}
		}
		all.WriteString(text)
	}
	all.WriteString("</all>\n")
	cmd := exec.Command("xmllint", "--huge", "--stream", "--noout", "-")
	cmd.Stdin = &all
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("xmllint: %v: %.400s", err, out)
	}
}

// The vm.json of a hostile VM decodes to the same VM.
func TestHostileInventoryInRecords(t *testing.T) {
	r := inventorytest.New(5)
	for range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		if len(vm.Tags) == 0 {
			vm.Tags = nil
		}
		if len(vm.Attributes) == 0 {
			vm.Attributes = nil
		}
		def := newDefinition(vm)
		for i := range def.Images {
			def.Images[i].Manifest = def.Images[i].Final + ".manifest"
		}
		text, err := json.Marshal(newRecord(def, vm.Name, nil))
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseRecord(text)
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		checkEqual(t, "VM", back.Source, vm)
		if slices.ContainsFunc(back.Images, func(img RecordedImage) bool { return strings.HasPrefix(img.File, "-") }) {
			t.Fatalf("files %+v begin with a dash", back.Images)
		}
	}
}

func checkEqual(t *testing.T, name string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %q, want %q", name, got, want)
	}
}
