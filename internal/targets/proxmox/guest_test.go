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
	s, d := serve(t, pve.Config{}), deliver(t, biosVM())
	p := place(t, s, Options{})
	if _, err := p.Deliver(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	vmid, _ := guestOf(t, s, d.VM)
	if _, err := p.api.do(t.Context(), "POST", qemu("pve1", vmid)+"/status/start", []Param{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Withdraw(t.Context(), d.VM); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), fmt.Sprintf("qm stop %d", vmid)) {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
	checkDelivered(t, s, d)
}

func TestMark(t *testing.T) {
	vm := biosVM()
	for _, text := range []string{description(vm, 105, standing{images: "ef"}), description(vm, 105, standing{images: "ef"}) + "\n"} {
		if got := read(text, vm, 105); got != (standing{ours: true, images: "ef"}) {
			t.Errorf("%+v of %q", got, text)
		}
	}
	stayed := standing{ours: true, images: "ef", behind: "the EFI disk has 4096 bytes"}
	if got := read(description(vm, 105, stayed), vm, 105); got != stayed {
		t.Errorf("%+v, want %+v", got, stayed)
	}
	if got := read(description(vm, 105, standing{plan: "abcd"}), vm, 105); got != (standing{ours: true, plan: "abcd"}) {
		t.Errorf("%+v of an unfinished guest", got)
	}
	other := with(biosVM(), func(vm *inventory.VM) { vm.InstanceUUID = "52aa0000-1111-2222-3333-444455556667" })
	for name, text := range map[string]string{
		"empty":           "",
		"another's":       description(other, 105, standing{}),
		"a clone's":       description(vm, 104, standing{}),
		"not at the head": "notes\n" + description(vm, 105, standing{}),
	} {
		if got := read(text, vm, 105); got.ours {
			t.Errorf("%s description is ours", name)
		}
	}
}

func FuzzMark(f *testing.F) {
	vm := biosVM()
	f.Add(description(vm, 105, standing{}))
	f.Add(description(vm, 105, standing{plan: "abcd"}))
	f.Fuzz(func(t *testing.T, annotation string) {
		vm := biosVM()
		vm.Annotation, vm.Name = annotation, annotation
		text := description(vm, 105, standing{})
		if len(text) > maxDescription {
			t.Fatalf("%d bytes", len(text))
		}
		if got := read(text, vm, 105); got != (standing{ours: true}) {
			t.Fatalf("%+v of %q", got, text)
		}
		if read(annotation, vm, 106).ours && annotation == text {
			t.Fatal("an annotation makes another's guest ours")
		}
	})
}
