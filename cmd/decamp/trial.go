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
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/testboot"
)

const trialHelp = `
Boot a VM to see whether it does, and say how far it came.

FOLDER is what decamp migrate published; any other VM is named by its libvirt domain
(virsh dumpxml NAME > NAME.xml). It has to be off. Its disks are overlays that are thrown
away, so no image is changed; its network cards lead nowhere, each to a network of its own;
it gets 4 processors and --memory at most. KVM is used only where a virtual CPU really runs,
else the guest is emulated, which takes 10 to 100 times as long.

A guest is up when it asks for a login on its serial port or text screen, when QEMU's guest
agent in it answers, when its operating system speaks on a network card and its console rests,
or when it says what --expect says.
Else it is told where it stopped: initramfs, emergency, panic, boot-loader, no-boot-device,
uefi-shell, secure-boot, blue-screen, reboot-loop, stopped; or unclear, if nothing of this is
seen by --deadline: then its screen, kept by --keep, tells more. The addresses that it claims
are told, too.

The agent is asked where the VM has a channel for it, as decamp gives it to a guest on virtio
that has the agent. It tells the operating system, the host name and the addresses of each card.
What it does not tell of the fixed addresses that FOLDER's vm.json has found in the guest's
configuration is told as a warning.
`

const trialExamples = `
decamp trial /srv/vm/web01
decamp trial /srv/vm/web01 --keep /tmp/web01 --deadline 20m
decamp trial web02.xml --expect 'web02 is ready' --json
`

// trialCommand is decamp trial.
type trialCommand struct {
	out      *output
	deadline time.Duration
	expect   string
	accel    string
	keep     string
	memory   sizeFlag
}

var accels = []string{"any", "kvm", "tcg"}

func newTrial(p *program) *cobra.Command {
	tc := &trialCommand{out: p.out, memory: 4 << 30}
	cmd := &cobra.Command{
		Use:     "trial FOLDER|DOMAIN.xml",
		Short:   "Boot a VM on throw-away overlays, and say how far it comes",
		Long:    trimHelp(trialHelp),
		Example: trimHelp(trialExamples),
		Args:    exactArgs("FOLDER or DOMAIN.xml"),
		Annotations: exitCodes(
			exit{fault.NotFound, "that is neither a VM's folder nor a domain, or QEMU or its firmware is not installed"},
			exit{fault.Denied, "files cannot be read"},
			exit{fault.Conflict, "the VM runs, or another program writes its images"},
			exit{fault.Unsupported, "it does not boot, or cannot be tried here; the error has a remedy"},
			exit{fault.Full, "no space for the log and the picture"}),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(accels, tc.accel) {
				return badUsage(cmd, "--accel %q: want any, kvm or tcg", tc.accel)
			}
			return tc.runTrial(cmd.Context(), args[0])
		}),
	}
	f := cmd.Flags()
	f.DurationVar(&tc.deadline, "deadline", 0, "`TIME` the guest may take (default 5m, emulated 15m)")
	f.StringVar(&tc.expect, "expect", "", "`TEXT` on its serial port or text screen that means the guest is up, beside a login and its network")
	f.StringVar(&tc.accel, "accel", "any", "what runs it: `any, kvm or tcg`, which is emulated")
	f.StringVar(&tc.keep, "keep", "", "keep its serial.log and a picture of its screen, screen.png, in `DIR`")
	f.Var(&tc.memory, "memory", "`SIZE` that it gets at the most")
	_ = cmd.RegisterFlagCompletionFunc("accel", cobra.FixedCompletions(accels, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
	return cmd
}

func (tc *trialCommand) bootOptions() testboot.Options {
	accel := testboot.Accel(tc.accel)
	if tc.accel == "any" {
		accel = testboot.Any
	}
	return testboot.Options{Deadline: tc.deadline, Expect: tc.expect, Accel: accel, Keep: tc.keep, Memory: int64(tc.memory)}
}

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
		fmt.Fprintf(tc.out.screen, "%s boots on overlays that are thrown away ...\n", path)
	}
	r, err := testboot.Boot(ctx, domain, opts)
	if err != nil {
		return fmt.Errorf("trial of %s: %w", path, err)
	}
	if err := writeTrial(tc.out, r); err != nil || r.Booted() {
		return err
	}
	return fault.New(fault.Unsupported, "%s does not boot (%s): %s", path, r.Verdict, r.Why).WithHint("%s", r.Remedy)
}

// readDomain reads a libvirt domain, or that of a published VM's folder.
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
