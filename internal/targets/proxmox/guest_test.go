package proxmox

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab/pve"
)

func cancelable(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithCancel(t.Context())
}

// A clone has the tags and the description of its original. Withdraw does not remove it.
func TestWithdrawKeepsClones(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	p := newPlatform(t, s, Options{})
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	_, config := guestOf(t, s, d.VM)
	clone := maps.Clone(config)
	delete(clone, "digest")
	s.AddGuest(200, clone)
	s.AddGuest(201, map[string]string{"name": "tagged", "tags": "decamp;" + ownTag(d.VM), "description": d.VM.Annotation})
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Fatal(err)
	}
	checkGone(t, s, 200, 201)
	if err := p.Withdraw(t.Context(), d.VM); err != nil {
		t.Errorf("Withdraw without a guest: %v", err)
	}
}

func TestWithdrawKeepsRunningGuest(t *testing.T) {
	t.Parallel()
	s, d := startServer(t, pve.Config{}), newDelivery(t, biosVM())
	p := newPlatform(t, s, Options{})
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	vmid, _ := guestOf(t, s, d.VM)
	if _, err := p.api.runTask(t.Context(), "POST", guestPath("pve1", vmid)+"/status/start", []Param{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), fmt.Sprintf("qm stop %d", vmid)) {
		t.Errorf("got %v (hint %q), want a conflict", err, fault.HintOf(err))
	}
	checkDelivered(t, s, d)
}

func TestMark(t *testing.T) {
	t.Parallel()
	vm := biosVM()
	for _, text := range []string{guestDescription(vm, 105, guestStatus{images: "ef"}), guestDescription(vm, 105, guestStatus{images: "ef"}) + "\n"} {
		if got := parseDescription(text, vm, 105); got != (guestStatus{ours: true, images: "ef"}) {
			t.Errorf("got %+v from %q", got, text)
		}
	}
	withError := guestStatus{ours: true, images: "ef", variablesError: "the EFI disk has 4096 bytes"}
	if got := parseDescription(guestDescription(vm, 105, withError), vm, 105); got != withError {
		t.Errorf("got %+v, want %+v", got, withError)
	}
	if got := parseDescription(guestDescription(vm, 105, guestStatus{plan: "abcd"}), vm, 105); got != (guestStatus{ours: true, plan: "abcd"}) {
		t.Errorf("got %+v for an unfinished guest", got)
	}
	other := changedVM(biosVM(), func(vm *inventory.VM) { vm.InstanceUUID = "52aa0000-1111-2222-3333-444455556667" })
	for name, text := range map[string]string{
		"empty":           "",
		"another's":       guestDescription(other, 105, guestStatus{}),
		"a clone's":       guestDescription(vm, 104, guestStatus{}),
		"not at the head": "notes\n" + guestDescription(vm, 105, guestStatus{}),
	} {
		if got := parseDescription(text, vm, 105); got.ours {
			t.Errorf("%s description is recognized as decamp's", name)
		}
	}
}

func FuzzMark(f *testing.F) {
	vm := biosVM()
	f.Add(guestDescription(vm, 105, guestStatus{}))
	f.Add(guestDescription(vm, 105, guestStatus{plan: "abcd"}))
	f.Fuzz(func(t *testing.T, annotation string) {
		vm := biosVM()
		vm.Annotation, vm.Name = annotation, annotation
		text := guestDescription(vm, 105, guestStatus{})
		if len(text) > maxDescription {
			t.Fatalf("%d bytes", len(text))
		}
		if got := parseDescription(text, vm, 105); got != (guestStatus{ours: true}) {
			t.Fatalf("got %+v from %q", got, text)
		}
		if parseDescription(annotation, vm, 106).ours && annotation == text {
			t.Fatal("an annotation marks a foreign guest as decamp's")
		}
	})
}
