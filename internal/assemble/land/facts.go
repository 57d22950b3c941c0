package land

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfs"
)

// Facts describe how to use the datastore. The JSON form is the output of --json.
type Facts struct {
	Address  string   `json:"address"`  // address of this machine for hosts
	Port     uint16   `json:"port"`     // port of NFS and MOUNT
	Portmap  bool     `json:"portmap"`  // hosts can ask for the port
	Export   string   `json:"export"`   // folder that hosts mount
	Durable  bool     `json:"durable"`  // writes are acknowledged when they are on the medium
	ReadOnly bool     `json:"readOnly"` // changes are refused
	Commands []string `json:"commands"` // commands for the host
}

// Port is the standard port of NFS. It is unknown whether ESXi supports another port.
const Port = 2049

// newFacts returns the facts about the export dir, served at the address at to the hosts h.
func newFacts(o Options, dir string, h assemble.Hosts, at net.Addr) (Facts, error) {
	port, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return Facts{}, err
	}
	f := Facts{
		Address: o.Advertise, Port: port.Port(), Portmap: o.Portmap != nfs.NoPortmap, Export: dir, Durable: o.Durable, ReadOnly: o.ReadOnly,
	}
	if f.Address == "" {
		if f.Address, err = addressTowards(h[0].Addr()); err != nil {
			return f, err
		}
	}
	f.Commands = []string{
		"esxcli storage nfs add -H " + f.Address + " -s " + fault.Quote(f.Export) + " -v decamp",
		"vmkfstools -i /vmfs/volumes/DATASTORE/VM/VM.vmdk -d thin /vmfs/volumes/decamp/VM.vmdk",
		"esxcli storage nfs remove -v decamp",
	}
	if o.ReadOnly {
		f.Commands[0] += " -r"
		f.Commands = slices.Delete(f.Commands, 1, 2)
	}
	return f, nil
}

// addressTowards returns the address of this machine on the route to host. Nothing is sent: connecting
// a UDP socket only looks up the route.
func addressTowards(host netip.Addr) (string, error) {
	c, err := net.DialTimeout("udp", netip.AddrPortFrom(host, Port).String(), time.Second)
	if err != nil {
		return "", fault.New(fault.Unreachable, "find the route to %s: %w", host, err).
			WithHint("set the address of this machine that the host can reach: --advertise IP")
	}
	defer c.Close() // nothing was sent
	ip, _, err := net.SplitHostPort(c.LocalAddr().String())
	return ip, err
}
