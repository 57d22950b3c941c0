package main

import (
	"net/netip"

	"github.com/spf13/pflag"
)

// landingOptions are the flags of --transport landing.
type landingOptions struct {
	advertise netip.Addr
	listen    string
	portmap   string
	memory    sizeFlag
	allow     []string
}

func (o *landingOptions) register(f *pflag.FlagSet) {
	o.memory = 1 << 30
	f.TextVar(&o.advertise, "advertise", netip.Addr{}, "with landing: `IP` of this machine that the host is told (default the one on its way)")
	f.StringVar(&o.listen, "landing-listen", ":2049", "with landing: `ADDR` to serve NFS on")
	f.StringVar(&o.portmap, "landing-portmap", ":111", "with landing: `ADDR` of the port mapper, which ESXi looks for on 111")
	f.StringArrayVar(&o.allow, "landing-allow", nil, "with landing: `HOST` that may mount it too: name, address or network; may be repeated")
	f.Var(&o.memory, "landing-memory", "with landing: bytes held of all disks together, such as 1G")
}
