package main

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/unit"
)

// landingOptions are the flags of --transport landing.
type landingOptions struct {
	into      tmpfsFlag
	advertise netip.Addr
	listen    string
	portmap   string
	memory    sizeFlag
	allow     []string
	copy      string
	ssh       sshOptions
}

func (o *landingOptions) register(f *pflag.FlagSet) {
	o.memory = 1 << 30
	f.TextVar(&o.advertise, "advertise", netip.Addr{}, "with landing: `IP` of this machine that the host is told (default the one on its way)")
	f.StringVar(&o.listen, "landing-listen", ":2049", "with landing: `ADDR` to serve NFS on")
	f.StringVar(&o.portmap, "landing-portmap", ":111", "with landing: `ADDR` of the port mapper, which ESXi looks for on 111")
	f.Var(&o.into, "landing", "land in RAM first, `tmpfs:SIZE` at most, and write it to --to behind that; means --transport landing")
	f.StringArrayVar(&o.allow, "landing-allow", nil, "with landing: `HOST` that may mount it too: name, address or network; may be repeated")
	f.StringVar(&o.copy, "landing-copy", "auto", "with landing: how the host is asked to copy: `auto, api or ssh`; auto is by the API, and by SSH where licence or privileges forbid that")
	o.ssh.register(f)
	f.Var(&o.memory, "landing-memory", "with landing: bytes held of all disks together, such as 1G")
}

// check refuses flags that do not fit. Landing in RAM is the landing with more memory.
func (o *landingOptions) check(cmd *cobra.Command, transport *string) error {
	if o.into > 0 {
		switch {
		case cmd.Flags().Changed("transport") && *transport != "landing":
			return badUsage(cmd, "--landing says how hosts land their disks: it needs --transport landing, not %s", *transport)
		case cmd.Flags().Changed("landing-memory"):
			return badUsage(cmd, "--landing tmpfs:SIZE and --landing-memory SIZE are two words for the same: give one")
		}
		*transport, o.memory = "landing", sizeFlag(o.into)
	}
	if o.copy != "auto" && o.copy != "api" && o.copy != "ssh" {
		return badUsage(cmd, "--landing-copy %q: want auto, api or ssh", o.copy)
	}
	if *transport != "landing" {
		return nil
	}
	return fitsMemory(int64(o.memory))
}

// fitsMemory refuses to hold more than this machine can. Where that is unknown, it is up
// to the user.
func fitsMemory(n int64) error {
	free, known := availableMemory()
	if !known || n <= free {
		return nil
	}
	return fault.New(fault.Invalid, "there are %s of memory to be had, not %s", size(free), size(n)).
		WithHint("give less to --landing tmpfs:SIZE or --landing-memory SIZE: %s leave room for the rest", size(free/4*3))
}

// tmpfsFlag is tmpfs:SIZE as a pflag value, in bytes.
type tmpfsFlag int64

func (f *tmpfsFlag) String() string {
	if *f == 0 {
		return ""
	}
	return "tmpfs:" + (*sizeFlag)(f).String()
}

func (f *tmpfsFlag) Type() string { return "tmpfs:SIZE" }

// Set reads tmpfs:SIZE.
func (f *tmpfsFlag) Set(s string) error {
	digits, ok := strings.CutPrefix(s, "tmpfs:")
	n, err := unit.ParseSize(digits)
	switch {
	case !ok:
		return errors.New("want tmpfs:SIZE, such as tmpfs:16G")
	case err == nil && n == 0:
		return errors.New("want a size above 0, such as tmpfs:16G")
	}
	*f = tmpfsFlag(n)
	return err
}
