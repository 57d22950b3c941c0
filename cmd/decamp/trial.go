package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flaghelp"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/testboot"
)

const trialHelp = `
Boot a VM on temporary overlays and report how far it boots.

FOLDER is the folder that decamp migrate published. For any other VM, DOMAIN.xml is its
libvirt domain (virsh dumpxml NAME > NAME.xml). The VM must be off. Its disks are temporary
overlays, so no image is changed. Each network card is connected to an isolated network. The
VM has 4 processors, and --memory at most. KVM is used only if it can run a virtual CPU;
otherwise the guest is emulated, which takes 10 to 100 times as long.

A guest has booted if it shows a login prompt on its serial port or text screen, if QEMU's
guest agent answers, if its operating system sends packets on a network card and its console
is idle, or if it prints the text of --expect. Otherwise the report names where it stopped:
initramfs, emergency, panic, boot-loader, no-boot-device, uefi-shell, secure-boot,
blue-screen, reboot-loop or stopped. It is unclear if none of these appears before --deadline:
see the screen, which --keep stores. The report also lists the addresses that the guest
claims.

The guest agent is queried if the VM has a channel for it, as VMs on virtio with the agent
have. It returns the operating system, the host name and the addresses of each card. A fixed
address that vm.json of FOLDER lists and the agent does not return is a warning.
`

const trialExamples = `
decamp trial /srv/vm/web01
decamp trial /srv/vm/web01 --keep /tmp/web01 --deadline 20m
decamp trial web02.xml --expect 'web02 is ready' --json
`

// trialCommand is decamp trial.
type trialCommand struct {
	out      *output       // output and messages
	deadline time.Duration // time limit of the boot; 0: default
	expect   string        // text that means that the guest has booted
	accel    string        // one of accels
	keep     string        // folder for the log and the screenshot; empty: none are kept
	memory   flaghelp.Size // maximum memory of the VM
}

// accels are the values of --accel.
var accels = []string{"any", "kvm", "tcg"}

// newTrial returns the command decamp trial.
func newTrial(p *program) *cobra.Command {
	tc := &trialCommand{out: p.out, memory: 4 << 30}
	cmd := &cobra.Command{
		Use:     "trial FOLDER|DOMAIN.xml",
		Short:   "Boot a VM on temporary overlays, and report how far it boots",
		Long:    trimHelp(trialHelp),
		Example: trimHelp(trialExamples),
		Args:    exactArgs("FOLDER or DOMAIN.xml"),
		Annotations: exitCodes(
			exit{fault.NotFound, "the argument is neither a VM's folder nor a domain, or QEMU or its firmware is not installed"},
			exit{fault.Denied, "files cannot be read"},
			exit{fault.Conflict, "the VM runs, or another program writes its images"},
			exit{fault.Unsupported, "the VM does not boot, or cannot be booted here; the error has a remedy"},
			exit{fault.Full, "no space left for the log and the screenshot"}),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(accels, tc.accel) {
				return badUsage(cmd, "--accel %q: want any, kvm or tcg", tc.accel)
			}
			if err := checkAboveZero(cmd, "deadline", tc.deadline); err != nil {
				return err
			}
			return tc.runTrial(cmd.Context(), args[0])
		}),
	}
	f := cmd.Flags()
	f.DurationVar(&tc.deadline, "deadline", 0, "`TIME` limit of the boot (default 5m, emulated 15m)")
	f.StringVar(&tc.expect, "expect", "", "`TEXT` on the serial port or text screen that means that the guest has booted, in addition to a login prompt and its network")
	f.StringVar(&tc.accel, "accel", "any", "accelerator: `any, kvm or tcg`; tcg is emulation")
	f.StringVar(&tc.keep, "keep", "", "store serial.log and the screenshot screen.png in `DIR`")
	f.Var(&tc.memory, "memory", "maximum memory `SIZE` of the VM")
	_ = cmd.RegisterFlagCompletionFunc("accel", cobra.FixedCompletions(accels, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
	return cmd
}

// bootOptions returns the options of the flags.
func (tc *trialCommand) bootOptions() testboot.Options {
	accel := testboot.Accel(tc.accel)
	if tc.accel == "any" {
		accel = testboot.Any
	}
	return testboot.Options{Deadline: tc.deadline, Expect: tc.expect, Accel: accel, Keep: tc.keep, Memory: int64(tc.memory)}
}

// runTrial boots the VM of a folder or a domain, and prints the report. A VM that does not boot is an
// error.
func (tc *trialCommand) runTrial(ctx context.Context, path string) error {
	domain, err := readDomain(path)
	if err != nil {
		return err
	}
	opts := tc.bootOptions()
	if record, err := dir.ReadRecord(path); err == nil { // otherwise decamp did not create it
		opts.Static = targets.StaticAddresses(record.Source, record.Guest)
	}
	if !tc.out.json {
		fmt.Fprintf(tc.out.screen, "%s boots on temporary overlays ...\n", path)
	}
	r, err := testboot.Boot(ctx, domain, opts)
	if err != nil {
		return fmt.Errorf("trial of %s: %w", path, err)
	}
	if err := writeTrial(tc.out, r); err != nil || r.Booted() {
		return err
	}
	return fault.New(fault.Unsupported, "%s does not boot (%s): %s", path, r.Verdict, r.Reason).WithHint("%s", r.Remedy)
}

// readDomain returns the libvirt domain in a file, or in the folder of a published VM.
func readDomain(path string) (string, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "domain.xml")
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fault.New(fault.NotFound, "%w", err).WithHint("name the folder of a migrated VM, or a libvirt domain: virsh dumpxml NAME > NAME.xml")
	case errors.Is(err, fs.ErrPermission):
		return "", fault.New(fault.Denied, "%w", err).WithHint("run this as root, or as the owner of the VM")
	}
	return string(text), err
}
