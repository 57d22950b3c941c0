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
Show the datastores of an ESXi host or a vCenter as a folder, read-only.

Below DIR stands /DATACENTER/DATASTORE/PATH: descriptors as text, a -flat.vmdk as the
whole disk, everything else as it is. Any program can read there: qemu-img, a backup, QEMU
itself. Sequential readers are read ahead of over several connections; areas that a disk's
allocation map calls free are answered without the network, once the map was tested.

It stays until it is interrupted or unmounted, which is its good end. When the host does
not answer, a read fails with an I/O error after --read-timeout and decamp says why; it
never hangs. What a decamp that was killed left mounted at DIR is detached first.

ESXi locks the disks of a running VM: reading them fails until it is powered off.

Installed or linked as esxi-folder-fuse, decamp takes the place of the program of that name
in Proxmox's importer, with its arguments: esxi-folder-fuse --help.
`

const mountExamples = `
decamp mount esxi://root@esx1 /mnt/esx1
qemu-img convert -m 16 -W /mnt/esx1/ha-datacenter/datastore1/web01/web01.vmdk web01.raw
umount /mnt/esx1
`

// mountOptions are the flags of decamp mount.
type mountOptions struct {
	login       assemble.Login
	connections int
	readTimeout time.Duration
	allowOther  bool
}

func newMount(a *app) *cobra.Command {
	var o mountOptions
	cmd := &cobra.Command{
		Use:     "mount URL DIR",
		Short:   "Show a host's datastores as a folder",
		Long:    text(mountHelp) + "\n\n" + text(sourceHelp),
		Example: text(mountExamples),
		Args:    takes("URL", "DIR"),
		Annotations: exits(append(sourceExits,
			exit{fault.Conflict, "a host is mounted at DIR already"},
			exit{fault.Unsupported, "there is no FUSE on this machine, or no right to use it"})...),
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return a.mount(cmd.Context(), o, args[0], args[1])
		}),
	}
	f := cmd.Flags()
	f.IntVar(&o.connections, "connections", planfile.DefaultOptions().Connections, "at most `N` connections to the host, 12 at the most")
	f.DurationVar(&o.readTimeout, "read-timeout", 2*time.Minute, "`TIME` after which a read that the host does not answer fails")
	f.BoolVar(&o.allowOther, "allow-other", false, "let users other than you see the files")
	registerLogin(&o.login, cmd)
	return cmd
}

func (o *mountOptions) check(cmd *cobra.Command) error {
	switch {
	case o.connections < 1 || o.connections > 12:
		return badUsage(cmd, "--connections %d: want 1 to 12", o.connections)
	case o.readTimeout < time.Second:
		return badUsage(cmd, "--read-timeout %v: want 1s or more", o.readTimeout)
	}
	return nil
}

// mount serves until ctx ends or somebody unmounts.
func (a *app) mount(ctx context.Context, o mountOptions, rawURL, dir string) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	session, err := a.Dial(ctx, rawURL, o.login)
	if err != nil {
		return err
	}
	shown, err := a.Mount(ctx, session, nil, dir, o.connections, mount.Options{
		ReadTimeout: o.readTimeout, AllowOther: o.allowOther, Source: rawURL,
	})
	if err != nil {
		return err
	}
	defer closing(&err, shown.Close)
	if err := a.tellMounted(rawURL, dir); err != nil {
		return err
	}
	shown.Wait(ctx)
	return nil
}

func (a *app) tellMounted(rawURL, dir string) error {
	if a.json {
		return a.print(struct {
			Mounted string `json:"mounted"`
		}{dir})
	}
	_, err := fmt.Fprintf(a.err, "%s is mounted at %s. Interrupt to unmount.\n", rawURL, dir)
	return err
}
