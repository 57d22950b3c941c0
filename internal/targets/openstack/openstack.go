// Package openstack brings VMs to OpenStack: a Place for package staged. It asks Keystone, Glance, Cinder,
// Neutron and Nova, with the credentials that OpenStack's own tools use, and nothing else.
//
//	port 0 … -> image 0 -> volume 0 -> image 0 deleted -> image 1 … -> complete
//
// # Terms
//
// The record is what a delivered VM is known by: the volume that it boots from, or its image with
// boot=image. Its metadata say whose it is and, last of all, that it is complete. A mark is the metadata
// of anything of ours: the source VM's reference and UUIDs. What has no mark, or another's, is never
// changed nor removed.
//
// # Why there is no server
//
// Nova cannot make a server that is off: what is made is started, and a guest that ran for a moment has
// mounted its disks, sent its address and perhaps begun to work, while nobody decided that. So a delivery
// is volumes and ports, and the command that makes a server of them. Start makes it, when somebody decided that
// it is to run.
//
// # What it does not do
//
// It sends whole images only. Nova chooses a server's UUID: the source's is in the metadata, and is not what
// firmware tells the guest.
package openstack

import (
	"cmp"
	"context"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Options say how VMs are delivered. What New's address says of the same goes before.
type Options struct {
	Flavor           string // name or ID; the smallest that fits if empty
	Network          string // what cards join, name or ID; Maps say otherwise for some of VMware's, by name
	VolumeType       string // of disks that Maps do not send elsewhere; the project's default if empty
	AvailabilityZone string // of volumes and server; the cloud's choice if empty
	Boot             string // fromVolume or fromImage; fromVolume if empty
	Project          string // name or ID; that of the credentials if empty
	Format           string // of images while they are sent: raw or qcow2; qcow2 if empty
	MACs             string // keepMACs or newMACs; keepMACs if empty

	// Maps say what networks cards join, and of which types the volumes of disks are, by datastore. They also
	// say what servers are called.
	Maps namemap.Map

	// Getenv reads the environment. Nil: os.Getenv.
	Getenv func(string) string

	// Wait waits between two questions, or until ctx ends. Nil: by the clock.
	Wait func(ctx context.Context, d time.Duration) error
}

const (
	fromVolume = "volume"
	fromImage  = "image"
	keepMACs   = "keep"
	newMACs    = "new"
)

// Place is a project of an OpenStack cloud. It satisfies platform.Place.
type Place struct {
	cloud *cloud
	opts  Options
}

var (
	_ platform.Place    = (*Place)(nil)
	_ platform.Starter  = (*Place)(nil)
	_ platform.Examiner = (*Place)(nil)
	_ platform.Outliner = (*Place)(nil)
)

// New returns the project at an address such as
//
//	mycloud?flavor=m1.small&network=lan
//
// It begins with a name of clouds.yaml; where that is empty, OS_CLOUD or the other variables OS_* count. It
// asks nobody.
func New(address string, o Options) (*Place, error) {
	name, query, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	if err := o.take(query); err != nil {
		return nil, err
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Wait == nil {
		o.Wait = sleep.For
	}
	c, err := newCloud(name, o)
	if err != nil {
		return nil, err
	}
	return &Place{cloud: c, opts: o}, nil
}

// volumeType is that of a disk's volume; "" is the project's default.
func (o Options) volumeType(d inventory.Disk) string {
	return cmp.Or(o.Maps.Storage(namemap.Datastore(d)), o.VolumeType)
}

// choices are the keys of an address, each with what it may be.
var choices = map[string]*regexp.Regexp{
	"flavor": anything, "network": anything, "volumeType": anything, "availabilityZone": anything, "project": anything,
	"boot": regexp.MustCompile(`^(volume|image)$`), "format": regexp.MustCompile(`^(raw|qcow2)$`),
	"mac": regexp.MustCompile(`^(keep|new)$`),
}

var anything = regexp.MustCompile(`^[^\x00-\x1f]{1,255}$`)

// parameters returns the field of each parameter of an address.
func (o *Options) parameters() map[string]*string {
	return map[string]*string{
		"flavor": &o.Flavor, "network": &o.Network, "volumeType": &o.VolumeType, "availabilityZone": &o.AvailabilityZone,
		"boot": &o.Boot, "project": &o.Project, "format": &o.Format, "mac": &o.MACs,
	}
}

// Parameters returns the names of the parameters of an address, sorted.
func Parameters() []string { return slices.Sorted(maps.Keys(new(Options).parameters())) }

// take reads what the address says.
func (o *Options) take(query url.Values) error {
	into := o.parameters()
	if query.Has("start") {
		return fault.New(fault.Invalid, "an address of OpenStack does not say whether VMs are started").
			WithHint("leave start= out of it, and say --start")
	}
	for key, given := range query {
		if into[key] == nil || len(given) != 1 {
			return fault.New(fault.Invalid, "an address of OpenStack has %q %d times, which means nothing", fault.Line(key), len(given)).
				WithHint("it may have flavor, network, volumeType, availabilityZone, boot, project, format and mac, each once")
		}
		if !choices[key].MatchString(given[0]) {
			return fault.New(fault.Invalid, "%s cannot be %q", key, fault.Line(given[0])).WithHint("it has to match %s", choices[key])
		}
		*into[key] = given[0]
	}
	if o.Boot == "" {
		o.Boot = fromVolume
	}
	return nil
}

func (p *Place) chooser() chooser { return chooser{p.cloud, p.opts} }

func (p *Place) checker() checker { return checker{p.chooser(), finder{p.cloud}} }

// Check reports why vm cannot be delivered. It only reads.
func (p *Place) Check(ctx context.Context, vm *inventory.VM) error { return p.checker().check(ctx, vm) }

// Examine is Check by aspects, for a VM that stands in for all.
func (p *Place) Examine(ctx context.Context, a platform.Aspect) []platform.Look {
	return p.checker().examine(ctx, a)
}

// Withdraw removes what was made of vm.
func (p *Place) Withdraw(ctx context.Context, vm *inventory.VM) error {
	s, err := p.cloud.session(ctx)
	if err != nil {
		return err
	}
	return remover{finder{p.cloud}}.remove(ctx, s, vm)
}
