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
	// variablesSize is the part of an EFI disk of type 4m that OVMF uses, in bytes. LVM rounds the volume
	// up.
	variablesSize = 528 << 10

	// pageSize is the unit in which the node's disk writes, in bytes.
	pageSize = 4 << 10
)

// carriesVariables reports whether there are EFI variables to carry over.
func (w *sshDelivery) carriesVariables() bool {
	return w.VM.Firmware == inventory.EFI && !w.EFI.Empty()
}

// variablesWarning returns the warning that the guest starts with default EFI variables. why may be
// nil.
func variablesWarning(why error) inventory.Warning {
	reason := ""
	if why != nil {
		reason = fmt.Sprintf(" (%v)", why)
	}
	return inventory.Warning{
		Code:   "efi-variables",
		Text:   "the boot entries in the EFI variables are not migrated" + reason + ": the guest boots from the fallback path",
		Remedy: `make sure the guest has \EFI\BOOT\BOOTX64.EFI (grub-install --removable), or choose its loader in the firmware's menu`,
	}
}

// renewVariables removes the EFI disk of a guest from an earlier delivery, so that a new one is
// created. A crash during
// the write may have left it in an unknown state.
func (w *sshDelivery) renewVariables(ctx context.Context, g *found) error {
	if !w.carriesVariables() {
		return nil
	}
	config, err := w.guests.readConfig(ctx, g.node, g.vmid)
	if err != nil || config["efidisk0"] == "" {
		return err
	}
	return w.dropVariables(ctx, g)
}

// dropVariables removes the EFI disk and its volume.
func (w *sshDelivery) dropVariables(ctx context.Context, g *found) error {
	warned, err := w.api.runTask(ctx, http.MethodPost, guestPath(g.node, g.vmid)+"/config", []Param{{"delete", "efidisk0"}, {"force", "1"}})
	w.noteTask(warned, "given a new EFI disk")
	if err != nil {
		return fmt.Errorf("remove the EFI disk of guest %d: %w", g.vmid, err)
	}
	return nil
}

// carryVariables adds the VM's boot entries to the guest's EFI variables. If that fails, the variables
// are as Proxmox
// created them, and it adds a warning. It returns an error only if the variables may be damaged.
func (w *sshDelivery) carryVariables(ctx context.Context, g *found) error {
	if !w.carriesVariables() {
		return nil
	}
	config, err := w.guests.readConfig(ctx, g.node, g.vmid)
	if err != nil {
		return err
	}
	name, err := variablesOf(config["efidisk0"])
	v := &variables{state: *w.EFI}
	if err == nil {
		err = w.eachTry(ctx, name, v.addState)
	}
	if err != nil && v.begun {
		if back := w.eachTry(ctx, name, v.restoreBefore); back != nil {
			return fmt.Errorf("write the EFI variables of guest %d: %w", g.vmid, errors.Join(err, back))
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		w.warnings = append(w.warnings, variablesWarning(err))
		w.variablesError = fault.Line(err.Error())
	}
	return nil
}

// eachTry opens the volume and calls do. It repeats both after temporary errors.
func (w *sshDelivery) eachTry(ctx context.Context, name string, do func(context.Context, *nodeVolume) error) error {
	return w.api.retryWhileProgress(ctx, func() (more bool, err error) {
		volume, err := w.shell.openVolume(ctx, name)
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

// variablesOf returns the volume in an EFI disk's option. A type other than 4m is fault.Unsupported.
func variablesOf(option string) (string, error) {
	words := strings.Split(option, ",")
	for _, word := range words[1:] {
		if word == "efitype=4m" {
			return words[0], nil
		}
	}
	return "", fault.New(fault.Unsupported, "the EFI disk is %q, which does not have type 4m", fault.Line(option))
}

// variables changes the content of an EFI disk. After a failed write, begun is set, and the caller must
// restore the
// original content.
type variables struct {
	state         efi.State // boot entries to add
	before, after []byte    // content of the disk; nil until it is read
	begun         bool      // the disk may contain a mixture of before and after
}

// addState adds the boot entries to the variables in the volume. It can be called again after an error.
func (v *variables) addState(ctx context.Context, volume *nodeVolume) error {
	if v.after == nil {
		if err := v.readVolume(ctx, volume); err != nil {
			return err
		}
	}
	v.begun = true
	return v.writeVolume(ctx, volume, v.after)
}

// restoreBefore writes the original content to the volume.
func (v *variables) restoreBefore(ctx context.Context, volume *nodeVolume) error {
	return v.writeVolume(ctx, volume, v.before)
}

// readVolume reads the variables, and computes the new content.
func (v *variables) readVolume(ctx context.Context, volume *nodeVolume) error {
	if volume.Size() < variablesSize {
		return fault.New(fault.Unsupported, "the EFI disk has %d bytes, expected %d", volume.Size(), variablesSize)
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

// writeVolume writes the range in which before and after differ, in one request. qemu-nbd receives a
// whole request before
// it writes, so a broken connection leaves one of the two. The node then reads the disk back.
func (v *variables) writeVolume(ctx context.Context, volume *nodeVolume, all []byte) error {
	r := differingPages(v.before, v.after)
	if err := volume.WriteAt(ctx, all[r.Off:r.End()], r.Off); err != nil {
		return fmt.Errorf("write the EFI disk: %w", err)
	}
	if err := volume.Flush(ctx); err != nil {
		return fmt.Errorf("write the EFI disk: %w", err)
	}
	sums, err := volume.readSums(ctx, disk.Range{Len: variablesSize})
	if err != nil {
		return fmt.Errorf("read the EFI disk back: %w", err)
	}
	if sums[0] != sumOfBytes(all) {
		return fault.New(fault.Corrupt, "the EFI disk differs from the written data").
			WithHint("check its storage for errors, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	return nil
}

// differingPages returns the range in which a and b differ, rounded to whole pages. Both have the same
// length.
func differingPages(a, b []byte) (r disk.Range) {
	first, end := 0, len(a)
	for first < end && a[first] == b[first] {
		first++
	}
	for end > first && a[end-1] == b[end-1] {
		end--
	}
	r.Off = int64(first / pageSize * pageSize)
	r.Len = int64((end+pageSize-1)/pageSize*pageSize) - r.Off
	return r
}
