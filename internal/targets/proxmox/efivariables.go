package proxmox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

const (
	// variablesSize is what an EFI disk of type 4m begins with, in bytes: what OVMF sees of it. LVM makes the volume
	// larger, and what is behind is nobody's.
	variablesSize = 528 << 10

	// page is what the node's disk writes at once, in bytes.
	page = 4 << 10
)

// carries reports whether there are boot entries for the guest.
func (w *sshDelivery) carries() bool { return w.VM.Firmware == inventory.EFI && !w.EFI.Empty() }

// leftBehind warns that the guest's firmware begins with nothing of the VM's; why may be nil.
func leftBehind(why error) inventory.Warning {
	reason := ""
	if why != nil {
		reason = fmt.Sprintf(" (%v)", why)
	}
	return inventory.Warning{
		Code:   "efi-variables",
		Text:   "the boot entries in the EFI variables stay behind" + reason + ": the guest boots from the fallback path",
		Remedy: `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or choose its loader in the firmware's menu`,
	}
}

// renewVariables takes away the EFI disk of a guest that was begun before, so that it is made anew: nobody knows
// how far somebody came who died while it was written to.
func (w *sshDelivery) renewVariables(ctx context.Context, g *found) error {
	if !w.carries() {
		return nil
	}
	config, err := w.guests.config(ctx, g.node, g.vmid)
	if err != nil || config["efidisk0"] == "" {
		return err
	}
	return w.dropVariables(ctx, g)
}

// dropVariables removes the EFI disk with its volume.
func (w *sshDelivery) dropVariables(ctx context.Context, g *found) error {
	warned, err := w.api.do(ctx, http.MethodPost, qemu(g.node, g.vmid)+"/config", []Param{{"delete", "efidisk0"}, {"force", "1"}})
	w.note(warned, "to get its EFI disk anew")
	if err != nil {
		return fmt.Errorf("take the EFI disk off guest %d: %w", g.vmid, err)
	}
	return nil
}

// carry adds the VM's boot entries to the guest's variables. Where that cannot be they are as Proxmox made them, which
// is a warning; an error means that they may be neither.
func (w *sshDelivery) carry(ctx context.Context, g *found) error {
	if !w.carries() {
		return nil
	}
	config, err := w.guests.config(ctx, g.node, g.vmid)
	if err != nil {
		return err
	}
	name, err := variablesOf(config["efidisk0"])
	v := &variables{state: *w.EFI}
	if err == nil {
		err = w.eachTry(ctx, name, v.add)
	}
	if err != nil && v.begun {
		if back := w.eachTry(ctx, name, v.takeBack); back != nil {
			return fmt.Errorf("write the EFI variables of guest %d: %w", g.vmid, errors.Join(err, back))
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		w.warnings = append(w.warnings, leftBehind(err))
		w.behind = fault.Line(err.Error())
	}
	return nil
}

// eachTry opens the volume for do, again as long as connections break.
func (w *sshDelivery) eachTry(ctx context.Context, name string, do func(context.Context, *both) error) error {
	return w.api.patiently(ctx, func() (more bool, err error) {
		volume, err := w.shell.attach(ctx, name)
		if err != nil {
			return false, err
		}
		defer func() {
			if closed := volume.Close(); err == nil {
				err = closed
			}
		}()
		return false, do(ctx, volume)
	})
}

// variablesOf is the volume of an EFI disk's option, if its variables are of the kind that is known here.
func variablesOf(option string) (string, error) {
	words := strings.Split(option, ",")
	for _, word := range words[1:] {
		if word == "efitype=4m" {
			return words[0], nil
		}
	}
	return "", fault.New(fault.Unsupported, "the EFI disk is %q, and not of type 4m", fault.Line(option))
}

// variables are those of a guest's firmware, on their way.
type variables struct {
	state         efi.State
	before, after []byte // nil until they were read
	begun         bool   // the volume may hold neither
}

// add adds the state to what the volume holds. It may be tried again.
func (v *variables) add(ctx context.Context, volume *both) error {
	if v.after == nil {
		if err := v.read(ctx, volume); err != nil {
			return err
		}
	}
	v.begun = true
	return v.write(ctx, volume, v.after)
}

// takeBack has the volume hold what it held before.
func (v *variables) takeBack(ctx context.Context, volume *both) error {
	return v.write(ctx, volume, v.before)
}

func (v *variables) read(ctx context.Context, volume *both) error {
	if volume.Size() < variablesSize {
		return fault.New(fault.Unsupported, "the EFI disk has %d bytes, %d are usual", volume.Size(), variablesSize)
	}
	before := make([]byte, variablesSize)
	if err := volume.ReadAt(ctx, before, 0); err != nil {
		return fmt.Errorf("read the EFI disk: %w", err)
	}
	store, err := efi.OpenStore(bytes.Clone(before))
	if err != nil {
		return err
	}
	if err := store.Add(v.state); err != nil {
		return err
	}
	v.before, v.after = before, store.Bytes()
	return nil
}

// write writes what differs between before and after, in one request: qemu-nbd has all of it before it writes any,
// so a connection that breaks leaves the one or the other. Then the node reads all of it back.
func (v *variables) write(ctx context.Context, volume *both, all []byte) error {
	r := differing(v.before, v.after)
	if err := volume.WriteAt(ctx, all[r.Off:r.End()], r.Off); err != nil {
		return fmt.Errorf("write the EFI disk: %w", err)
	}
	if err := volume.Flush(ctx); err != nil {
		return fmt.Errorf("write the EFI disk: %w", err)
	}
	sums, err := volume.read(ctx, disk.Range{Len: variablesSize})
	if err != nil {
		return fmt.Errorf("read the EFI disk back: %w", err)
	}
	if sums[0] != sumOfBytes(all) {
		return fault.New(fault.Corrupt, "the EFI disk does not hold what was written").
			WithHint("look for errors of its storage, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	return nil
}

// differing is where two of one length do, in whole pages.
func differing(a, b []byte) (r disk.Range) {
	first, end := 0, len(a)
	for first < end && a[first] == b[first] {
		first++
	}
	for end > first && a[end-1] == b[end-1] {
		end--
	}
	r.Off = int64(first / page * page)
	r.Len = int64((end+page-1)/page*page) - r.Off
	return r
}
