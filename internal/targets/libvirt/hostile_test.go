package libvirt

import (
	"encoding/xml"
	"regexp"
	"testing"

	"github.com/decamp/decamp/internal/inventory/inventorytest"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets"
)

// lvName matches the names that LVM accepts for a volume.
var lvName = regexp.MustCompile(`^[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126}$`)

// Volume names, XML and marks of hostile VMs are valid and parse to the same values.
func TestHostileInventoryInVolumes(t *testing.T) {
	t.Parallel()
	r := inventorytest.New(11)
	var d domainFinder
	for i := range inventorytest.Runs {
		vm := inventorytest.VM(r)
		vm.RemoveInvalid()
		name := volumeName(namemap.Map{}, vm, i%4, targets.Raw)
		if !lvName.MatchString(name) || reserved.MatchString(name) || reservedPrefix.MatchString(name) {
			t.Fatalf("LVM does not accept the name %q for %q", name, vm.Name)
		}
		text, err := volumeXML(pool{block: i%2 == 0}, name, int64(i))
		if err != nil {
			t.Fatal(err)
		}
		var v struct {
			XMLName  xml.Name `xml:"volume"`
			Name     string   `xml:"name"`
			Capacity int64    `xml:"capacity"`
		}
		if err := xml.Unmarshal([]byte(text), &v); err != nil || v.Name != name || v.Capacity != int64(i) {
			t.Fatalf("%+v, %v in:\n%s", v, err, text)
		}
		marked, err := xml.Marshal(d.newMark(vm))
		if err != nil {
			t.Fatal(err)
		}
		if !d.hasMark(vm, "<domain><name>x</name><metadata>"+string(marked)+"</metadata></domain>") {
			t.Fatalf("mark %s is not recognized", marked)
		}
	}
}
