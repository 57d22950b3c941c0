// Package openstack delivers VMs to OpenStack. It uses Keystone, Glance, Cinder, Neutron and Nova with the
// credentials that OpenStack's tools use.
//
//	port 0 … -> image 0 -> volume 0 -> image 0 deleted -> image 1 … -> complete
//
// # Terms
//
// The record of a delivered VM is its boot volume, or its image with boot=image. The metadata of the record
// identify the source VM, and are marked as complete in the last step. The mark of a part (volume, port,
// image, server) is metadata with the source VM's reference and UUIDs. A part without a mark, or with the
// mark of another VM, is never changed or removed.
//
// # Servers
//
// Nova starts a server when it creates it. A guest that runs for a moment mounts its disks, uses its address
// and may begin to work, although the user has not requested it. So a delivery consists of volumes and ports,
// and of the command that creates the server. Start creates it on request.
//
// # Limits
//
// Only whole images are uploaded. Nova chooses the server's UUID. The metadata contain the source VM's UUID,
// but the guest cannot read it from the firmware.
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

// Options configure deliveries. Parameters of New's address override them.
type Options struct {
	Flavor           string // name or ID; the smallest flavor that fits if empty
	Network          string // name or ID of the network of cards without an entry in Maps
	VolumeType       string // type of volumes of disks without an entry in Maps; the project's default if empty
	AvailabilityZone string // zone of volumes and servers; the cloud's choice if empty
	Boot             string // fromVolume or fromImage; fromVolume if empty
	Project          string // name or ID; the project of the credentials if empty
	Format           string // format of uploads, raw or qcow2; qcow2 if empty
	MACs             string // keepMACs or newMACs; keepMACs if empty

	// Maps assign networks to cards, and volume types to disks by datastore. They also contain new names
	// of VMs.
	Maps namemap.Map

	// Getenv reads environment variables; os.Getenv if nil.
	Getenv func(string) string

	// Wait sleeps for d, or until ctx ends. A timer is used if it is nil.
	Wait func(ctx context.Context, d time.Duration) error
}

const (
	fromVolume = "volume" // each disk becomes a volume; the default
	fromImage  = "image"  // the only disk becomes an image, from which the server boots
	keepMACs   = "keep"   // ports have the MACs of the source's cards; the default
	newMACs    = "new"    // Neutron chooses the MACs
)

// Platform implements platform.Platform for a project of an OpenStack cloud.
type Platform struct {
	cloud *cloud  // the login
	opts  Options // fixed after New
}

var (
	_ platform.Platform = (*Platform)(nil)
	_ platform.Starter  = (*Platform)(nil)
	_ platform.Examiner = (*Platform)(nil)
	_ platform.Outliner = (*Platform)(nil)

	_ platform.ValueLister = (*Platform)(nil)
)

// New returns the project at an address such as
//
// \tmycloud?flavor=m1.small&network=lan
//
// The first part is a name in clouds.yaml. If it is empty, OS_CLOUD or the other OS_* variables are
// used. New sends no
// request.
func New(address string, o Options) (*Platform, error) {
	name, query, err := splitAddress(address)
	if err != nil {
		return nil, err
	}
	if err := o.parseQuery(query); err != nil {
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
	return &Platform{cloud: c, opts: o}, nil
}

// volumeType returns the type of a disk's volume; "" is the project's default.
func (o Options) volumeType(d inventory.Disk) string {
	return cmp.Or(o.Maps.Storage(namemap.Datastore(d)), o.VolumeType)
}

// parameterPatterns contains the parameters of an address with the pattern of their values.
var parameterPatterns = map[string]*regexp.Regexp{
	"flavor": anyText, "network": anyText, "volumeType": anyText, "availabilityZone": anyText, "project": anyText,
	"boot": regexp.MustCompile(`^(volume|image)$`), "format": regexp.MustCompile(`^(raw|qcow2)$`),
	"mac": regexp.MustCompile(`^(keep|new)$`),
}

// anyText matches printable values.
var anyText = regexp.MustCompile(`^[^\x00-\x1f]{1,255}$`)

// parameterFields returns the field for each parameter of an address.
func (o *Options) parameterFields() map[string]*string {
	return map[string]*string{
		"flavor": &o.Flavor, "network": &o.Network, "volumeType": &o.VolumeType, "availabilityZone": &o.AvailabilityZone,
		"boot": &o.Boot, "project": &o.Project, "format": &o.Format, "mac": &o.MACs,
	}
}

// Parameters returns the names of the parameters of an address in alphabetical order.
func Parameters() []string { return slices.Sorted(maps.Keys(new(Options).parameterFields())) }

// parseQuery sets the options from the query of an address. The error is fault.Invalid for unknown and
// repeated
// parameters, and for values that do not match parameterPatterns.
func (o *Options) parseQuery(query url.Values) error {
	into := o.parameterFields()
	if query.Has("start") {
		return fault.New(fault.Invalid, "an address of OpenStack has no parameter start").
			WithHint("remove start= and use --start")
	}
	for key, given := range query {
		if into[key] == nil || len(given) != 1 {
			return fault.New(fault.Invalid, "an address of OpenStack has an unknown or repeated parameter: %q (%d times)", fault.Line(key), len(given)).
				WithHint("the parameters are flavor, network, volumeType, availabilityZone, boot, project, format and mac, each once")
		}
		if !parameterPatterns[key].MatchString(given[0]) {
			return fault.New(fault.Invalid, "%s cannot be %q", key, fault.Line(given[0])).WithHint("it must match %s", parameterPatterns[key])
		}
		*into[key] = given[0]
	}
	if o.Boot == "" {
		o.Boot = fromVolume
	}
	return nil
}

// newChooser returns the chooser for p's options.
func (p *Platform) newChooser() chooser { return chooser{p.cloud, p.opts} }

// newChecker returns the checker for p's options.
func (p *Platform) newChecker() checker { return checker{p.newChooser(), finder{p.cloud}} }

// Check verifies that vm can be delivered. It changes nothing.
func (p *Platform) Check(ctx context.Context, vm *inventory.VM) error {
	return p.newChecker().checkVM(ctx, vm)
}

// Examine performs the checks of Check by aspect, without a VM.
func (p *Platform) Examine(ctx context.Context, a platform.Aspect) []platform.AspectResult {
	return p.newChecker().examineAspect(ctx, a)
}

// ListValues implements platform.ValueLister for network, volumeType and availabilityZone.
func (p *Platform) ListValues(ctx context.Context, parameter string) ([]string, error) {
	c := p.newChecker()
	list := map[string]func(context.Context, *session) ([]string, error){
		"availabilityZone": c.listVolumeZones,
		"network": func(ctx context.Context, s *session) (names []string, err error) {
			found, err := c.listNetworks(ctx, s)
			for _, n := range found {
				names = append(names, n.Name)
			}
			return names, err
		},
		"volumeType": func(ctx context.Context, s *session) (names []string, err error) {
			found, err := c.listTypes(ctx, s)
			for _, t := range found {
				names = append(names, t.Name)
			}
			return names, err
		},
	}[parameter]
	if list == nil {
		return nil, nil
	}
	s, err := p.cloud.sessionNow(ctx)
	if err != nil {
		return nil, err
	}
	return list(ctx, s)
}

// Withdraw removes everything that was created for vm. It returns after no service lists a part of vm
// any more.
func (p *Platform) Withdraw(ctx context.Context, vm *inventory.VM) error {
	s, err := p.cloud.session(ctx)
	if err != nil {
		return err
	}
	return remover{finder{p.cloud}}.removeAll(ctx, s, vm)
}
