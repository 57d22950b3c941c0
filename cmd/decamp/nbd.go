package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble/export"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

const nbdHelp = `
Serve the disks of a VM over NBD, read-only: to nbdcopy, qemu-img, guestfish, QEMU itself.

Each disk is an export named disk-KEY, such as disk-2000; the empty name is the first disk.
Clients connect to a Unix socket that only you can use, or to --listen ADDR. Addresses of
other machines require TLS: --tls-cert, --tls-key, and --tls-client-ca to admit clients.

A VM that is powered off is served as it is; do not start it meanwhile. For a VM that runs,
decamp creates a snapshot, serves it and removes it at the end. After a kill, decamp clean or
the next decamp that logs in to the host removes it. --snapshot serves an existing snapshot.

With -- COMMAND, decamp runs the program while it serves, and ends with its exit code. The
program gets $NBD_URI, and for each disk $NBD_URI_KEY. The shell runs a COMMAND of one word.
Variables that may contain secrets are not passed to the program (docs/nbd.md).
`

const nbdExamples = `
decamp nbd esxi://root@esx1 web01
decamp nbd esxi://root@esx1 web01 --disk 2000 -- 'nbdcopy -p "$NBD_URI" /dev/vg0/web01'
decamp nbd esxi://esx1 db --listen :10809 --tls-cert c.pem --tls-key k.pem --tls-client-ca a.pem
`

// nbdCommand is decamp nbd.
type nbdCommand struct {
	moveFlags                // options of transports; no migration uses them
	options   export.Options // values of the other flags
}

// newNBD returns the command decamp nbd.
func newNBD(p *program) *cobra.Command {
	nc := &nbdCommand{}
	cmd := &cobra.Command{
		Use:     "nbd URL VM [-- COMMAND]",
		Short:   "Serve a VM's disks over NBD",
		Long:    trimHelp(nbdHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(nbdExamples),
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				nc.options.Command, args = args[at:], args[:at]
			}
			return exactArgs("URL", "VM")(cmd, args)
		},
		Annotations: exitCodes(append(sourceExits,
			exit{fault.Conflict, "the VM is suspended, several snapshots have the name, or the address is in use"},
			exit{fault.Unsupported, "no transport can read a disk, or the host's licence permits no snapshot"})...),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			o := &nc.options
			if o.URL, o.VM = args[0], args[1]; !cmd.Flags().Changed("transport") && o.Transport == "landing" {
				o.Transport = export.Auto // the config file has it as the default of migrations
			}
			if err := nc.checkKeys(cmd); err != nil {
				return err
			}
			o.Login, o.SSH, o.Reads, o.Show = nc.Login, nc.SSH, nc.Options, p.out.show
			if p.out.screen.IsTerminal() && !p.out.json && !p.out.structured {
				o.Screen = p.out.screen
			}
			return export.Serve(cmd.Context(), p.assembler, *o)
		}),
	}
	nc.registerFlags(cmd)
	return cmd
}

// registerFlags registers the flags.
func (nc *nbdCommand) registerFlags(cmd *cobra.Command) {
	o, f := &nc.options, cmd.Flags()
	nc.Options = planfile.DefaultOptions()
	f.Int32SliceVar(&o.Disks, "disk", nil, "`KEY` of a disk to serve, as decamp ls prints it; may be repeated (default all disks)")
	f.Lookup("disk").DefValue = "" // the usage describes it
	f.StringVar(&o.Snapshot, "snapshot", "", "`NAME` or reference of an existing snapshot to serve; decamp does not remove it")
	f.StringVar(&o.Address.Socket, "socket", "", "existing `DIR` for the Unix socket nbd.sock (default a private folder)")
	f.StringVar(&o.Address.Listen, "listen", "", "`ADDR` to serve on instead of a socket: host or host:port (default port 10809)")
	f.StringVar(&o.Address.Cert, "tls-cert", "", "with --listen: `FILE` with the server's certificate, PEM")
	f.StringVar(&o.Address.Key, "tls-key", "", "with --listen: `FILE` with the key of the certificate, PEM")
	f.StringVar(&o.Address.ClientCA, "tls-client-ca", "", "with --listen: `FILE` with the CA that signs certificates of clients, PEM")
	f.DurationVar(&o.ReadTimeout, "read-timeout", 2*time.Minute, "`TIME` limit of a read that the host does not answer")
	f.StringVar(&o.Transport, "transport", export.Auto, "transport of the disks: `auto, https or nfc`; auto is https, or nfc for disks that https cannot read")
	for _, flag := range nc.Flags() {
		i := slices.IndexFunc(optionUsages, func(u struct{ flag, usage string }) bool { return u.flag == flag.Name })
		if slices.Contains(export.TransportFlags, flag.Name) {
			registerKey(cmd, flag, optionUsages[i].usage)
		}
	}
	registerSSH(&nc.SSH, f)
	registerLogin(&nc.Login, cmd)
	_ = cmd.RegisterFlagCompletionFunc("transport", cobra.FixedCompletions([]string{export.Auto, export.HTTPS, export.NFC}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
}
