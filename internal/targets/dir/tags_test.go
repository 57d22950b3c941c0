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

// hostileWords are what people may call tags.
var hostileWords = []string{
	"a/b", "näme größe 机器", `"quoted" 'twice'`, "two\nlines\r\n", "tab\there", "<disk/> & ]]> <!--", "$(reboot)`id`;", "%2f%00%s", " ",
	"a,b=c:d;e|f", "\u202ereversed", "\x00\x01\x1b[31m", string([]byte{'b', 'a', 'd', 0xff, 0xfe}), strings.Repeat("é", 300), "🏷", "Env", "env",
}

// The domain has tags and attributes as they were, whatever is in them, and libvirt's schema takes it.
func TestDomainHasTagsAndAttributes(t *testing.T) {
	vm := biosVM()
	vm.Attributes = map[string]string{}
	for _, word := range hostileWords {
		vm.Tags = append(vm.Tags, inventory.Tag{Category: word, Name: word + "!"})
		vm.Attributes[word] = word + "!"
	}
	text, _, err := Domain(definition(vm), DomainOptions{})
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
		want.Tags[i] = sourceTag{legible(want.Tags[i].Category), legible(want.Tags[i].Name)}
		want.Attributes[i] = sourceAttribute{legible(want.Attributes[i].Name), legible(want.Attributes[i].Value)}
	}
	if !slices.Equal(s.Tags, want.Tags) || !slices.Equal(s.Attributes, want.Attributes) {
		t.Errorf("tags %q\nwant %q\nattributes %q\nwant %q", s.Tags, want.Tags, s.Attributes, want.Attributes)
	}
	requires(t, "xmllint", schema)
	if out, err := validate(text); err != nil {
		t.Errorf("libvirt's schema: %s", out)
	}
}

// legible is what XML can hold of a text.
func legible(text string) string {
	return strings.Map(func(r rune) rune { // which gives U+FFFD for each byte that is no UTF-8
		if r < ' ' && !strings.ContainsRune("\t\n\r", r) {
			return '\ufffd'
		}
		return r
	}, text)
}

// The record has them to the letter.
func TestRecordHasTagsAndAttributes(t *testing.T) {
	vm, d := biosVM(), newTarget(t)
	big := bigVM()
	vm.Tags, vm.Attributes, vm.Annotation = big.Tags, big.Attributes, big.Annotation
	def := copied(t, d, vm)
	if err := d.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	r, err := ReadRecord(filepath.Dir(def.Images[0].Final))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Source; !slices.Equal(got.Tags, vm.Tags) || !maps.Equal(got.Attributes, vm.Attributes) || got.Annotation != vm.Annotation {
		t.Errorf("%+v", got)
	}
}
