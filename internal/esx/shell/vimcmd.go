package shell

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// vim-cmd identifies a VM by a number, which is also its reference in the host's API.
// Its output, its exit status, and whether it waits for its task are undocumented. The
// caller must therefore check the result with the API. The output of vim-cmd is only
// used for the error message if the API does not show the wanted result.

// HasVM returns nil if vim-cmd lists the VM with that number and configuration file.
// Otherwise the error is fault.Conflict.
func (s *Shell) HasVM(ctx context.Context, vm inventory.MoRef, vmx inventory.Path) error {
	out, err := s.Run(ctx, "vim-cmd", "vmsvc/getallvms")
	if err != nil {
		return err
	}
	if listsVM(out.Stdout, vm, vmx) {
		return nil
	}
	return fault.New(fault.Conflict, "vim-cmd on %s has no VM %s with %s", s.cfg.Addr, vm, vmx).
		WithHint("list its VMs on the host: vim-cmd vmsvc/getallvms; its error output: %s", lastLines(string(out.Stderr)))
}

// listsVM reports whether a line starts with the number of the VM and contains its
// configuration file.
func listsVM(list []byte, vm inventory.MoRef, vmx inventory.Path) bool {
	for line := range bytes.Lines(list) {
		if words := bytes.Fields(line); len(words) > 0 && string(words[0]) == string(vm) && bytes.Contains(line, []byte(vmx.String())) {
			return true
		}
	}
	return false
}

// ShutDown requests a shutdown of a guest. A guest without VMware Tools, and a VM that
// is off, are no error.
func (s *Shell) ShutDown(ctx context.Context, vm inventory.MoRef) error {
	return s.onVM(ctx, vm, "power.shutdown", "ToolsUnavailable", "InvalidPowerState")
}

// CutPower turns a VM off. It may return an error for a VM that is off.
func (s *Shell) CutPower(ctx context.Context, vm inventory.MoRef) error {
	return s.onVM(ctx, vm, "power.off")
}

// Start turns a VM on. It may return an error for a VM that is on.
func (s *Shell) Start(ctx context.Context, vm inventory.MoRef) error {
	return s.onVM(ctx, vm, "power.on")
}

// onVM runs a vim-cmd command for a VM. Faults whose names are in fine are no error.
func (s *Shell) onVM(ctx context.Context, vm inventory.MoRef, verb string, fine ...string) error {
	out, err := s.Run(ctx, "vim-cmd", "vmsvc/"+verb, string(vm))
	if err != nil {
		return err
	}
	// vim-cmd prints faults to either output.
	said := string(out.Stdout) + string(out.Stderr)
	for _, name := range fine {
		if printedFault(said) == name {
			return nil
		}
	}
	return vimCmdError(verb, out.Status, said)
}

// TakeSnapshot freezes the disks of a VM, without memory and without quiescing, in a
// job with that name. A nil error does not guarantee success; the caller must check the
// API.
func (s *Shell) TakeSnapshot(ctx context.Context, job string, vm inventory.MoRef, name, description string) error {
	const no = "0" // value of the parameters "memory" and "quiesced"
	return s.vimCmdJob(ctx, job, "snapshot.create", string(vm), name, description, no, no)
}

// RemoveSnapshot removes a snapshot by its number, in a job with that name. The job
// continues if ctx ends, because a merge must not be interrupted. A nil error does not
// guarantee success.
func (s *Shell) RemoveSnapshot(ctx context.Context, job string, vm inventory.MoRef, id int32) error {
	return s.vimCmdJob(ctx, job, "snapshot.remove", string(vm), strconv.Itoa(int(id)))
}

// vimCmdJob runs a vim-cmd command as a Kept job.
func (s *Shell) vimCmdJob(ctx context.Context, name, verb string, words ...string) error {
	// Whether the host's task ends with a vim-cmd that is killed is not known, and a
	// merge must not.
	res, err := s.Jobs.Do(ctx, Job{Name: name, Argv: append([]string{"vim-cmd", "vmsvc/" + verb}, words...), Kept: true})
	if err != nil {
		return err
	}
	return vimCmdError(verb, res.Status, string(res.Log))
}

// Listed is a snapshot in the output of snapshot.get.
type Listed struct {
	ID   int32  // number of the snapshot within its VM
	Name string // name of the snapshot; may be empty
}

// Snapshots lists the snapshots of a VM. Lines of the output that are not understood
// are ignored.
func (s *Shell) Snapshots(ctx context.Context, vm inventory.MoRef) ([]Listed, error) {
	out, err := s.Run(ctx, "vim-cmd", "vmsvc/snapshot.get", string(vm))
	if err == nil {
		err = out.Err()
	}
	if err != nil {
		return nil, err
	}
	return parseSnapshots(string(out.Stdout)), nil
}

// Lines of the listing. Two dashes are one level; how many blanks there are varies.
var (
	nodeLine  = regexp.MustCompile(`^((?:--)*)\|-(?:ROOT|CHILD)\s*$`)      // first line of an entry
	nameLine  = regexp.MustCompile(`^((?:--)+)Snapshot Name\s*: ?(.*)$`)   // name of the snapshot
	idLine    = regexp.MustCompile(`^((?:--)+)Snapshot Id\s*: ?(\d+)\s*$`) // number of the snapshot
	stateLine = regexp.MustCompile(`^(?:--)+Snapshot State\s*:`)           // last line of an entry
)

// parseSnapshots returns the entries of a listing. An entry has one name and one
// number, both at the level of its node. A description is free text of any number of
// lines; a line like "Snapshot Id : 77" in it adds no entry. A description that
// imitates a whole entry adds one, and checkSnapshot then refuses to remove a snapshot.
func parseSnapshots(text string) (list []Listed) {
	level, name, open := "--", "", true // open: the entry has no number yet
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if m := nodeLine.FindStringSubmatch(line); m != nil {
			level, name, open = m[1]+"--", "", true
		} else if m := nameLine.FindStringSubmatch(line); m != nil && open && m[1] == level && name == "" {
			name = m[2]
		} else if m := idLine.FindStringSubmatch(line); m != nil && open && m[1] == level {
			if id, err := strconv.ParseInt(m[2], 10, 32); err == nil {
				list = append(list, Listed{int32(id), name})
			}
			open = false
		}
	}
	return list
}

// withoutListing returns the output of vim-cmd without the listing of snapshots that
// some commands print, because names and descriptions in it are free text. The listing
// extends from its first node to the last line of its last entry.
func withoutListing(said string) string {
	lines := slices.Collect(strings.Lines(said))
	first := slices.IndexFunc(lines, func(l string) bool { return nodeLine.MatchString(strings.TrimRight(l, "\r\n")) })
	if first < 0 {
		return said
	}
	rest := lines[first:]
	for i, l := range slices.Backward(rest) {
		if stateLine.MatchString(l) {
			return strings.Join(append(lines[:first:first], rest[i+1:]...), "")
		}
	}
	return strings.Join(lines[:first], "")
}

// faultLine matches the name of a fault in the output of vim-cmd, such as
// (vim.fault.TaskInProgress) {.
var faultLine = regexp.MustCompile(`\((?:vim|vmodl)\.fault\.([A-Za-z]+)\)`)

// printedFault returns the name of the first fault in the output of vim-cmd, or "".
func printedFault(said string) string {
	if m := faultLine.FindStringSubmatch(said); m != nil {
		return m[1]
	}
	return ""
}

// vimCmdError returns the error that the output of vim-cmd reports, or nil. Output that
// contains a fault or the word "failed" is an error even if the status is 0.
func vimCmdError(verb string, status int, said string) error {
	own := withoutListing(said)
	name := printedFault(own)
	if status == 0 && name == "" && !strings.Contains(strings.ToLower(own), "failed") {
		return nil
	}
	err := fmt.Errorf("vim-cmd %s, status %d: %s", verb, status, lastLines(strings.TrimSpace(said)))
	switch name {
	case "TaskInProgress":
		return fault.New(fault.Transient, "%w", err).
			WithHint("another operation on the VM is running: wait until its recent tasks have ended, and run the command again")
	case "NotFound", "ManagedObjectNotFound":
		return fault.New(fault.NotFound, "%w", err).WithHint("list the inventory again: decamp ls")
	case "NoPermission":
		return fault.New(fault.Denied, "%w", err).WithHint("log in by SSH as root: --ssh-user")
	case "NoDiskSpace":
		return fault.New(fault.Full, "%w", err).WithHint("free space on the VM's datastore")
	}
	return fault.New(fault.Conflict, "%w", err).WithHint("see the VM's recent tasks, and hostd.log on the host")
}
