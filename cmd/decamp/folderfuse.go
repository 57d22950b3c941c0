package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/mount"
)

// folderFuse is the name under which decamp replaces Proxmox's esxi-folder-fuse: it has the same
// arguments, the same tree and the same notification.
const folderFuse = "esxi-folder-fuse"

// folderFuseUsage precedes the list of flags.
const folderFuseUsage = `usage: esxi-folder-fuse [OPTIONS] HOST[:PORT] MANIFEST.json MOUNTPOINT

Mounts an ESXi host's datastores, as decamp mount does, with the arguments of the tool of
this name in pve-esxi-import-tools.

`

// folderFuseCommand is esxi-folder-fuse, with its arguments.
type folderFuseCommand struct {
	out          *output             // output and messages
	assembler    *assemble.Assembler // state directory, access file and prompts
	skipVerify   bool                // accept any certificate
	changeUser   string              // user to become after mounting; empty: no change
	changeGroup  string              // group to become after mounting; empty: no change
	fuse         []string            // options of -o
	readyFD      int                 // file descriptor to close when mounted; -1 for none
	user         string              // user for the login
	passwordFile string              // file with the password
	pageSize     int64               // bytes of one request; 0: default
	pageCount    int                 // pages in memory; 0: default

	host, manifest, dir string
}

// newFlagSet returns the flags, which set the fields of ff.
func (ff *folderFuseCommand) newFlagSet() *pflag.FlagSet {
	f := pflag.NewFlagSet(folderFuse, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.SortFlags = false
	f.BoolVar(&ff.skipVerify, "skip-cert-verification", false, "accept the certificate that the host presents now")
	f.StringVar(&ff.user, "user", "root", "user `NAME` for the login")
	f.StringVar(&ff.passwordFile, "password-file", "", "`FILE` with the password")
	f.StringVar(&ff.changeUser, "change-user", "", "become this `USER` once mounted")
	f.StringVar(&ff.changeGroup, "change-group", "", "become this `GROUP` once mounted")
	f.StringSliceVarP(&ff.fuse, "options", "o", nil, "FUSE `OPTIONS`: allow_other; ro, nosuid, nodev, noexec and default_permissions change nothing")
	f.IntVar(&ff.readyFD, "ready-fd", -1, "close this file `DESCRIPTOR` when the mount can be used")
	f.Int64Var(&ff.pageSize, "cache-page-size", 0, "`BYTES` of one request, limited to 1 to 8 MiB")
	f.IntVar(&ff.pageCount, "cache-page-count", 0, "`N` pages in memory, limited to 128 MiB together")
	return f
}

// parseArgs parses flags and arguments.
func (ff *folderFuseCommand) parseArgs(args []string) error {
	f := ff.newFlagSet()
	if err := f.Parse(args); err != nil {
		return err
	}
	rest := f.Args()
	if len(rest) != 3 {
		return fmt.Errorf("want HOST, MANIFEST and MOUNTPOINT, got %d arguments", len(rest))
	}
	ff.host, ff.manifest, ff.dir = rest[0], rest[1], rest[2]
	return ff.checkArgs()
}

// checkArgs refuses invalid arguments. Options of -o that have no effect are accepted.
func (ff *folderFuseCommand) checkArgs() error {
	switch {
	case ff.host == "" || strings.ContainsAny(ff.host, "/@?#"):
		return fmt.Errorf("%q is not a host", ff.host)
	case ff.passwordFile == "":
		return errors.New("--password-file is missing")
	case ff.pageSize < 0 || ff.pageCount < 0:
		return errors.New("--cache-page-size and --cache-page-count cannot be negative")
	}
	for _, opt := range ff.fuse {
		switch opt {
		case "allow_other", "ro", "nosuid", "nodev", "noexec", "default_permissions":
		default:
			return fmt.Errorf("unknown option -o %s", opt)
		}
	}
	return nil
}

// allowOther reports whether -o allow_other is set.
func (ff *folderFuseCommand) allowOther() bool {
	for _, opt := range ff.fuse {
		if opt == "allow_other" {
			return true
		}
	}
	return false
}

// runFolderFuse is the main function of esxi-folder-fuse. It returns the exit code.
func runFolderFuse(ctx context.Context, p *program, args []string) int {
	p.setLog(slog.New(slog.NewTextHandler(p.out.screen, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ff := &folderFuseCommand{out: p.out, assembler: p.assembler}
	err := ff.parseArgs(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(ff.out, folderFuseUsage, ff.newFlagSet().FlagUsages())
		return 0
	}
	ready := ff.readyFunc()
	defer ready()
	if err != nil {
		fmt.Fprintf(ff.out.screen, "error: %v\n%s%s", err, folderFuseUsage, ff.newFlagSet().FlagUsages())
		return fault.ExitCode(fault.New(fault.Invalid, "usage"))
	}
	if err := ff.runMount(ctx, ready); err != nil {
		fmt.Fprintf(ff.out.screen, "error: %s\n", fault.Printable(fault.OneLine(err.Error())))
		if hint := fault.HintOf(err); hint != "" {
			fmt.Fprintf(ff.out.screen, "Remedy: %s\n", fault.Printable(hint))
		}
		return fault.ExitCode(err)
	}
	return 0
}

// readyFunc returns a function that closes the descriptor of --ready-fd, once, to notify the caller. No
// child process inherits the descriptor.
func (ff *folderFuseCommand) readyFunc() func() {
	if ff.readyFD < 3 { // the standard streams are not the notification
		return func() {}
	}
	unix.CloseOnExec(ff.readyFD)
	open := true
	return func() {
		if open {
			_ = unix.Close(ff.readyFD)
		}
		open = false
	}
}

// runMount mounts the host, changes the user, calls ready and serves until ctx ends.
func (ff *folderFuseCommand) runMount(ctx context.Context, ready func()) (err error) {
	become, err := ff.newIdentity()
	if err != nil {
		return err
	}
	stores, err := ff.readDatastores()
	if err != nil {
		return err
	}
	if !ff.skipVerify {
		if err := assemble.CheckAuthority(ctx, ff.host); err != nil {
			return err
		}
	}
	session, err := ff.assembler.DialShown(ctx, ff.host, ff.user, ff.passwordFile)
	if err != nil {
		return err
	}
	shown, err := assemble.Mount(ctx, session, stores, ff.dir, 0, mount.Options{
		Name: folderFuse, Source: ff.host, AllowOther: ff.allowOther(), Replace: true, Log: ff.out.log,
		PageSize: ff.pageSize, Pages: ff.pageCount,
	})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := shown.Close(); become.ChangesUser() && fault.Is(cerr, fault.Denied) {
			ff.out.log.Info("not unmounted: the user of --change-user has no permission", "err", cerr) // as the original does
		} else {
			err = errors.Join(err, cerr)
		}
	}()
	if err := become.Assume(); err != nil {
		return err
	}
	ready()
	shown.Wait(ctx)
	return nil
}

// readDatastores returns the datastores of the manifest; not nil, also if it lists none.
func (ff *folderFuseCommand) readDatastores() ([]inventory.Datastore, error) {
	f, err := os.Open(ff.manifest)
	if err != nil {
		return nil, fault.New(fault.Invalid, "open manifest: %w", err)
	}
	defer f.Close()
	stores, err := mount.ReadManifest(f)
	if stores == nil && err == nil {
		stores = []inventory.Datastore{} // an empty list, not a missing one
	}
	return stores, err
}

// newIdentity returns the user and the group to become.
func (ff *folderFuseCommand) newIdentity() (mount.Identity, error) {
	id := mount.NewIdentity()
	if ff.changeGroup != "" {
		if err := id.SetGroup(ff.changeGroup); err != nil {
			return id, fmt.Errorf("--change-group: %w", err)
		}
	}
	if ff.changeUser != "" {
		if err := id.SetUser(ff.changeUser); err != nil {
			return id, fmt.Errorf("--change-user: %w", err)
		}
	}
	return id, nil
}
