package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/planfile"
)

const mountHelp = `
Mount the datastores of an ESXi host or a vCenter as a folder, read-only.

DIR contains /DATACENTER/DATASTORE/PATH: descriptors as text, a -flat.vmdk as the whole disk,
and all other files unchanged. Any program can read them: qemu-img, a backup, QEMU itself.
Sequential reads are read ahead over several connections. Areas that the allocation map of a
disk marks as free are answered without the network, after the map was tested.

The mount lasts until the command is interrupted or DIR is unmounted. If the host does not
answer, a read fails with an I/O error after --read-timeout, and decamp prints the reason. A
mount that a killed decamp left at DIR is detached first.

ESXi locks the disks of a running VM: reads of them fail until the VM is powered off.

If it is installed or linked as esxi-folder-fuse, decamp replaces the program of that name in
Proxmox's importer and accepts its arguments: esxi-folder-fuse --help.
`

const mountExamples = `
decamp mount esxi://root@esx1 /mnt/esx1
qemu-img convert -m 16 -W /mnt/esx1/ha-datacenter/datastore1/web01/web01.vmdk web01.raw
umount /mnt/esx1
`

// mountCommand is decamp mount.
type mountCommand struct {
	out         *output             // output and messages
	assembler   *assemble.Assembler // state directory, access file and prompts
	login       assemble.Login      // login to the source
	connections int                 // maximum number of connections
	readTimeout time.Duration       // time limit of a read
	allowOther  bool                // other users may read the files
}

// newMount returns the command decamp mount.
func newMount(p *program) *cobra.Command {
	m := &mountCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "mount URL DIR",
		Short:   "Show a host's datastores as a folder",
		Long:    trimHelp(mountHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(mountExamples),
		Args:    exactArgs("URL", "DIR"),
		Annotations: exitCodes(append(sourceExits,
			exit{fault.Conflict, "a host is already mounted at DIR"},
			exit{fault.Unsupported, "this machine has no FUSE, or the user has no permission to use it"})...),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if err := m.checkFlags(cmd); err != nil {
				return err
			}
			return m.runMount(cmd.Context(), args[0], args[1])
		}),
	}
	f := cmd.Flags()
	f.IntVar(&m.connections, "connections", planfile.DefaultOptions().Connections, "maximum number `N` of connections to the host, up to 12")
	f.DurationVar(&m.readTimeout, "read-timeout", 2*time.Minute, "`TIME` limit of a read that the host does not answer")
	f.BoolVar(&m.allowOther, "allow-other", false, "let other users read the files")
	registerLogin(&m.login, cmd)
	return cmd
}

// checkFlags refuses values that are out of range.
func (m *mountCommand) checkFlags(cmd *cobra.Command) error {
	switch {
	case m.connections < 1 || m.connections > 12:
		return badUsage(cmd, "--connections %d: want 1 to 12", m.connections)
	case m.readTimeout < time.Second:
		return badUsage(cmd, "--read-timeout %v: want 1s or more", m.readTimeout)
	}
	return nil
}

// runMount mounts the source and serves until ctx ends or the folder is unmounted.
func (m *mountCommand) runMount(ctx context.Context, rawURL, dir string) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	session, err := m.assembler.Dial(ctx, rawURL, m.login)
	if err != nil {
		return err
	}
	shown, err := assemble.Mount(ctx, session, nil, dir, m.connections, mount.Options{
		ReadTimeout: m.readTimeout, AllowOther: m.allowOther, Source: rawURL, Log: m.out.log,
	})
	if err != nil {
		return err
	}
	defer joinClose(&err, shown.Close)
	if err := m.printMounted(rawURL, dir); err != nil {
		return err
	}
	shown.Wait(ctx)
	return nil
}

// printMounted prints that the mount can be used.
func (m *mountCommand) printMounted(rawURL, dir string) error {
	if m.out.json {
		return m.out.printJSON(struct {
			Mounted string `json:"mounted"`
		}{dir})
	}
	_, err := fmt.Fprintf(m.out.screen, "%s is mounted at %s. Press Ctrl-C to unmount.\n", rawURL, dir)
	return err
}
