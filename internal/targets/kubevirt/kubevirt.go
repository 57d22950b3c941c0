// Package kubevirt delivers VMs to Kubernetes clusters that run KubeVirt. A VM becomes a VirtualMachine, and
// each disk a DataVolume of CDI.
//
// The function Manifests defines these objects. Two implementations of platform.Platform use it:
//
//   - Folder needs no cluster. It writes the manifests next to the folders of the images, with the
//     remaining commands as comments.
//   - Cluster creates the DataVolumes, uploads the images to CDI's upload proxy, waits until CDI has
//     written them, and creates the VirtualMachine, powered off. Start powers it on.
//
// # Hardware
//
// KubeVirt supports less hardware than QEMU: disks on SATA, virtio-scsi, virtio-blk or USB, and no card
// model of VMware's. The compat profile uses SATA and e1000e, for which operating systems of the last
// fifteen years have drivers. The virtio profile is for converted guests. KubeVirt has no empty CD-ROM
// drives, so they are omitted. Manifests returns a warning for each difference.
//
// # Ownership
//
// The annotations of each object contain the source VM's identity. An object with another identity, or
// without one, is fault.Conflict. It is never changed or removed.
//
// # Limits
//
// Only whole images are uploaded, because CDI does not accept changes. Holes are sent as zeros.
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

// Options are choices that do not follow from the source VM.
type Options struct {
	// Namespace is the namespace of all objects; "default" if empty.
	Namespace string

	// StorageClass is the storage class of disks without an entry in Maps; the cluster's default if empty.
	StorageClass string

	// AccessMode is ReadWriteOnce, ReadWriteMany or ReadWriteOncePod. If empty, CDI uses its profile of
	// the
	// storage class; a class without a profile requires a value.
	AccessMode string

	// VolumeMode is Block or Filesystem. If empty, CDI chooses it like the access mode.
	VolumeMode string

	// Network is the network of cards: Pod, or multus:[NAMESPACE/]NAME for a NetworkAttachmentDefinition.
	// Empty means
	// Pod.
	Network string

	// Maps assign networks to cards, and storage classes to disks by datastore. They also contain new
	// names of VMs.
	Maps namemap.Map

	// Plugins decides whether the kubeconfig may run a credential plugin.
	Plugins kube.PluginPolicy
}

// Pod is the cluster's pod network. A VM can have at most one card in it.
const Pod = "pod"

// multusPrefix precedes the name of a NetworkAttachmentDefinition.
const multusPrefix = "multus:"

// parameterPatterns contains the parameters of an address with the pattern of their values.
var parameterPatterns = map[string]*regexp.Regexp{
	"namespace":    regexp.MustCompile(`^` + label + `$`),
	"storageClass": regexp.MustCompile(`^` + label + `(\.` + label + `)*$`),
	"accessMode":   regexp.MustCompile(`^ReadWrite(Once|Many|OncePod)$`),
	"volumeMode":   regexp.MustCompile(`^(Block|Filesystem)$`),
	"network":      networkName,
	"kubeconfig":   regexp.MustCompile(`^~?/.`),
	"context":      regexp.MustCompile(`.`),
	"uploadProxy":  regexp.MustCompile(`^https://`),
}

// label matches a DNS label (RFC 1123). Most names in Kubernetes consist of such labels.
const label = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`

// networkName matches the value of Options.Network.
var networkName = regexp.MustCompile(`^(` + Pod + `|` + multusPrefix + `(` + label + `/)?` + label + `(\.` + label + `)*)$`)

// address is the part of a target after "kubevirt:":
//
// \tkubevirt:/FOLDER?namespace=vms&storageClass=fast manifests next to the images
// \tkubevirt:/FOLDER?kubeconfig=/FILE&context=NAME a cluster, with FOLDER as the staging folder
//
// Both forms accept network=pod or network=multus:NAMESPACE/NAME, accessMode= and volumeMode=. The
// second accepts
// uploadProxy=URL, for the case that the URL that CDI publishes is not reachable.
type address struct {
	folder      string // absolute path of the staging folder
	kubeconfig  string // path; empty for manifests only
	context     string // context in the kubeconfig; the current context if empty
	uploadProxy string // URL of the upload proxy; the URL that CDI publishes if empty
	Options
}

// New returns the platform at an address. keep reports whether the images must stay in the staging
// folder, because they
// are not sent anywhere. New uses the maps and the plugin policy of o; the address contains all other
// options. It sends
// no request. An invalid address is fault.Invalid.
func New(to string, o Options) (place platform.Platform, keep bool, err error) {
	a, err := parseAddress(to)
	if err != nil {
		return nil, false, err
	}
	a.Maps, a.Plugins = o.Maps, o.Plugins
	if err := a.Options.validate(); err != nil {
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

// parameterFields returns the field for each parameter of an address.
func (a *address) parameterFields() map[string]*string {
	return map[string]*string{
		"namespace": &a.Namespace, "storageClass": &a.StorageClass, "accessMode": &a.AccessMode, "volumeMode": &a.VolumeMode,
		"network": &a.Network, "kubeconfig": &a.kubeconfig, "context": &a.context, "uploadProxy": &a.uploadProxy,
	}
}

// Parameters returns the names of the parameters of an address in alphabetical order.
func Parameters() []string { return slices.Sorted(maps.Keys(new(address).parameterFields())) }

// parseAddress parses and validates an address. The error is fault.Invalid.
func parseAddress(text string) (address, error) {
	folder, query, _ := strings.Cut(text, "?")
	a := address{folder: folder}
	values, err := url.ParseQuery(query)
	if err != nil || !filepath.IsAbs(folder) {
		return a, fault.New(fault.Invalid, "kubevirt:%s is not a valid target", text).WithHint("write it as kubevirt:/FOLDER?namespace=NAME")
	}
	into := a.parameterFields()
	for key, given := range values {
		if into[key] == nil || len(given) != 1 {
			return a, fault.New(fault.Invalid, "kubevirt:%s has an unknown or repeated parameter: %s (%d times)", text, key, len(given)).
				WithHint("the parameters are namespace, storageClass, accessMode, volumeMode, network, kubeconfig, context and uploadProxy, each once")
		}
		if !parameterPatterns[key].MatchString(given[0]) {
			return a, fault.New(fault.Invalid, "kubevirt:%s: %s cannot be %q", text, key, given[0]).WithHint("it has to match %s", parameterPatterns[key])
		}
		*into[key] = given[0]
	}
	if a.kubeconfig == "" && a.context+a.uploadProxy != "" {
		return a, fault.New(fault.Invalid, "kubevirt:%s: context and uploadProxy require a cluster", text).WithHint("add kubeconfig=/FILE, or remove them")
	}
	return a, nil
}

// validate returns an error for networks that KubeVirt cannot represent. Patterns are skipped; addCards
// checks the
// networks that they give.
func (o Options) validate() error {
	for source, to := range o.Maps.Networks {
		if namemap.IsPattern(source) { // addCards checks the result for each card
			continue
		}
		if err := checkNetwork(source, to); err != nil {
			return err
		}
	}
	if o.Network != "" && !networkName.MatchString(o.Network) {
		return fault.New(fault.Invalid, "invalid network %q", o.Network).WithHint("write %s or %sNAMESPACE/NAME", Pod, multusPrefix)
	}
	return nil
}

// checkNetwork returns an error if no card of KubeVirt can join the network in the mapped form.
func checkNetwork(source string, to namemap.Network) error {
	switch {
	case to.To != "" && !networkName.MatchString(to.To):
		return fault.New(fault.Invalid, "network %q of the source is mapped to %q, which is not a valid network", source, to.To).
			WithHint("in maps.networks of the plan file, or networks of --map, write %q: %s or %sNAMESPACE/NAME", source, Pod, multusPrefix)
	case to.VLAN != 0:
		return fault.New(fault.Unsupported, "network %q of the source is mapped to VLAN %d, but cards in KubeVirt have no VLAN", source, to.VLAN).
			WithHint("set it in the NetworkAttachmentDefinition (vlan: %d), and remove vlan from the map", to.VLAN)
	case to.Model != "" && !slices.Contains(models, to.Model):
		return fault.New(fault.Unsupported, "network %q of the source is mapped to the card model %s, which KubeVirt does not have", source, to.Model).
			WithHint("use one of: %s", strings.Join(models, ", "))
	}
	return nil
}

// models are the card models that both KubeVirt and maps support.
var models = []string{"virtio", "e1000", "e1000e", "rtl8139", "pcnet"}

// storageClass returns the storage class for disks of a datastore; "" is the cluster's default.
func (o Options) storageClass(datastore string) (string, error) {
	name := cmp.Or(o.Maps.Storage(datastore), o.StorageClass)
	if name != "" && !parameterPatterns["storageClass"].MatchString(name) {
		return "", fault.New(fault.Invalid, "datastore %s is mapped to %q, which is not a valid name of a storage class", datastore, name).
			WithHint("list the storage classes: kubectl get storageclass")
	}
	return name, nil
}

// namespaceName returns the namespace of all objects.
func (o Options) namespaceName() string {
	if o.Namespace == "" {
		return "default"
	}
	return o.Namespace
}

// objectName returns the name of the VirtualMachine.
func (o Options) objectName(vm *inventory.VM) string { return Name(o.Maps.Name(vm.Name)) }

// String returns the namespace for messages.
func (o Options) String() string { return fmt.Sprintf("namespace %s", o.namespaceName()) }
