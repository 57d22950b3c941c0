package dir

import (
	"encoding/xml"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/inventory"
)

// hostileTexts are unusual names of tags.
var hostileTexts = []string{
	"a/b", "näme größe 机器", `"quoted" 'twice'`, "two\nlines\r\n", "tab\there", "<disk/> & ]]> <!--", "$(reboot)`id`;", "%2f%00%s", " ",
	"a,b=c:d;e|f", "\u202ereversed", "\x00\x01\x1b[31m", string([]byte{'b', 'a', 'd', 0xff, 0xfe}), strings.Repeat("é", 300), "🏷", "Env", "env",
}

// The domain contains any tags and attributes unchanged, and libvirt's schema accepts it.
func TestDomainHasTagsAndAttributes(t *testing.T) {
	vm := biosVM()
	vm.Attributes = map[string]string{}
	for _, word := range hostileTexts {
		vm.Tags = append(vm.Tags, inventory.Tag{Category: word, Name: word + "!"})
		vm.Attributes[word] = word + "!"
	}
	text, _, err := Domain(newDefinition(vm), DomainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	var s source
	if err := xml.Unmarshal([]byte(x.Metadata.XML), &s); err != nil {
		t.Fatalf("%v in %s", err, x.Metadata.XML)
	}
	var want source
	want.Tags, want.Attributes = sourceTags(vm)
	for i := range want.Tags {
		want.Tags[i] = sourceTag{xmlText(want.Tags[i].Category), xmlText(want.Tags[i].Name)}
		want.Attributes[i] = sourceAttribute{xmlText(want.Attributes[i].Name), xmlText(want.Attributes[i].Value)}
	}
	if !slices.Equal(s.Tags, want.Tags) || !slices.Equal(s.Attributes, want.Attributes) {
		t.Errorf("tags %q\nwant %q\nattributes %q\nwant %q", s.Tags, want.Tags, s.Attributes, want.Attributes)
	}
	requireTools(t, "xmllint", schemaPath)
	if out, err := validateSchema(text); err != nil {
		t.Errorf("libvirt's schema: %s", out)
	}
}

// xmlText returns text without the characters that XML cannot contain.
func xmlText(text string) string {
	return strings.Map(func(r rune) rune { // replaces each byte of invalid UTF-8 by U+FFFD
		if r < ' ' && !strings.ContainsRune("\t\n\r", r) {
			return '\ufffd'
		}
		return r
	}, text)
}

// The record contains tags, attributes and notes unchanged.
func TestRecordHasTagsAndAttributes(t *testing.T) {
	vm, d := biosVM(), newTarget(t)
	big := bigVM()
	vm.Tags, vm.Attributes, vm.Annotation = big.Tags, big.Attributes, big.Annotation
	def := stageVM(t, d, vm)
	if err := d.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	r, err := ReadRecord(filepath.Dir(def.Images[0].Final))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Source; !slices.Equal(got.Tags, vm.Tags) || !maps.Equal(got.Attributes, vm.Attributes) || got.Annotation != vm.Annotation {
		t.Errorf("got record of %+v", got)
	}
}
