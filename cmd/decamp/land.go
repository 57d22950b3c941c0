package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
)

const landHelp = `
Serve a folder as an NFSv3 datastore that ESXi hosts can mount, without setting up anything.

It has no export file and no sync to forget: writes are acknowledged when they are held in
memory, which is 13 to 24 times as fast as an export left on sync. That is right for copies
whose source stays until they were verified, and wrong for VMs that run there: for them say
--durable.

Only the hosts of --allow are talked to; they may do everything below DIR and nothing outside.
ESXi looks for the port mapper on port 111: decamp answers there, or registers with the
system's rpcbind. Both need root.
`

const landExamples = `
decamp land --export /srv/land --allow esx1.example.com
decamp land --export /srv/land --allow 10.0.0.0/24 --advertise 10.0.1.5
`

// landOptions are the flags of decamp land.
type landOptions struct {
	export    string
	allow     []string
	advertise string
	listen    string
	portmap   string
	durable   bool
	readOnly  bool
}

func newLand(a *app) *cobra.Command {
	var o landOptions
	cmd := &cobra.Command{
		Use:     "land",
		Short:   "Serve a folder as a datastore that ESXi writes to",
		Long:    text(landHelp),
		Example: text(landExamples),
		Args:    takes(),
		Annotations: exits(
			exit{fault.NotFound, "the folder is not there, or a host's name has no address"},
			exit{fault.Denied, "no right to use the ports, or the folder"},
			exit{fault.Conflict, "another server has the ports"}),
		RunE: a.logged(func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.export == "":
				return badUsage(cmd, "--export is missing: say which folder is to be served")
			case len(o.allow) == 0:
				return badUsage(cmd, "--allow is missing: say which hosts may write there")
			}
			return a.land(cmd.Context(), o)
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.export, "export", "", "`DIR` to serve")
	f.StringArrayVar(&o.allow, "allow", nil, "`HOST` that may mount it: name, address or network; may be repeated")
	f.StringVar(&o.advertise, "advertise", "", "`IP` of this machine that hosts are told (default the one on their way)")
	f.StringVar(&o.listen, "listen", ":2049", "`ADDR` to serve NFS and MOUNT on")
	f.StringVar(&o.portmap, "portmap", ":111", "`ADDR` of the port mapper; none: do without, which ESXi does not")
	f.BoolVar(&o.durable, "durable", false, "acknowledge writes when they are on the medium")
	f.BoolVar(&o.readOnly, "read-only", false, "let nothing be changed")
	_ = cmd.MarkFlagDirname("export") // fails for unknown flags only
	return cmd
}

// land serves until ctx ends.
func (a *app) land(ctx context.Context, o landOptions) (err error) {
	dir, err := filepath.Abs(o.export)
	if err != nil {
		return err
	}
	hosts, err := lookUp(ctx, "--allow", o.allow)
	if err != nil {
		return err
	}
	s, err := nfs.New(nfs.Options{Exports: []nfs.Export{o.exportOf(dir)}, Admit: hosts.admit, Durable: o.durable, Log: a.log})
	if err != nil {
		return err
	}
	defer closing(&err, s.Close)
	l, err := nfs.Listen(ctx, nfs.Ports{NFS: o.listen, Portmap: o.portmap})
	if err != nil {
		return err
	}
	facts, err := o.facts(dir, hosts, l.NFS.Addr())
	if err == nil {
		err = a.tellLanding(facts)
	}
	if err != nil {
		return errors.Join(err, l.Close(ctx))
	}
	return s.Run(ctx, l)
}

func (o landOptions) exportOf(dir string) nfs.Export {
	e := nfs.Export{Path: dir, Dir: dir}
	if o.readOnly {
		e.Writable = func(string) bool { return false }
	}
	return e
}

// hosts are who may mount.
type hosts []netip.Prefix

// lookUp takes names, addresses and networks, as a flag was given them.
func lookUp(ctx context.Context, flag string, list []string) (hosts, error) {
	var out hosts
	for _, name := range list {
		if p, err := netip.ParsePrefix(name); err == nil {
			out = append(out, p.Masked())
			continue
		}
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		if err != nil {
			return nil, fault.New(fault.NotFound, "%s %s: %w", flag, name, err).WithHint("give the host's address, or a network such as 10.0.0.0/24")
		}
		for _, addr := range addrs {
			addr = addr.Unmap()
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out, nil
}

func (h hosts) admit(addr netip.Addr) bool {
	for _, p := range h {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// landFacts is what one needs to know to use the datastore.
type landFacts struct {
	Address string `json:"address"` // of this machine, as hosts see it
	Port    uint16 `json:"port"`    // of NFS and MOUNT
	Export  string `json:"export"`  // what hosts mount
	Durable bool   `json:"durable"`
}

func (o landOptions) facts(dir string, h hosts, at net.Addr) (landFacts, error) {
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return landFacts{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return landFacts{}, err
	}
	f := landFacts{Address: o.advertise, Port: uint16(n), Export: dir, Durable: o.durable}
	if f.Address == "" {
		f.Address, err = addressTowards(h[0].Addr())
	}
	return f, err
}

// addressTowards returns the address of this machine from which host is reached. Nothing is
// sent: connecting a UDP socket only asks for the route.
func addressTowards(host netip.Addr) (string, error) {
	c, err := net.DialTimeout("udp", netip.AddrPortFrom(host, 2049).String(), time.Second)
	if err != nil {
		return "", fault.New(fault.Unreachable, "find the way to %s: %w", host, err).
			WithHint("say which address of this machine the host can reach: --advertise IP")
	}
	defer c.Close() // nothing was sent
	ip, _, err := net.SplitHostPort(c.LocalAddr().String())
	return ip, err
}

func (a *app) tellLanding(f landFacts) error {
	if a.json {
		return a.print(f)
	}
	return f.write(a.out)
}

func (f landFacts) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, `%s is served from %s. Interrupt to end it.

On the host:

  esxcli storage nfs add -H %s -s %s -v decamp
  vmkfstools -i /vmfs/volumes/DATASTORE/VM/VM.vmdk -d thin /vmfs/volumes/decamp/VM.vmdk
  esxcli storage nfs remove -v decamp
`, f.Export, f.Address, f.Address, shellArgument(f.Export))
	return err
}
