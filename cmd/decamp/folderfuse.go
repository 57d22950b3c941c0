package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/mount"
)

// folderFuse is the name under which decamp is Proxmox's esxi-folder-fuse: same arguments,
// same tree, same signal that it is ready, so that it can be put in its place.
const folderFuse = "esxi-folder-fuse"

const folderFuseUsage = `usage: esxi-folder-fuse [OPTIONS] HOST[:PORT] MANIFEST.json MOUNTPOINT

Mounts an ESXi host's datastores, as decamp mount does, with the arguments of the tool of
this name in pve-esxi-import-tools.

`

// folderFuseOptions are the arguments of esxi-folder-fuse.
type folderFuseOptions struct {
	skipVerify   bool
	changeUser   string
	changeGroup  string
	fuse         []string
	readyFD      int
	user         string
	passwordFile string
	pageSize     int64
	pageCount    int

	host, manifest, dir string
}

func (o *folderFuseOptions) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet(folderFuse, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.SortFlags = false
	f.BoolVar(&o.skipVerify, "skip-cert-verification", false, "accept the certificate that the host shows now")
	f.StringVar(&o.user, "user", "root", "`NAME` to log in with")
	f.StringVar(&o.passwordFile, "password-file", "", "`FILE` that holds the password")
	f.StringVar(&o.changeUser, "change-user", "", "become this `USER` once mounted")
	f.StringVar(&o.changeGroup, "change-group", "", "become this `GROUP` once mounted")
	f.StringSliceVarP(&o.fuse, "options", "o", nil, "FUSE `OPTIONS`: allow_other; ro, nosuid, nodev, noexec and default_permissions change nothing")
	f.IntVar(&o.readyFD, "ready-fd", -1, "close this file `DESCRIPTOR` when the mount can be used")
	f.Int64Var(&o.pageSize, "cache-page-size", 0, "`BYTES` asked for at a time; bounded to 1 to 8 MiB")
	f.IntVar(&o.pageCount, "cache-page-count", 0, "`N` pages in memory; bounded to 128 MiB together")
	return f
}

// parse reads the arguments.
func (o *folderFuseOptions) parse(args []string) error {
	f := o.flags()
	if err := f.Parse(args); err != nil {
		return err
	}
	rest := f.Args()
	if len(rest) != 3 {
		return fmt.Errorf("want HOST, MANIFEST and MOUNTPOINT, got %d arguments", len(rest))
	}
	o.host, o.manifest, o.dir = rest[0], rest[1], rest[2]
	return o.check()
}

func (o *folderFuseOptions) check() error {
	switch {
	case o.host == "" || strings.ContainsAny(o.host, "/@?#"):
		return fmt.Errorf("%q is not a host", o.host)
	case o.passwordFile == "":
		return errors.New("--password-file is missing")
	case o.pageSize < 0 || o.pageCount < 0:
		return errors.New("--cache-page-size and --cache-page-count cannot be negative")
	}
	for _, opt := range o.fuse {
		switch opt {
		case "allow_other", "ro", "nosuid", "nodev", "noexec", "default_permissions":
		default:
			return fmt.Errorf("-o %s is not known", opt)
		}
	}
	return nil
}

func (o *folderFuseOptions) allowOther() bool {
	for _, opt := range o.fuse {
		if opt == "allow_other" {
			return true
		}
	}
	return false
}

// folderFuse is the whole program under its other name. It returns the exit code.
func (a *app) folderFuse(ctx context.Context, args []string) int {
	a.Log = slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var o folderFuseOptions
	err := o.parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		fmt.Fprint(a.out, folderFuseUsage, o.flags().FlagUsages())
		return 0
	}
	ready := o.ready()
	defer ready()
	if err != nil {
		fmt.Fprintf(a.err, "error: %v\n%s%s", err, folderFuseUsage, o.flags().FlagUsages())
		return fault.ExitCode(fault.New(fault.Invalid, "usage"))
	}
	if err := a.serveFolder(ctx, o, ready); err != nil {
		fmt.Fprintf(a.err, "error: %s\n", plain(fault.OneLine(err.Error())))
		if hint := fault.HintOf(err); hint != "" {
			fmt.Fprintf(a.err, "Remedy: %s\n", plain(hint))
		}
		return fault.ExitCode(err)
	}
	return 0
}

// ready returns what closes the descriptor that tells the caller, once. No child of ours
// may hold it open.
func (o *folderFuseOptions) ready() func() {
	if o.readyFD < 3 { // the standard streams are nobody's signal
		return func() {}
	}
	unix.CloseOnExec(o.readyFD)
	open := true
	return func() {
		if open {
			_ = unix.Close(o.readyFD)
		}
		open = false
	}
}

func (a *app) serveFolder(ctx context.Context, o folderFuseOptions, ready func()) (err error) {
	become, err := o.identity()
	if err != nil {
		return err
	}
	stores, err := o.datastores()
	if err != nil {
		return err
	}
	if !o.skipVerify {
		if err := assemble.CheckAuthority(ctx, o.host); err != nil {
			return err
		}
	}
	session, err := a.DialShown(ctx, o.host, o.user, o.passwordFile)
	if err != nil {
		return err
	}
	shown, err := a.Mount(ctx, session, stores, o.dir, 0, mount.Options{
		Name: folderFuse, Source: o.host, AllowOther: o.allowOther(), Replace: true,
		PageSize: o.pageSize, Pages: o.pageCount,
	})
	if err != nil {
		return err
	}
	defer func() {
		if cerr := shown.Close(); become.changed() && fault.Is(cerr, fault.Denied) {
			a.Log.Info("the mount is left to whoever may unmount it", "err", cerr) // as the original does
		} else {
			err = errors.Join(err, cerr)
		}
	}()
	if err := become.take(); err != nil {
		return err
	}
	ready()
	shown.Wait(ctx)
	return nil
}

func (o *folderFuseOptions) datastores() ([]inventory.Datastore, error) {
	f, err := os.Open(o.manifest)
	if err != nil {
		return nil, fault.New(fault.Invalid, "open manifest: %w", err)
	}
	defer f.Close()
	stores, err := mount.ReadManifest(f)
	if stores == nil && err == nil {
		stores = []inventory.Datastore{} // told that there are none
	}
	return stores, err
}

// identity is the user and group to become; -1 stays what it is.
type identity struct{ uid, gid int }

func (o *folderFuseOptions) identity() (identity, error) {
	id := identity{-1, -1}
	if o.changeGroup != "" {
		g, err := user.LookupGroup(o.changeGroup)
		if err != nil {
			return id, fault.New(fault.Invalid, "--change-group: %w", err)
		}
		id.gid, _ = strconv.Atoi(g.Gid) // a number on Unix
	}
	if o.changeUser != "" {
		u, err := user.Lookup(o.changeUser)
		if err != nil {
			return id, fault.New(fault.Invalid, "--change-user: %w", err)
		}
		id.uid, _ = strconv.Atoi(u.Uid) // a number on Unix
	}
	return id, nil
}

func (id identity) changed() bool { return id.uid >= 0 }

// take becomes the user and the group, for good: all threads, no way back.
func (id identity) take() error {
	if id.gid >= 0 {
		if err := errors.Join(syscall.Setgroups([]int{id.gid}), syscall.Setgid(id.gid)); err != nil {
			return fault.New(fault.Denied, "become group %d: %w", id.gid, err)
		}
	}
	if id.uid >= 0 {
		if err := syscall.Setuid(id.uid); err != nil {
			return fault.New(fault.Denied, "become user %d: %w", id.uid, err)
		}
	}
	return nil
}
