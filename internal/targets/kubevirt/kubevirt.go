// Package kubevirt takes VMs into Kubernetes clusters that run KubeVirt: a VirtualMachine, and a
// DataVolume of CDI for each disk.
//
// Manifests is the heart of it, a pure function. Two places use it:
//
//   - Folder needs no cluster: it writes the manifests beside the images' folders, with the commands
//     that are left to be typed.
//   - Cluster creates the DataVolumes, sends the images to CDI's upload proxy, waits until CDI has
//     written them, and creates the VirtualMachine, powered off. Asked to, it starts it.
//
// # What the VM gets
//
// KubeVirt has fewer kinds of hardware than QEMU: disks on SATA, virtio-scsi, virtio-blk or USB, and
// no network card of VMware's. The compat profile is SATA and e1000e, which systems of the last
// fifteen years have drivers for; the virtio profile is for guests that were converted. CD-ROM drives
// are left out: KubeVirt has no empty ones. Manifests warns of each thing that is not as it was.
//
// # Whose is what
//
// Each object carries the source VM's identity in annotations. What carries another, or none, is not
// decamp's: it is a fault.Conflict, and never changed nor removed.
//
// # What it does not do
//
// It sends whole images only: CDI takes no deltas. Holes are sent as zeros.
package kubevirt

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

// Options are the choices that the source VM does not make.
type Options struct {
	// Namespace holds the objects; "default" if empty.
	Namespace string

	// StorageClass of disks that Maps do not send elsewhere; the cluster's default if empty.
	StorageClass string

	// AccessMode is ReadWriteOnce, ReadWriteMany or ReadWriteOncePod; what CDI knows of the storage
	// class if empty. It has to be said for classes that CDI does not know.
	AccessMode string

	// VolumeMode is Block or Filesystem; as AccessMode if empty.
	VolumeMode string

	// Network is what cards join: Pod, or multus:[NAMESPACE/]NAME for a NetworkAttachmentDefinition.
	// Pod if empty.
	Network string

	// Maps say otherwise for cards of some networks of VMware's, and for disks of some datastores, whose
	// storages are storage classes. They also say what VMs are called.
	Maps namemap.Map

	// Plugins decides whether the kubeconfig may start a command to log in.
	Plugins kube.PluginPolicy
}

// Pod is the network that every pod of the cluster is in. A VM has one card there at most.
const Pod = "pod"

// multusPrefix comes before the name of a NetworkAttachmentDefinition.
const multusPrefix = "multus:"

// choices are the keys of Options in a --to, each with what it may be.
var choices = map[string]*regexp.Regexp{
	"namespace":    regexp.MustCompile(`^` + label + `$`),
	"storageClass": regexp.MustCompile(`^` + label + `(\.` + label + `)*$`),
	"accessMode":   regexp.MustCompile(`^ReadWrite(Once|Many|OncePod)$`),
	"volumeMode":   regexp.MustCompile(`^(Block|Filesystem)$`),
	"network":      networkName,
	"kubeconfig":   regexp.MustCompile(`^~?/.`),
	"context":      regexp.MustCompile(`.`),
	"uploadProxy":  regexp.MustCompile(`^https://`),
}

// label is a DNS label as RFC 1123 has it, which is what names of Kubernetes are made of.
const label = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`

var networkName = regexp.MustCompile(`^(` + Pod + `|` + multusPrefix + `(` + label + `/)?` + label + `(\.` + label + `)*)$`)

// An address is what a --to says after "kubevirt:", taken apart:
//
//	kubevirt:/FOLDER?namespace=vms&storageClass=fast           manifests beside the images
//	kubevirt:/FOLDER?kubeconfig=/FILE&context=NAME             into a cluster; images pass through FOLDER
//
// Both take network=pod or network=multus:NAMESPACE/NAME, accessMode= and volumeMode=; a cluster also
// takes uploadProxy=URL, where the one that CDI tells of cannot be reached from here.
type address struct {
	folder      string
	kubeconfig  string // file; empty for manifests
	context     string // of the kubeconfig; its current one if empty
	uploadProxy string // URL; the one that CDI tells of if empty
	Options
}

// New returns the place that an address names, and whether images are to stay on the stage, as they are
// not anywhere else. Of o the maps and the policy of plugins
// count; the address has the rest. No request is sent yet. What cannot be understood is fault.Invalid.
func New(to string, o Options) (place platform.Place, keep bool, err error) {
	a, err := parse(to)
	if err != nil {
		return nil, false, err
	}
	a.Maps, a.Plugins = o.Maps, o.Plugins
	if err := a.Options.check(); err != nil {
		return nil, false, err
	}
	if a.kubeconfig == "" {
		return &Folder{root: a.folder, opts: a.Options}, true, nil
	}
	c, err := newCluster(a)
	if err != nil { // not a nil *Cluster in the interface
		return nil, false, err
	}
	return c, false, nil
}

// parameters returns the field of each parameter of an address.
func (a *address) parameters() map[string]*string {
	return map[string]*string{
		"namespace": &a.Namespace, "storageClass": &a.StorageClass, "accessMode": &a.AccessMode, "volumeMode": &a.VolumeMode,
		"network": &a.Network, "kubeconfig": &a.kubeconfig, "context": &a.context, "uploadProxy": &a.uploadProxy,
	}
}

// Parameters returns the names of the parameters of an address, sorted.
func Parameters() []string { return slices.Sorted(maps.Keys(new(address).parameters())) }

// parse takes an address apart.
func parse(text string) (address, error) {
	folder, query, _ := strings.Cut(text, "?")
	a := address{folder: folder}
	values, err := url.ParseQuery(query)
	if err != nil || !filepath.IsAbs(folder) {
		return a, fault.New(fault.Invalid, "kubevirt:%s is not where a VM can live", text).WithHint("write it as kubevirt:/FOLDER?namespace=NAME")
	}
	into := a.parameters()
	for key, given := range values {
		if into[key] == nil || len(given) != 1 {
			return a, fault.New(fault.Invalid, "kubevirt:%s says %s %d times, which means nothing", text, key, len(given)).
				WithHint("there are namespace, storageClass, accessMode, volumeMode, network, kubeconfig, context and uploadProxy, each once")
		}
		if !choices[key].MatchString(given[0]) {
			return a, fault.New(fault.Invalid, "kubevirt:%s: %s cannot be %q", text, key, given[0]).WithHint("it has to match %s", choices[key])
		}
		*into[key] = given[0]
	}
	if a.kubeconfig == "" && a.context+a.uploadProxy != "" {
		return a, fault.New(fault.Invalid, "kubevirt:%s: context and uploadProxy are of a cluster", text).WithHint("add kubeconfig=/FILE, or leave them out")
	}
	return a, nil
}

// check refuses networks that are named in no way that is known.
func (o Options) check() error {
	for source, to := range o.Maps.Networks {
		if namemap.IsPattern(source) { // what it comes to is seen when cards are
			continue
		}
		if err := joinable(source, to); err != nil {
			return err
		}
	}
	if o.Network != "" && !networkName.MatchString(o.Network) {
		return fault.New(fault.Invalid, "there is no network %q", o.Network).WithHint("say %s, or %sNAMESPACE/NAME", Pod, multusPrefix)
	}
	return nil
}

// joinable refuses what no card of KubeVirt's can join.
func joinable(source string, to namemap.Network) error {
	switch {
	case to.To != "" && !networkName.MatchString(to.To):
		return fault.New(fault.Invalid, "network %q of the source cannot become %q", source, to.To).
			WithHint("in maps.networks of the plan file, or networks of --map, it is %q: %s or %sNAMESPACE/NAME", source, Pod, multusPrefix)
	case to.VLAN != 0:
		return fault.New(fault.Unsupported, "cards of network %q of the source cannot be tagged with VLAN %d: KubeVirt's cards have no tag", source, to.VLAN).
			WithHint("say it in the NetworkAttachmentDefinition (vlan: %d), and take vlan out of the map", to.VLAN)
	case to.Model != "" && !slices.Contains(models, to.Model):
		return fault.New(fault.Unsupported, "cards of network %q of the source cannot be %s: KubeVirt has none", source, to.Model).
			WithHint("there are: %s", strings.Join(models, ", "))
	}
	return nil
}

// models are the network cards that KubeVirt and maps both have.
var models = []string{"virtio", "e1000", "e1000e", "rtl8139", "pcnet"}

// class is the storage class of disks of a datastore; "" is the cluster's default.
func (o Options) class(datastore string) (string, error) {
	name := cmp.Or(o.Maps.Storage(datastore), o.StorageClass)
	if name != "" && !choices["storageClass"].MatchString(name) {
		return "", fault.New(fault.Invalid, "datastore %s cannot become %q, which is no name of a storage class", datastore, name).
			WithHint("kubectl get storageclass lists them")
	}
	return name, nil
}

// namespace is where the objects are.
func (o Options) namespace() string {
	if o.Namespace == "" {
		return "default"
	}
	return o.Namespace
}

// name is what a VM's objects are called.
func (o Options) name(vm *inventory.VM) string { return Name(o.Maps.Name(vm.Name)) }

// String names the place as people do.
func (o Options) String() string { return fmt.Sprintf("namespace %s", o.namespace()) }
