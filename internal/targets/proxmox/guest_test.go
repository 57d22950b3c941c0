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

// A clone has its original's tags and description. It is its maker's.
func TestWithdrawLeavesClones(t *testing.T) {
	t.Parallel()
	s, d := serve(t, pve.Config{}), deliver(t, biosVM())
	p := place(t, s, Options{})
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
		t.Errorf("nothing was there: %v", err)
	}
}

func TestWithdrawLeavesARunningGuest(t *testing.T) {
	t.Parallel()
	s, d := serve(t, pve.Config{}), deliver(t, biosVM())
	p := place(t, s, Options{})
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	vmid, _ := guestOf(t, s, d.VM)
	if _, err := p.api.runTask(t.Context(), "POST", guestPath("pve1", vmid)+"/status/start", []Param{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), fmt.Sprintf("qm stop %d", vmid)) {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
	checkDelivered(t, s, d)
}

func TestMark(t *testing.T) {
	t.Parallel()
	vm := biosVM()
	for _, text := range []string{guestDescription(vm, 105, guestStatus{images: "ef"}), guestDescription(vm, 105, guestStatus{images: "ef"}) + "\n"} {
		if got := parseDescription(text, vm, 105); got != (guestStatus{ours: true, images: "ef"}) {
			t.Errorf("%+v of %q", got, text)
		}
	}
	stayed := guestStatus{ours: true, images: "ef", variablesError: "the EFI disk has 4096 bytes"}
	if got := parseDescription(guestDescription(vm, 105, stayed), vm, 105); got != stayed {
		t.Errorf("%+v, want %+v", got, stayed)
	}
	if got := parseDescription(guestDescription(vm, 105, guestStatus{plan: "abcd"}), vm, 105); got != (guestStatus{ours: true, plan: "abcd"}) {
		t.Errorf("%+v of an unfinished guest", got)
	}
	other := with(biosVM(), func(vm *inventory.VM) { vm.InstanceUUID = "52aa0000-1111-2222-3333-444455556667" })
	for name, text := range map[string]string{
		"empty":           "",
		"another's":       guestDescription(other, 105, guestStatus{}),
		"a clone's":       guestDescription(vm, 104, guestStatus{}),
		"not at the head": "notes\n" + guestDescription(vm, 105, guestStatus{}),
	} {
		if got := parseDescription(text, vm, 105); got.ours {
			t.Errorf("%s description is ours", name)
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
			t.Fatalf("%+v of %q", got, text)
		}
		if parseDescription(annotation, vm, 106).ours && annotation == text {
			t.Fatal("an annotation makes another's guest ours")
		}
	})
}
