package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble/land"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs/filewatch"
	"github.com/decamp/decamp/internal/units"
)

const landHelp = `
Serve a folder as an NFSv3 datastore that ESXi hosts can mount, without an NFS server.

Writes are acknowledged when they are in the memory of this machine, which is 13 to 24 times
as fast as a sync export. They survive the end of decamp, also by kill: start the same command
again, and hosts continue. They do not survive a crash of the machine. That is acceptable for
copies whose source is kept until they are verified, but not for VMs that run on the
datastore: use --durable for those.

It prints a line for each received file. A file is complete when its host releases the lock
file beside it (.lck-...). When interrupted, decamp writes all data to the medium, and reports
incomplete files and hosts that still have the datastore mounted.

Only hosts of --allow can connect. They may do everything below DIR and nothing outside of it.
Each kind of refused request is reported once.

Files that a host writes as root belong to user 65534 here, as all files of ESXi do. If decamp
does not run as root, they belong to its user. Setuid, setgid and sticky bits are removed.
Links that lead out of DIR are refused. decamp warns if users of this machine can access the
files: set the mode of DIR to 700, and do not allow the addresses of this machine.

ESXi requires a port mapper on port 111: decamp provides it, or registers with the system's
rpcbind. Both require root.
`

const landExamples = `
decamp land --export /srv/land --allow esx1.example.com
decamp land --export /srv/land --allow 10.0.0.0/24 --advertise 10.0.1.5
decamp land --export /srv/land --allow esx1 --json | jq .file.name
`

// landCommand is decamp land.
type landCommand struct {
	out     *output      // output and messages
	options land.Options // values of the flags
}

// newLand returns the command decamp land.
func newLand(p *program) *cobra.Command {
	lc := &landCommand{out: p.out}
	cmd := &cobra.Command{
		Use:     "land",
		Short:   "Serve a folder as a datastore that ESXi writes to",
		Long:    trimHelp(landHelp),
		Example: trimHelp(landExamples),
		Args:    exactArgs(),
		Annotations: exitCodes(
			exit{fault.NotFound, "the folder does not exist, or a host's name has no address"},
			exit{fault.Denied, "no permission to use the ports or the folder"},
			exit{fault.Conflict, "another server uses the ports"}),
		RunE: p.withLog(func(cmd *cobra.Command, _ []string) error {
			switch {
			case lc.options.Export == "":
				return badUsage(cmd, "--export is required: the folder to serve")
			case len(lc.options.Allow) == 0:
				return badUsage(cmd, "--allow is required: the hosts that may mount the folder")
			}
			return lc.runLand(cmd.Context())
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&lc.options.Export, "export", "", "`DIR` to serve")
	f.StringArrayVar(&lc.options.Allow, "allow", nil, "`HOST` that may mount the folder: name, address or network; may be repeated")
	f.StringVar(&lc.options.Advertise, "advertise", "", "`IP` of this machine for hosts (default the address of the route to them)")
	f.StringVar(&lc.options.Listen, "listen", ":2049", "`ADDR` to serve NFS and MOUNT on")
	f.StringVar(&lc.options.Portmap, "portmap", ":111", "`ADDR` of the port mapper; none: no port mapper, which ESXi requires")
	f.BoolVar(&lc.options.Durable, "durable", false, "acknowledge writes only when they are on the medium")
	f.BoolVar(&lc.options.ReadOnly, "read-only", false, "refuse changes")
	f.BoolVar(&lc.options.KeepRoot, "no-root-squash", false, "map root of a host to root instead of user 65534")
	_ = cmd.MarkFlagDirname("export") // fails for unknown flags only
	return cmd
}

// runLand serves the folder until ctx ends.
func (lc *landCommand) runLand(ctx context.Context) error {
	lc.options.Warn, lc.options.Log = lc.out.warn, lc.out.log
	l, err := land.Open(ctx, lc.options)
	if err != nil {
		return err
	}
	if err := printLanding(lc.out, l.Facts); err != nil {
		return errors.Join(err, l.Close(ctx))
	}
	return l.Run(ctx, lc.printChange, lc.printEnd)
}

// printChange prints a file whose state has changed.
func (lc *landCommand) printChange(f filewatch.File) {
	if lc.out.json {
		_ = lc.out.printJSON(map[string]filewatch.File{"file": f}) // a reader that went away shows in the end
		return
	}
	fmt.Fprintln(lc.out.screen, landingWords(f))
}

// landingWords returns the progress of a file in one line.
func landingWords(f filewatch.File) string {
	name := fault.Printable(f.Name)
	switch f.State {
	case filewatch.Landed:
		return fmt.Sprintf("%s: complete, %s of %s in %s (%s)", name, units.Binary(f.Landed), units.Binary(f.Size), units.Duration(f.Elapsed), units.Rate(f.Landed, f.Elapsed))
	case filewatch.Silent:
		return fmt.Sprintf("%s: no request of its host for %s; %s of %s received", name, filewatch.SilentAfter, units.Binary(f.Landed), units.Binary(f.Size))
	case filewatch.Removed:
		return fmt.Sprintf("%s: removed before it was complete", name)
	}
	if f.Elapsed == 0 {
		return fmt.Sprintf("%s: started, %s", name, units.Binary(f.Size))
	}
	return fmt.Sprintf("%s: %s of %s received, %s", name, units.Binary(f.Landed), units.Binary(f.Size), units.Rate(f.Landed, f.Elapsed))
}

// printEnd prints the result.
func (lc *landCommand) printEnd(e land.End) error {
	if lc.out.json {
		return lc.out.printJSON(map[string]land.End{"ended": e})
	}
	return writeLandEnd(lc.out, e)
}

// writeLandEnd prints the result as text.
func writeLandEnd(w io.Writer, e land.End) error {
	var b strings.Builder
	switch e.Files {
	case 0:
		b.WriteString("No file was received.\n")
	case 1:
		fmt.Fprintf(&b, "Received 1 file, %s. It is on the medium.\n", units.Binary(e.Bytes))
	default:
		fmt.Fprintf(&b, "Received %d files, %s. They are on the medium.\n", e.Files, units.Binary(e.Bytes))
	}
	for _, name := range e.Open {
		fmt.Fprintf(&b, "Incomplete: %s. Its host continues if the same command is started again within 140 s.\n", fault.Printable(name))
	}
	for _, host := range e.Mounts {
		fmt.Fprintf(&b, "Host %s still has the datastore mounted. Run there: esxcli storage nfs remove -v decamp\n", host)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printLanding prints how to use the datastore, with warnings about ports.
func printLanding(out *output, f land.Facts) error {
	switch {
	case !f.Portmap:
		out.warn("without a port mapper ESXi cannot mount it; other clients need the port as an option: mount -o vers=3,nolock,port=%d,mountport=%d", f.Port, f.Port)
	case f.Port != land.Port:
		out.warn("NFS is served on port %d; ESXi is only known to use port %d", f.Port, land.Port)
	}
	if out.json {
		return out.printJSON(f)
	}
	return writeLandFacts(out, f)
}

// writeLandFacts prints the facts with the commands for the host.
func writeLandFacts(w io.Writer, f land.Facts) error {
	how := "writes are acknowledged when they are in memory"
	switch {
	case f.ReadOnly:
		how = "it is read-only"
	case f.Durable:
		how = "writes are acknowledged when they are on the medium"
	}
	_, err := fmt.Fprintf(w, "%s is served from %s; %s. Press Ctrl-C to stop.\n\nOn the host:\n\n  %s\n\n",
		fault.Printable(f.Export), f.Address, how, strings.Join(f.Commands, "\n  "))
	return err
}
