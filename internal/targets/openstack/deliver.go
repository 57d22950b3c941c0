package openstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// undoTimeout bounds what is done after an error, also after somebody asked to stop.
const undoTimeout = 10 * time.Minute

// poll is how often a volume, an image or a server is asked after.
const poll = 5 * time.Second

// A delivery is one VM on its way.
type delivery struct {
	cloud   *cloud
	opts    Options
	finder  finder
	remover remover

	platform.Delivery
	session *session
	machine *machine
	flavor  flavors.Flavor
	nets    []networks.Network // of the cards

	zone     string // of volumes
	contents string
	progress *platform.Progress
	warnings []inventory.Warning
	ports    []ports.Port // of the cards
	volumes  []string     // IDs, by disk
	record   string       // ID
}

func (w *delivery) warn(code, remedy, format string, args ...any) {
	w.warnings = append(w.warnings, inventory.Warning{Code: code, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Deliver makes ports and volumes, or the image. After a crash it finds what it made by
// their marks. What an earlier delivery completed stays as it is, also if this one fails.
func (p *Place) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	w, err := prepareDelivery(ctx, p.chooser(), d)
	if err != nil {
		return platform.Receipt{}, err
	}
	there, err := w.finder.find(ctx, w.session, d.VM)
	if err != nil {
		return platform.Receipt{}, err
	}
	id, of := there.record()
	if id != "" && of != w.contents {
		return platform.Receipt{}, w.outdated(id)
	}
	if id != "" {
		if err := w.adopt(there, id); err != nil {
			return platform.Receipt{}, err
		}
	} else if err := w.carryOut(ctx); err != nil {
		return platform.Receipt{}, w.abandon(ctx, err)
	}
	return w.receipt(), nil
}

// outdated says that what was delivered is not what is to be.
func (w *delivery) outdated(record string) error {
	return fault.New(fault.Conflict, "%s was made of an earlier copy of VM %s", record, w.VM.Name).
		WithHint("if that one is not wanted any more: openstack%s %s delete %s, and again", w.cloud.option(), w.opts.Boot, record)
}

// prepareDelivery finds out what the VM is to become and what it is to join, before anything is made.
func prepareDelivery(ctx context.Context, c chooser, d platform.Delivery) (*delivery, error) {
	w, err := newDelivery(ctx, c, d)
	if err != nil {
		return nil, err
	}
	if w.nets, err = c.networks(ctx, w.session, d.VM); err != nil {
		return nil, err
	}
	w.zone, err = c.zones(ctx, w.session)
	return w, err
}

// newDelivery finds out what the VM is to become.
func newDelivery(ctx context.Context, c chooser, d platform.Delivery) (*delivery, error) {
	m, err := machineOf(d.Definition, c.opts)
	if err != nil {
		return nil, err
	}
	w := &delivery{
		cloud: c.cloud, opts: c.opts, finder: finder{c.cloud}, remover: remover{finder{c.cloud}},
		Delivery: d, machine: m, contents: contents(d.Images), progress: platform.NewProgress(d), warnings: m.warnings,
	}
	if w.session, err = c.cloud.session(ctx); err != nil {
		return nil, err
	}
	if w.flavor, err = c.flavor(ctx, w.session, d.VM); err != nil {
		return nil, err
	}
	if w.flavor.VCPUs != d.VM.CPUs { // Nova refuses a topology of another number
		maps.DeleteFunc(m.properties, func(key, _ string) bool { return strings.HasPrefix(key, "hw_cpu_") })
	}
	if n := requirement(d.VM, c.opts); w.flavor.VCPUs != n.cpus || w.flavor.RAM != n.ramMiB {
		w.warn("flavor", "if that is wrong, name another: flavor=NAME", "flavor %s has %d vCPUs and %d MiB, the VM had %d and %d",
			fault.Line(w.flavor.Name), w.flavor.VCPUs, w.flavor.RAM, n.cpus, n.ramMiB)
	}
	return w, nil
}

// adopt takes what an earlier delivery completed for this one's. What somebody removed of it is fault.Conflict.
func (w *delivery) adopt(there *found, record string) error {
	gone := func(what string) error {
		return fault.New(fault.Conflict, "%s of VM %s was delivered, and is gone", what, w.VM.Name).
			WithHint("if the rest of it is not wanted either: openstack%s %s delete %s, and again", w.cloud.option(), w.opts.Boot, record)
	}
	w.record, w.volumes, w.ports = record, make([]string, len(w.VM.Disks)), make([]ports.Port, len(w.VM.NICs))
	for i, d := range w.VM.Disks {
		for _, v := range there.volumes {
			if v.Metadata[diskKey] == fmt.Sprint(d.Key) {
				w.volumes[i] = v.ID
			}
		}
		if w.volumes[i] == "" && w.opts.Boot != fromImage {
			return gone(fmt.Sprintf("the volume of disk %d", d.Key))
		}
	}
	for i := range w.VM.NICs {
		for _, port := range there.ports {
			if port.Name == w.portName(i) {
				w.ports[i] = port
			}
		}
		if w.ports[i].ID == "" {
			return gone("port " + w.portName(i))
		}
	}
	return nil
}

// carryOut makes what is not there yet. Cards come first: what Neutron refuses is known before hours of
// copying.
func (w *delivery) carryOut(ctx context.Context) error {
	if err := w.finder.checkNames(ctx, w.session, w.VM, w.machine.name); err != nil {
		return err
	}
	if err := (portMaker{w}).makePorts(ctx); err != nil {
		return err
	}
	if w.opts.Boot == fromImage {
		return w.makeImage(ctx)
	}
	w.volumes = make([]string, len(w.VM.Disks))
	for i := range w.VM.Disks {
		v, err := w.volume(ctx, i)
		if err != nil {
			return fmt.Errorf("disk %d: %w", w.VM.Disks[i].Key, err)
		}
		w.volumes[i] = v
		w.progress.Finish(w.VM.Disks[i].Capacity)
	}
	return w.complete(ctx)
}

// plan names what a disk is made by.
func (w *delivery) plan(i int) string {
	root, size := "", int64(0)
	if i >= 0 {
		img := w.image(i)
		root, size = img.Root, img.Size
	}
	text, _ := json.Marshal([]any{w.machine.properties, root, size, w.volumeType(i), w.opts.AvailabilityZone, w.opts.Boot}) // of text and numbers
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// metadata are those of the volume or the image of a disk.
func (w *delivery) metadata(i int) map[string]string {
	m := mark(w.VM)
	m[planKey] = w.plan(i)
	if i >= 0 {
		m[diskKey] = fmt.Sprint(w.VM.Disks[i].Key)
	}
	if i == w.machine.boot {
		maps.Copy(m, notes(w.Definition))
		m[flavorKey] = text(w.flavor.ID)
	}
	return m
}

// abandon removes what there is: nobody was told of it.
func (w *delivery) abandon(ctx context.Context, why error) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := w.remover.remove(late, w.session, w.VM); err != nil {
		return errors.Join(why, fmt.Errorf("remove what was made: %w", err))
	}
	return why
}

// receipt says what there is now, and how a server is made of it. It does not know whether Start makes one.
func (w *delivery) receipt() platform.Receipt {
	return platform.Receipt{
		Place: "openstack " + w.cloud.name, ID: w.record, Name: w.machine.name, Warnings: append(w.warnings, inventory.Warning{
			Code: targets.NotStarted, Text: "OpenStack has no server that was never on: this one is made when it is started", Remedy: w.command(),
		}),
	}
}

// command makes a server of what there is.
func (w *delivery) command() string {
	c := "openstack" + w.cloud.option() + " server create --flavor " + fault.Quote(w.flavor.ID)
	if w.opts.Boot == fromImage {
		c += " --image " + w.record
	} else {
		c += " --volume " + w.record
	}
	for i, id := range w.volumes {
		if i != w.machine.boot {
			c += " --block-device source_type=volume,destination_type=volume,boot_index=-1,disk_bus=" + w.machine.bus + ",uuid=" + id
		}
	}
	for _, port := range w.ports {
		c += " --port " + port.ID
	}
	if len(w.ports) == 0 {
		c += " --no-network"
	}
	if w.opts.AvailabilityZone != "" {
		c += " --availability-zone " + fault.Quote(w.opts.AvailabilityZone)
	}
	return c + " -- " + fault.Quote(w.machine.name)
}
