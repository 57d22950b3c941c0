package proxmox

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
	"github.com/decamp/decamp/internal/targets"
)

// tagFormat is Proxmox's format for tags (pve-tag in PVE::JSONSchema).
var tagFormat = regexp.MustCompile(`^(?i)[a-z0-9_][a-z0-9_\-+.]*$`)

func taggedVM(tags ...inventory.Tag) *inventory.VM {
	return changedVM(biosVM(), func(vm *inventory.VM) { vm.Tags = tags })
}

func TestTags(t *testing.T) {
	t.Parallel()
	vm := taggedVM(inventory.Tag{Category: "env", Name: "prod"}, inventory.Tag{Category: "Env", Name: "Prod"}, inventory.Tag{Category: "env", Name: "prod!"},
		inventory.Tag{Category: "Kunde", Name: "Müller & Söhne"}, inventory.Tag{Category: "lang", Name: "C++/C#"}, inventory.Tag{Category: "v", Name: "1.2_3"},
		inventory.Tag{Category: "decamp", Name: sourceID(biosVM())}, inventory.Tag{Category: "-", Name: "+"})
	want := []string{"env-prod", "env-prod-2", "env-prod-3", "kunde-muller-sohne", "lang-c++-c", "v-1.2_3", "_" + ownTag(biosVM()), "tag-"}
	got := vmTags(vm)
	if last := len(want) - 1; !slices.Equal(got[:last], want[:last]) || !strings.HasPrefix(got[last], want[last]) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzTags(f *testing.F) {
	for _, seed := range []string{"", "prod", "日本", "\xff\xfe", "decamp", "DECAMP-1", ";", "a;b,c d", strings.Repeat("é", 300), "\u202ereversed", "-", "+a"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, category, name string) {
		vm := taggedVM(inventory.Tag{Category: category, Name: name}, inventory.Tag{Category: strings.ToUpper(category), Name: name}, inventory.Tag{Category: name, Name: category})
		vm.Attributes = map[string]string{category: name, name: category}
		tags := vmTags(vm)
		for i, each := range tags {
			if !tagFormat.MatchString(each) || len(each) > 70 || strings.HasPrefix(each, commonTag) || slices.Contains(tags[:i], each) {
				t.Errorf("tags of %q and %q: %q", category, name, tags)
			}
		}
		text := guestDescription(vm, 105, guestStatus{images: "ef"})
		if got := parseDescription(text, vm, 105); len(text) > maxDescription || got != (guestStatus{ours: true, images: "ef"}) {
			t.Errorf("got %+v from %q", got, text)
		}
	})
}

// The guest's notes contain the VM's tags and attributes unchanged, and the VM's notes, even if there are too many
// attributes.
func TestNotesHaveTagsAndAttributes(t *testing.T) {
	t.Parallel()
	vm := taggedVM(inventory.Tag{Category: "Env", Name: "Prod & <more>"})
	vm.Attributes = map[string]string{"Owner": "R&D\nsecond line", "Cost centre": "4711"}
	text := guestDescription(vm, 105, guestStatus{})
	for _, want := range []string{"\nTag: Env/Prod & <more>\n", "\nCost centre: 4711\n", "\nOwner: R&D", "bill to: R&D"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %q", want, text)
		}
	}
	for i := range 500 {
		vm.Attributes[fmt.Sprint(i)] = strings.Repeat("é", 300)
	}
	if text := guestDescription(vm, 105, guestStatus{}); len(text) > maxDescription || !strings.Contains(text, "Prod & <more>") || !strings.Contains(text, "bill to: R&D") {
		t.Errorf("%d bytes: %.200s", len(text), text)
	}
}

// If the token may not set registered tags, Deliver succeeds without them. The warning has a command that sets them.
func TestRegisteredTagsCauseWarning(t *testing.T) {
	t.Parallel()
	most := slices.DeleteFunc(pve.All(), func(privilege string) bool { return privilege == "Sys.Modify" })
	mover := pve.Token{User: "mover@pve", ID: "t", Secret: "s3cret-0001", ACL: pve.ACL{"/": most}}
	s := startServer(t, pve.Config{Tokens: []pve.Token{mover}, RegisteredTags: []string{"env-prod"}})
	vm := taggedVM(inventory.Tag{Category: "env", Name: "prod"})
	p := newPlatform(t, s, Options{})
	r, err := p.Deliver(t.Context(), newDelivery(t, vm))
	if err != nil {
		t.Fatal(err)
	}
	_, config := guestOf(t, s, vm)
	at := slices.IndexFunc(r.Warnings, func(w inventory.Warning) bool { return w.Code == "tags" })
	if config["tags"] != "decamp;"+ownTag(vm) || at < 0 || !strings.Contains(r.Warnings[at].Remedy, ";env-prod") || !strings.Contains(config["description"], "env/prod") {
		t.Errorf("got tags %q, warnings %+v", config["tags"], r.Warnings)
	}
}

// The outline contains the same tags that Deliver sets.
func TestOutlineHasTheTags(t *testing.T) {
	t.Parallel()
	s := startServer(t, pve.Config{})
	vm := taggedVM(inventory.Tag{Category: "Env", Name: "Prod"}, inventory.Tag{Category: "app", Name: "db & web"})
	p, d := newPlatform(t, s, Options{}), newDelivery(t, vm)
	o, err := p.Outline(d.Definition, targets.Outline{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Deliver(t.Context(), d)
	if err != nil || len(r.Warnings) > 0 {
		t.Fatalf("%+v, %v", r.Warnings, err)
	}
	_, config := guestOf(t, s, vm)
	if want := "decamp;" + ownTag(vm) + ";env-prod;app-db-web"; config["tags"] != want || strings.Join(o.Tags, ";") != want {
		t.Errorf("got tags %q, outline %q, want %q", config["tags"], o.Tags, want)
	}
}
